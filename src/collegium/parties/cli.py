"""`collegium party`: what an institution runs."""

import json
import logging
import math
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field

from collegium.clock import utc_now
from collegium.data.loading.sources import DataSource, data_root
from collegium.data.task import Task
from collegium.errors import ColumnMissing, ConfigurationError, DataError
from collegium.interrupts import stoppable
from collegium.limits import PROTOCOL_VERSION
from collegium.logs import LogFormat, configure_logging, event
from collegium.parties.answer_book import AnswerBook
from collegium.parties.enrolment import PARTY, enrolled_tasks, not_agreed_to
from collegium.parties.kinds.evaluation import kept_evaluation
from collegium.parties.known_ledger import KnownLedger
from collegium.parties.known_roster import KnownRoster
from collegium.parties.policy import FEW_PARTIES, Policy, PolicyConfig
from collegium.parties.summing import Membership
from collegium.parties.teachers.kinds import OwnTeacher
from collegium.protocol.identities import Credentials
from collegium.protocol.question import about_all_records
from collegium.settings import Frozen, read_config, read_toml, validate_config
from collegium.whole_files import make_private, remove_stale_temp_files
from collegium_accounting.mechanisms import mechanism_named

if TYPE_CHECKING:
    from collegium.data import Examples

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The commands of an institution.")

ConfigFile = Annotated[Path, typer.Argument(help="The party's TOML file.", show_default=False)]


class PartyConfig(Frozen):
    """The party's TOML file. Relative paths start at the folder of the file."""

    coordinator: str
    """``host:port``; the host is the name that the coordinator's certificate carries."""
    credentials: Path
    """Folder with certificate and keys."""
    data: DataSource
    """The party's own records."""
    folder: Path
    """Where fitted teachers, the split key and pools are kept."""
    roster: Path | None = None
    """The consortium's roster; without it the party takes no part in secure sums."""
    collusion: float = Field(default=0.1, ge=0, lt=1)
    """Share of the parties that may collude with the coordinator without learning this party's votes."""
    parties: tuple[str, ...] = ()
    """Names that the institution vouches for: only they may join the roster, once and with one key each; without any,
    every change of the roster is an enrolment. ``collusion`` is a share of them."""
    minimum_parties: int = Field(default=3, ge=1)
    """No announced roster with fewer parties is taken over."""
    policy: Path | None = None
    """What the institution agrees to; masked sums of known mechanisms without further limits where there is none."""
    data_root: Path | None = None
    teacher: OwnTeacher | None = None
    """What it fits where the consortium's kind of teacher is ``own-choice``."""
    noise_seed: int | None = None
    """For research, where the policy allows it: the party's share of noise follows from this, and protects nobody."""
    device: str = "auto"
    threads: int = Field(default=1, ge=1)
    """CPU cores: for predicting, and for fitting several teachers side by side."""

    @classmethod
    def read(cls, path: Path) -> "PartyConfig":
        """Read the file; StorageError or ConfigurationError says what is wrong with it."""
        config = read_config(path, cls)
        base = path.resolve().parent
        named = {name: getattr(config, name) for name in ("credentials", "folder", "data_root", "roster", "policy")}
        places = {name: base / place for name, place in named.items() if place is not None}
        return config.model_copy(update=places)


def known_roster(config: PartyConfig, credentials: Credentials) -> KnownRoster | None:
    """The roster as this party has it; None where the file names none. IdentityError when it is not on it."""
    if config.roster is None:
        return None
    trusted, names = credentials.authority_pem, config.parties
    known = KnownRoster(config.roster, trusted, vouched=names, minimum_parties=config.minimum_parties)
    known.roster.admit(credentials.subject)
    return known


def membership_of(config: PartyConfig, credentials: Credentials, known: KnownRoster | None) -> Membership | None:
    """The party among the others, as its own roster has them; None where the file names no roster."""
    if known is None:
        return None
    return Membership(
        known.roster.consortium,
        known,
        credentials.signing_key.sign,
        config.collusion,
        len(set(config.parties)),
        unnamed=lambda: known.unnamed,
        noise_seed=config.noise_seed,
    )


def policy_of(config: PartyConfig) -> PolicyConfig:
    """What the policy file says, or the default."""
    return PolicyConfig() if config.policy is None else PolicyConfig.read(config.policy)


