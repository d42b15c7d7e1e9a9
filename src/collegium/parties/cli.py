"""`collegium party`: what an institution runs."""

import json
import logging
import math
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from collegium.clock import utc_now
from collegium.data.loading.sources import data_root
from collegium.data.task import Task
from collegium.errors import ConfigurationError, DataError
from collegium.interrupts import stoppable
from collegium.limits import MAX_RECORDS_PER_PARTY, PROTOCOL_VERSION, REHEARSED_RECORDS
from collegium.logs import LogFormat, configure_logging, event
from collegium.parties.config import WHOSE, OwnRecords, PartyConfig, book_of, known_roster, policy_of
from collegium.parties.enrol_cli import ConfigFile, Group, Label, Query, accept_key, agree, enrol
from collegium.parties.enrolment import enrolled_tasks
from collegium.parties.kind import party_kinds
from collegium.protocol.identities import Credentials
from collegium.settings import read_toml, validate_config
from collegium.whole_files import make_private, remove_stale_temp_files
from collegium_accounting.terminal import epsilon_text

if TYPE_CHECKING:
    from collegium.parties.opening import Opening

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The commands of an institution.")
app.command()(enrol)
app.command(name="accept-key")(accept_key)
app.command()(agree)

OVER_CAP = (
    "MORE RECORDS THAN THE CAP of {cap:,} (budget.records_per_party): ask the operator for a higher one, or name a "
    "part of your records; a run that counts more than all may have is refused after its sums are paid"
)
Log = Annotated[LogFormat, typer.Option(help="Lines for people, or JSON lines.")]


@app.command()
def serve(
    config_file: ConfigFile,
    log_format: Log = LogFormat.TEXT,
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
    config = PartyConfig.read(config_file)
    config.data.require_decision()
    make_private(config.folder)
    for place in {config.folder, (config.roster or config.folder).parent}:
        remove_stale_temp_files(place)

    from collegium.parties.opening import Opening

    credentials = Credentials.load(config.credentials, "party")
    _attend(config, Opening(config_file, config, credentials), stays=stay, until_stdin_closes=until_stdin_closes)


@app.command()
def rehearse(
    config_file: ConfigFile,
    records: Annotated[int, typer.Option(min=1, help="How many records are invented.")] = REHEARSED_RECORDS,
    log_format: Log = LogFormat.TEXT,
) -> None:
    """Take part in a rehearsal with invented records of the public schema: the institution's own are never opened.

    It waits for `collegium consortium rehearse` at the coordinator, and answers nothing else. The policy holds, on
    books that are thrown away at the end; the account of what was answered stays as it is.

    Example: collegium party rehearse clinic-1/party.toml
    """
    from collegium.parties.rehearsal import RehearsalOpening, without_records

    configure_logging(log_format)
    config = PartyConfig.read(config_file)
    credentials = Credentials.load(config.credentials, "party")
    with TemporaryDirectory(prefix="collegium-rehearsal-") as folder:
        apart = without_records(config, Path(folder))
        _attend(apart, RehearsalOpening(config_file, apart, credentials, records), rehearses=True)


def _attend(
    config: PartyConfig,
    opening: "Opening",
    *,
    stays: bool = False,
    rehearses: bool = False,
    until_stdin_closes: bool = False,
) -> None:
    """Answer the coordinator's requests until it says that the run is over."""
    from collegium.parties.session import PartySession

    log, known = logging.getLogger("collegium.party"), opening.known
    session = PartySession(
        opening,
        lambda: Credentials.load(config.credentials, "party"),
        config.coordinator,
        on_connected=lambda: log.info(
            "connected to %s", config.coordinator, extra=event("connected", coordinator=config.coordinator)
        ),
        on_roster=lambda roster_json: known.announced(roster_json) if known is not None else None,
        stays=stays,
        rehearses=rehearses,
    )
    if until_stdin_closes:
        threading.Thread(target=_stop_at_the_end_of_stdin, args=(session.stop,), daemon=True).start()
    with stoppable(session.stop):
        log.info("%s dials %s%s", opening.name, config.coordinator, ", with invented records" if rehearses else "")
        reason = session.run()
    log.info("ended: %s", reason, extra=event("ended", reason=reason))


def _stop_at_the_end_of_stdin(stop: Callable[[], None]) -> None:
    while os.read(sys.stdin.fileno(), 4096):  # unbuffered: a buffer held at the end would crash the interpreter
        pass
    stop()


@app.command()
def check(
    config_file: Annotated[Path | None, typer.Argument(help="The party's TOML file, once it is enrolled.")] = None,
    schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The consortium's TOML file, before the party is enrolled.")
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="FILE", help="The records, where there is no party.toml.")] = None,
    label: Label = None,
    group: Group = None,
    query: Query = None,
) -> None:
    """Look over this party's own records: classes, spellings, missing and clipped values, and the settings that help.

    It reads files alone: nothing is sent to anybody. It exits with 3 where `serve` would refuse the records.

    Examples: collegium party check clinic-1/party.toml;
    collegium party check --schema consortium.toml --data clinic-1.csv --label diagnosis
    """
    from collegium.parties.checking import check_records
    from collegium.parties.opening import records_changed

    tasks, cap = _of_schema(schema)
    if config_file is not None:
        config = PartyConfig.read(config_file)
        source, root = config.data, data_root(config.data_root)
        tasks = tasks or enrolled_tasks(config_file.parent)
    elif data is not None:
        given = {"source": data, "label": label, "group": group, "query": query}
        source, root = validate_config(given, OwnRecords, "options"), None
    else:
        raise ConfigurationError("which records? Name party.toml, or --schema consortium.toml --data FILE")
    if not tasks:
        raise ConfigurationError("which classes and columns? Name the consortium's file by --schema consortium.toml")
    again = f"next: edit {config_file}, then: collegium party check {config_file}"
    settings = False
    for task in tasks:
        found = check_records(source, task, root)
        found.notes += [OVER_CAP.format(cap=cap)] if found.records > cap else []
        found.changed = None if config_file is None or found.refused else records_changed(config, [task])
        typer.echo("\n".join(found.lines()))
        settings = settings or bool(found.settings)
        if found.refused:
            if config_file is not None:
                typer.echo(again)
            raise typer.Exit(DataError.exit_status)
    if source.persons is None:
        typer.echo(WHOSE)
        if config_file is not None:
            typer.echo(again)
            raise typer.Exit(DataError.exit_status)
    if config_file is not None:
        if settings:
            typer.echo(again)
        typer.echo(f"{'or, as it is' if settings else 'next'}: collegium party serve {config_file}")


