"""`collegium party enrol`, `accept-key` and `agree`: who this party is, with whom it is summed, what it bears."""

from pathlib import Path
from typing import Annotated

import typer

from collegium.data.loading.databases import columns_found, settled
from collegium.data.loading.files import DATABASE_FILES, columns_of
from collegium.data.loading.sources import DataSource
from collegium.errors import ColumnMissing, ConfigurationError, DataError
from collegium.limits import FEW_PARTIES
from collegium.parties.config import OwnRecords, PartyConfig, book_of, policy_of
from collegium.parties.enrolment import (
    ANNOUNCED,
    EXAMPLE_RECORDS,
    LIMITS,
    PARTY,
    Enrolment,
    agreeing,
    not_agreed_to,
    promised,
)
from collegium.parties.enrolment import enrol as enrol_party
from collegium.parties.known_roster import accept_key as accept
from collegium.parties.policy import PolicyConfig
from collegium.protocol.enrolment import given_code
from collegium.protocol.identities import Credentials
from collegium.settings import read_toml, toml_value, validate_config
from collegium.whole_files import write_whole
from collegium_accounting.mechanisms import SumMode

SHOWN = 20
"""So many of a file's columns are named."""
MOST = 1e6
"""A limit above this limits nothing."""

ConfigFile = Annotated[Path, typer.Argument(help="The party's TOML file.", show_default=False)]
Query = Annotated[str | None, typer.Option(metavar="SQL", help="Where --data is the URL of a database.")]
Label = Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that holds the class.")]
Group = Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that names the person of a row.")]


def enrol(
    coordinator: Annotated[str, typer.Option(metavar="HOST:PORT", help="The enrolment address.", show_default=False)],
    name: Annotated[str, typer.Option(help="This party's name.", show_default=False)],
    fingerprint: Annotated[
        str, typer.Option(metavar="SHA256", help="Fingerprint of the authority: the code is sent to no other.")
    ],
    folder: Annotated[Path, typer.Option(help="The folder for keys and settings.", show_default=False)],
    code: Annotated[str, typer.Option(help="The join code; not needed to renew.", show_default=False)] = "",
    code_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A file with the join code, or - to type it, so that ps does not show it."),
    ] = None,
    parties: Annotated[
        str,
        typer.Option(
            metavar="NAMES", help="Whom this institution agreed to be summed with, with commas; not needed to renew."
        ),
    ] = "",
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The records, or a database's URL, for party.toml; by default records.csv."),
    ] = None,
    query: Query = None,
    label: Label = None,
    group: Group = None,
    one_row_each: Annotated[
        bool | None,
        typer.Option(
            "--one-row-each/--several-rows",
            help="Without --group: each row is another person; or a person may have several, which no column names.",
        ),
    ] = None,
) -> None:
    """Make this party's keys, have them certified, and write a party.toml and a policy.toml to edit.

    Private keys never leave the folder. With the same folder and no code, the command renews the certificate.

    Example: collegium party enrol --coordinator HOST:PORT --name clinic-1 --code CODE --fingerprint SHA256
    --folder clinic-1 --parties clinic-1,clinic-2,clinic-3
    """
    renews = (folder / PARTY).exists()
    if renews and (any((data, query, label, group)) or one_row_each is not None):
        raise ConfigurationError(
            f"{folder / PARTY} is there already: name the records, label and persons below [data] in it, "
            "and leave --data, --query, --label, --group and --one-row-each out"
        )
    source = EXAMPLE_RECORDS.source  # to be put beside party.toml, or named there
    if data is not None or query is not None or Path(source).exists():
        source = _settled(data or source, query, label=label, group=group)
    whose = {"group": group or None, "one_row_each": one_row_each}  # an empty name names nobody
    records = {"source": source, "query": query, "label": label, **whose}
    done = enrol_party(
        coordinator,
        name,
        given_code(code, code_file),
        fingerprint,
        folder,
        parties=[one.strip() for one in parties.split(",") if one.strip()],
        records=validate_config(records, OwnRecords, "options"),
    )
    subject = done.credentials.subject
    typer.echo(f"{subject.name} is enrolled until {subject.not_after.date()}")
    _say_with_whom(done)
    typer.echo(f"{promised(done.told.terms)}")
    if done.told.terms.sum_mode == SumMode.MASKED and len(done.known.vouched) < FEW_PARTIES:
        typer.echo(
            "The exact sum of fewer than five parties may show what each voted: if this institution agrees to that, "
            "write few_parties = true into policy.toml"
        )
    if renews:
        config = PartyConfig.read(done.party_file)
        policy = policy_of(config)
        book = book_of(config, policy, done.credentials)
        asked = done.told.terms.policy()
        if lacking := not_agreed_to(policy, asked, book.queries_answered(), book.spent_of_limits()):
            typer.echo(f"{config.policy} refuses what the consortium means to ask now. To agree, write there:")
            typer.echo("\n".join(f"{name} = {toml_value(value)}" for name, value in lacking.items()))
    typer.echo(f"Look over {done.party_file} and policy.toml beside it, then run:")
    typer.echo(f"collegium party check {done.party_file}    # what the task makes of your records; nothing is sent")
    typer.echo(f"collegium party serve {done.party_file}")