def require_limits(policy: PolicyConfig, parties: int) -> None:
    """ConfigurationError unless the policy limits the noise, the pools, and the number of answers or their ε.

    With ``parties`` (those that the institution vouches for, 0 where it names none) below five, exact sums need a word.
    """
    kinds = {about_all_records(mechanism_named(name)) for name in policy.mechanisms}
    missing = [] if all(policy.noise_floor(summed=summed) for summed in kinds) else ["minimum_noise_votes"]
    missing += ["pools"] if policy.pools is None else []
    if policy.queries is None and policy.epsilon is None and policy.record_epsilon is None:
        missing.append("queries or epsilon")
    if missing:
        raise ConfigurationError(
            f"the policy sets no limit by {' and '.join(missing)}: write them into the policy file that party.toml "
            "names; a party without them would answer anything"
        )
    if 0 < parties < FEW_PARTIES and policy.sum_modes == ("masked",) and not policy.few_parties:
        raise ConfigurationError(
            f"the exact sum of {parties} parties may show what each voted: write few_parties = true into the policy "
            "file if this institution agrees to that, or ask the consortium for the mode masked+noised"
        )


@app.command()
def serve(
    config_file: ConfigFile,
    log_format: Annotated[LogFormat, typer.Option(help="Lines for people, or JSON lines.")] = LogFormat.TEXT,
    stay: Annotated[
        bool, typer.Option("--stay", help="When a run is over, wait for the next run or study instead of ending.")
    ] = False,
    until_stdin_closes: Annotated[
        bool, typer.Option("--until-stdin-closes", help="Also end when standard input is closed.")
    ] = False,
) -> None:
    """Answer the coordinator's requests until it says that the run is over.

    Example: collegium party serve clinic-1/party.toml
    """
    configure_logging(log_format)
    log = logging.getLogger("collegium.party")
    config = PartyConfig.read(config_file)
    make_private(config.folder)
    credentials = Credentials.load(config.credentials, "party")
    for place in {config.folder, (config.roster or config.folder).parent}:
        remove_stale_temp_files(place)

    known = known_roster(config, credentials)
    policy = policy_of(config)
    require_limits(policy, len(set(config.parties)))
    if config.noise_seed is not None:
        if not policy.seeded_noise:
            raise ConfigurationError(
                f"{config_file}: noise_seed protects nobody: the policy must set seeded_noise = true"
            )
        log.warning("NOT PRIVATE: this party's noise follows from noise_seed")
    account = AnswerBook(config.folder, credentials.name, policy, credentials.signing_key)
    membership = membership_of(config, credentials, known)

    from collegium.parties.session import Answers, PartySession

    def open_party(task: Task) -> Answers:
        if (known_tasks := enrolled_tasks(config_file.parent)) and task not in known_tasks:
            raise ConfigurationError(
                "the consortium's task is none that this institution enrolled for: enrol again in the same folder to "
                "agree to it"
            )
        from collegium.data import PoolStore
        from collegium.parties.party import Party

        log.info("loading the records of %s", credentials.name)
        return Party(
            credentials.name,
            _records(config, task),
            task,
            folder=config.folder,
            pools=PoolStore(config.folder / "pools", keep=policy.pools),
            device=config.device,
            threads=config.threads,
            policy=Policy(policy),
            account=account,
            allowed_imports=policy.teacher_imports,
            own_teacher=config.teacher,
            membership=membership,
            ledger=KnownLedger(account, credentials.signing_key.sign),
            record_rho=policy.record_rho,
            progress=lambda ready, wanted: log.info(
                "teachers ready: %d of %d", ready, wanted, extra=event("teachers-ready", ready=ready, wanted=wanted)
            ),
        )

    session = PartySession(
        open_party,
        lambda: Credentials.load(config.credentials, "party"),
        config.coordinator,
        on_connected=lambda: log.info(
            "connected to %s", config.coordinator, extra=event("connected", coordinator=config.coordinator)
        ),
        on_roster=lambda roster_json: known.announced(roster_json) if known is not None else None,
        stays=stay,
    )

    if until_stdin_closes:
        threading.Thread(target=_stop_at_the_end_of_stdin, args=(session.stop,), daemon=True).start()
    with stoppable(session.stop):
        log.info("%s dials %s", credentials.name, config.coordinator)
        reason = session.run()
    log.info("ended: %s", reason, extra=event("ended", reason=reason))