def _of_schema(schema: Path | None) -> tuple[tuple[Task, ...], int]:
    """The task of a consortium's file, and its cap on an institution's records."""
    if schema is None:
        return (), MAX_RECORDS_PER_PARTY
    values, text = read_toml(schema)
    budget = values.get("budget")
    cap = budget.get("records_per_party") if isinstance(budget, dict) else None
    task = validate_config(values.get("task", {}), Task, f"{schema}: task", text)
    return (task,), cap if isinstance(cap, int) else MAX_RECORDS_PER_PARTY


@app.command()
def show(
    config_file: ConfigFile,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print what this party is, what it would answer and what it has spent; nothing is sent anywhere.

    Example: collegium party show clinic-1/party.toml
    """
    show_party(PartyConfig.read(config_file), config_file.parent, as_json=as_json)


def show_party(config: PartyConfig, folder: Path, *, as_json: bool) -> None:
    """Print it of a party whose settings are these, and lie in ``folder``."""
    from collegium.parties.opening import records_changed

    credentials = Credentials.load(config.credentials, "party", expired=True)
    subject = credentials.subject
    known = known_roster(config, credentials)
    policy = policy_of(config)
    account = book_of(config, policy, credentials)
    shown, _ = account.head()
    noted = [dict(kind.noted(config.folder)) for _, kind in sorted(party_kinds().items())]
    warnings = [warning for one in noted if (warning := one.pop("warning", None))]
    of_all, delta_of_all = account.record_spent_altogether()
    facts: dict[str, str | int | float | list[float] | None] = {
        "party": subject.name,
        "coordinator": config.coordinator,
        "data": config.data.shown,
        "one_record_is": {True: "a person", False: "a row", None: None}[config.data.persons],
        "folder": str(config.folder),
        "certificate_sha256": subject.fingerprint,
        "certificate_days_left": (subject.not_after - utc_now()).days,
        "signing_key": subject.signing_key.hex(),
        "parties_named": ", ".join(config.parties) or None,
        "summed_with": None if known is None else ", ".join(name for name in known if name != subject.name),
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
        "own_epsilon_spent": account.spent() if policy.epsilon or account.spent() else None,
        "own_epsilon_limit": policy.epsilon,
        "record_rho_limit": policy.record_rho if math.isfinite(policy.record_rho) else None,
        "record_epsilon_of_all_answers": of_all,
        "record_delta_of_all_answers": delta_of_all,
        "record_epsilon_spent": account.record_spent(),
        "record_epsilon_limit": policy.record_epsilon,
        "delta": policy.delta,
        **dict(fact for one in noted for fact in one.items()),
        "warning": "; ".join(warnings) or None,
        "records_changed": records_changed(config, enrolled_tasks(folder)),
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        text = epsilon_text(value) if isinstance(value, float) and "epsilon" in name else value
        if isinstance(value, list):
            text = f"{value[0]} to {value[1]} (95 %)"
        typer.echo(f"{name.replace('_', ' '):<31}{'none' if text is None else text}")


@app.command(name="new-ledger")
def new_ledger(config_file: ConfigFile) -> None:
    """Agree that the coordinator begins a new ledger: this party then follows whichever it is shown next.

    Whatever the old one paid for may be released once more under the new one: agree to it only if the consortium did.

    Example: collegium party new-ledger clinic-1/party.toml
    """
    config = PartyConfig.read(config_file)
    credentials = Credentials.load(config.credentials, "party", expired=True)
    book = book_of(config, policy_of(config), credentials)
    before, _ = book.head()
    book.keep_head(None)
    told = "no entry was shown to this party yet" if before is None else f"entry {before} is no longer asked for"
    typer.echo(f"{told}: {credentials.name} follows the next ledger that it is shown")