def _settled(data: str, query: str | None, **named: str | None) -> str:
    """The file or URL with its whole path; DataError where it is not there, or lacks a column that an option names."""
    file, there = Path(data), list[str]()
    if "://" in data:
        if query is None:
            raise DataError(f'which rows? Write --data {DataSource.hidden(data)} --query "SELECT … FROM …"')
        try:
            there = columns_found(validate_config({"source": data, "query": query}, DataSource, "options"), None)
        except (DataError, ConfigurationError) as error:
            raise type(error)(f"{error}; or leave --data out, and name the database in party.toml later") from error
    elif file.suffix.lower() in DATABASE_FILES:
        raise DataError(f'{data} is a database: write --data sqlite:///{data} --query "SELECT … FROM …"')
    elif query is not None:
        raise DataError("--query is for a database: name its URL by --data, such as sqlite:///records.sqlite")
    elif file.exists():
        there = columns_of(file) if any(named.values()) else []
    elif not DataSource(source=data).is_named:
        raise DataError(f"there is no {data}: correct --data, or leave it out and name the records in party.toml later")
    for option, name in named.items():
        if there and name is not None and name not in there:
            shown = ", ".join(there[:SHOWN]) + (", …" if len(there) > SHOWN else "")
            raise ColumnMissing(f"--{option} {name}: {data} has no such column; it has {shown}")
    return str(file.resolve()) if file.exists() else settled(data)


def _say_with_whom(done: Enrolment) -> None:
    """With whom the party is summed, and what the coordinator says beside that."""
    known = done.known
    typer.echo(f"{known}")
    typer.echo("The digest is another with each of them that enrols: once all have, compare it by telephone")
    if done.refused is not None:
        typer.echo(f"NOT taken over from the coordinator's roster: {done.refused}")
    if others := sorted(set(done.told.expected) - known.vouched):
        typer.echo(
            f"The coordinator expects {', '.join(others)} too, whom this institution did not name: no sum with them"
        )
    if unknown := sorted(known.vouched - set(done.told.expected)):
        typer.echo(f"The coordinator expects nobody called {', '.join(unknown)}: look at parties in {done.party_file}")


def accept_key(
    config_file: ConfigFile,
    name: Annotated[str, typer.Argument(help="The party whose key is another now.", show_default=False)],
    key: Annotated[
        str,
        typer.Argument(
            metavar="SIGNING_KEY",
            help="As its own collegium party show prints it; have it read to you.",
            show_default=False,
        ),
    ],
) -> None:
    """Know a party of the consortium by another signing key than the one that it had first.

    Example: collegium party accept-key clinic-1/party.toml clinic-2 SIGNING_KEY
    """
    config = PartyConfig.read(config_file)
    if config.roster is None or name not in config.parties:
        raise ConfigurationError(f"{config_file} does not name {name} under parties: write it there first")
    before = accept(config.roster, name, key)
    told = "its first key" if before is None else "the key from before" if before == key else f"in place of {before}"
    typer.echo(f"{name} is known by {key}, {told}; a party that serves takes it up when it connects again")


def agree(
    config_file: ConfigFile,
    lines: Annotated[
        Path, typer.Argument(metavar="LINES", help="A file with the lines that the operator sent.", show_default=False)
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Have the policy bear a further study, such as the main one after a trial: take over the lines of policy.toml.

    What this institution answered and spent so far is added to its limits. Each change is shown, and made after a yes.

    Example: collegium party agree clinic-1/party.toml lines.toml
    """
    config, (asked, _) = PartyConfig.read(config_file), read_toml(lines)
    if config.policy is None:
        raise ConfigurationError(f"{config_file} names no policy: there are no limits to raise")
    if others := sorted(asked.keys() - ANNOUNCED):
        raise ConfigurationError(f"{lines}: no study needs {', '.join(others)}: leave it out")
    wanted = validate_config(asked, PolicyConfig, str(lines)).model_dump(include=set(asked), mode="json")
    if endless := [name for name in LIMITS if not (wanted.get(name, 0.0) or 0.0) <= MOST]:
        raise ConfigurationError(f"{lines}: {', '.join(endless)} would limit nothing: ask for what the study needs")
    if not toml_value(wanted).isprintable():
        raise ConfigurationError(f"{lines}: a text holds characters that are not printed: leave them out")
    if SumMode.CLEAR in wanted.get("sum_modes", ()):
        raise ConfigurationError(f"{lines}: sums in the clear show this institution's own: leave them out")
    credentials, policy = Credentials.load(config.credentials, "party", expired=True), policy_of(config)
    book = book_of(config, policy, credentials)
    answered, spent = book.queries_answered(), book.spent_of_limits()
    changes = not_agreed_to(policy, wanted, answered, spent)
    if not changes:
        typer.echo(f"{config.policy} bears this already")
        return
    text = agreeing(config.policy, config.policy.read_text(encoding="utf-8"), changes)
    for name, value in changes.items():
        used = {**spent, "queries": answered}.get(name, 0.0)
        said = f", of which {used:.4g} is used; {wanted[name]} more is asked for" if used else ""
        typer.echo(f"{name} = {toml_value(value)}    # was {toml_value(getattr(policy, name))}{said}")
    if not yes:
        typer.confirm(f"Write this into {config.policy}?", abort=True)
    write_whole(config.policy.resolve(), text)  # a link stays one
    typer.echo(f"{config.policy} bears the study; a party that serves reads it with the next request")