def _records(config: PartyConfig, task: Task) -> "Examples":
    """The institution's records; ColumnMissing where their file's header lacks a column, whatever its rows hold."""
    from collegium.data import load
    from collegium.data.loading.loading import lacks_columns

    root = data_root(config.data_root)
    try:
        return load(config.data, task, data_root=root)
    except DataError as error:
        if lacks_columns(config.data, task, root):
            raise ColumnMissing(str(error)) from error
        raise DataError(str(error)) from error  # never ColumnMissing, which would be told: rows may have a part in it


def _stop_at_the_end_of_stdin(stop: Callable[[], None]) -> None:
    while os.read(sys.stdin.fileno(), 4096):  # unbuffered: a buffer held at the end would crash the interpreter
        pass
    stop()


@app.command()
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
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The records, for party.toml; by default records.csv."),
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that holds the class.")] = None,
    group: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column that names the person of a row.")
    ] = None,
) -> None:
    """Make this party's keys, have them certified, and write a party.toml and a policy.toml to edit.

    Private keys never leave the folder. With the same folder and no code, the command renews the certificate.

    Example: collegium party enrol --coordinator HOST:PORT --name clinic-1 --code CODE --fingerprint SHA256
    --folder clinic-1
    """
    from collegium.parties.enrolment import enrol as enrol_party
    from collegium.protocol.enrolment import given_code

    renews = (folder / PARTY).exists()
    if renews and any((data, label, group)):
        raise ConfigurationError(
            f"{folder / PARTY} is there already: name the records, label and group below [data] in it, "
            "and leave --data, --label and --group out"
        )
    if data is not None and "://" in data:
        raise DataError("a database needs a query too: leave --data out, and write source and query into party.toml")
    if data is not None and not DataSource(source=data).is_named and not Path(data).exists():
        raise DataError(f"there is no {data}: correct --data, or leave it out and name the records in party.toml later")
    source = data or "records.csv"
    if Path(source).exists():
        source = str(Path(source).resolve())
    done = enrol_party(
        coordinator, name, given_code(code, code_file), fingerprint, folder, data=source, label=label, group=group
    )
    subject = done.credentials.subject
    typer.echo(f"{subject.name} is enrolled until {subject.not_after.date()}")
    typer.echo(f"on the roster so far: {', '.join(done.parties)}")
    typer.echo(
        f"the roster's digest is {done.roster_digest}, and another with each party that enrols: once all have, "
        "collegium party show prints the one that you compare by telephone"
    )
    if done.few_parties:
        typer.echo(
            "The exact sum of fewer than five parties may show what each voted: if this institution agrees to that, "
            "write few_parties = true into policy.toml"
        )
    if renews:
        config = PartyConfig.read(done.party_file)
        policy = policy_of(config)
        make_private(config.folder)
        answered = AnswerBook(config.folder, name, policy, done.credentials.signing_key).queries_answered()
        if lines := not_agreed_to(policy, done.terms, answered):
            typer.echo(f"{config.policy} refuses what the consortium means to ask now. To agree, write there:")
            typer.echo("\n".join(lines))
    typer.echo(f"Look over {done.party_file} and policy.toml beside it, then run:")
    typer.echo(f"collegium party check {done.party_file}    # what the task makes of your records; nothing is sent")
    typer.echo(f"collegium party serve {done.party_file}")


@app.command()
def check(
    config_file: Annotated[Path | None, typer.Argument(help="The party's TOML file, once it is enrolled.")] = None,
    schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The consortium's TOML file, before the party is enrolled.")
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="FILE", help="The records, where there is no party.toml.")] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that holds the class.")] = None,
    group: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of the person of a row.")] = None,
) -> None:
    """Look over this party's own records: classes, spellings, missing and clipped values, and the settings that help.

    It reads files alone: nothing is sent to anybody. It exits with 3 where `serve` would refuse the records.

    Examples: collegium party check clinic-1/party.toml;
    collegium party check --schema consortium.toml --data clinic-1.csv --label diagnosis
    """
    from collegium.parties.checking import check_records

    tasks: tuple[Task, ...] = ()
    if schema is not None:
        values, text = read_toml(schema)
        tasks = (validate_config(values.get("task", {}), Task, f"{schema}: task", text),)
    if config_file is not None:
        config = PartyConfig.read(config_file)
        source, root = config.data, data_root(config.data_root)
        tasks = tasks or enrolled_tasks(config_file.parent)
    elif data is not None:
        given = {"source": data, "label": label, "group": group}
        source, root = DataSource.model_validate(given), None
    else:
        raise ConfigurationError("which records? Name party.toml, or --schema consortium.toml --data FILE")
    if not tasks:
        raise ConfigurationError("which classes and columns? Name the consortium's file by --schema consortium.toml")
    again = f"next: edit {config_file}, then: collegium party check {config_file}"
    settings = False
    for task in tasks:
        found = check_records(source, task, root)
        typer.echo("\n".join(found.lines()))
        settings = settings or bool(found.settings)
        if found.refused:
            if config_file is not None:
                typer.echo(again)
            raise typer.Exit(DataError.exit_status)
    if config_file is not None:
        if settings:
            typer.echo(again)
        typer.echo(f"{'or, as it is' if settings else 'next'}: collegium party serve {config_file}")


@app.command()
def show(
    config_file: ConfigFile,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print what this party is, what it would answer and what it has spent; nothing is sent anywhere.

    Example: collegium party show clinic-1/party.toml
    """
    config = PartyConfig.read(config_file)
    make_private(config.folder)
    credentials = Credentials.load(config.credentials, "party", expired=True)
    subject = credentials.subject
    known = known_roster(config, credentials)
    policy = policy_of(config)
    account = AnswerBook(config.folder, credentials.name, policy, credentials.signing_key)
    shown = account.head()
    evaluated = kept_evaluation(config.folder)
    of_all, delta_of_all = account.record_spent_altogether()
    facts: dict[str, str | int | float | None] = {
        "party": subject.name,
        "coordinator": config.coordinator,
        "data": config.data.source,
        "folder": str(config.folder),
        "certificate_sha256": subject.fingerprint,
        "certificate_days_left": (subject.not_after - utc_now()).days,
        "signing_key": subject.signing_key.hex(),
        "parties_vouched_for": ", ".join(config.parties) or None,
        "roster_parties": None if known is None else len(known),
        "roster_digest": None if known is None else known.roster.digest,
        "protocol_version": PROTOCOL_VERSION,
        "ledger_head_shown": None if shown is None else str(shown),
        "takes_part_in_sums": ", ".join(policy.sum_modes) + ("" if config.roster else " (but no roster is named)"),
        "mechanisms_agreed_to": ", ".join(policy.mechanisms),
        "pools_agreed_to": None if policy.pools is None else ", ".join(policy.pools),
        "few_parties": policy.few_parties,
        "minimum_noise_votes": policy.minimum_noise_votes,
        "minimum_noise_sums": policy.noise_floor(summed=True),
        "queries_answered": account.queries_answered(),
        "queries_limit": policy.queries,
        "own_epsilon_spent": round(account.spent(), 6),
        "own_epsilon_limit": policy.epsilon,
        "record_rho_limit": policy.record_rho if math.isfinite(policy.record_rho) else None,
        "record_epsilon_of_all_answers": round(of_all, 6),
        "record_delta_of_all_answers": delta_of_all,
        "record_epsilon_of_knn_answers": round(account.record_spent(), 6),
        "record_epsilon_limit_of_knn": policy.record_epsilon,
        "delta": policy.delta,
        "student_right_here": None if "own" not in evaluated else round(evaluated["own"], 4),
        "student_right_overall": None if not evaluated.get("consortium") else round(evaluated["consortium"], 4),
        "warning": evaluated.get("warning"),
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        typer.echo(f"{name.replace('_', ' '):<31}{'none' if value is None else value}")


@app.command(name="new-ledger")
def new_ledger(config_file: ConfigFile) -> None:
    """Agree that the coordinator begins a new ledger: this party then follows whichever it is shown next.

    Whatever the old one paid for may be released once more under the new one: agree to it only if the consortium did.

    Example: collegium party new-ledger clinic-1/party.toml
    """
    config = PartyConfig.read(config_file)
    make_private(config.folder)
    credentials = Credentials.load(config.credentials, "party", expired=True)
    book = AnswerBook(config.folder, credentials.name, policy_of(config), credentials.signing_key)
    before = book.head()
    book.keep_head(None)
    told = "no entry was shown to this party yet" if before is None else f"entry {before} is no longer asked for"
    typer.echo(f"{told}: {credentials.name} follows the next ledger that it is shown")
