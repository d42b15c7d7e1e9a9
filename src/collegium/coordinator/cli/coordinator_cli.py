"""`collegium coordinator serve | status`: what the consortium runs."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from collegium.clock import utc_now
from collegium.coordinator.cli.options import AsJson, ConfigFile, LogLines, PublicRoot, StudyName, WaitSeconds
from collegium.coordinator.run.run_folder import run_json
from collegium.coordinator.run.run_record import RunRecord, reached
from collegium.coordinator.settings.consortium import ConsortiumFolder, read_consortium
from collegium.errors import StorageError
from collegium.logs import LogFormat, configure_logging
from collegium_accounting.terminal import epsilon_text

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The commands of an operator.")


@app.command(epilog="Example: collegium coordinator serve consortium.toml")
def serve(
    config_file: ConfigFile,
    study: StudyName = None,
    wait_s: WaitSeconds = 30.0,
    data_root: PublicRoot = None,
    status_at: Annotated[
        str | None,
        typer.Option(
            "--status", metavar="HOST:PORT", help="Show a live page and metrics here, such as 127.0.0.1:8080."
        ),
    ] = None,
    status_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further name by which the live page may be asked for; may be repeated."),
    ] = None,
    stay: Annotated[
        bool, typer.Option("--stay", help="Stay up after a study, and serve those that collegium study begin names.")
    ] = False,
    log_format: LogLines = LogFormat.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="Print run.json at the end instead of a line.")] = False,
) -> None:
    """Enrol parties, wait for a quorum, and run until the student and the report are written.

    Run it again after a crash or an interruption, and it goes on: labels in the ledger stay, nothing is paid twice, and
    the parties connect again by themselves.
    """
    from collegium.coordinator.cli.serving import Serving, Study

    configure_logging(log_format)
    serving = Serving(config_file, data_root, wait_s, status_at, tuple(status_host or ()), stays=stay)
    serving.serve(Study.checked(config_file, study, data_root), lambda record, place: say(record, place, as_json))


def say(record: RunRecord, folder: ConsortiumFolder, as_json: bool) -> None:
    """Print how a run ended, and why it has no more labels where it might have had."""
    if as_json:
        typer.echo(run_json(record))
        return
    labels = reached(record.labels)
    typer.echo(f"{record.state}: {labels.answered} labels of {labels.asked} queries; {folder.run}/report.html")
    if labels.stopped:
        typer.echo(f"{'no more labels' if labels.left_out else 'note'}: {labels.stopped}")
    if record.refused is None and (verdict := record.verdict) is not None:
        typer.echo(f"student: {verdict}")
    if record.student is not None:
        typer.echo(f"next: collegium student predict {folder.run}/student.safetensors NEW.csv -o predictions.csv")


@app.command(epilog="Example: collegium coordinator status consortium --json")
def status(
    folder: Annotated[Path, typer.Argument(help="The consortium's folder, or its TOML file.", show_default=False)],
    study: StudyName = None,
    as_json: AsJson = False,
) -> None:
    """Print who takes part, the rounds, the labels, the privacy spent and left, and the last failures."""
    from collegium.coordinator.watching.consortium_status import consortium_status

    place = read_consortium(folder).consortium.folder if folder.is_file() else folder
    if not place.is_dir():
        raise StorageError(f"{place} is no folder of a consortium: run collegium provision first")
    found = consortium_status(ConsortiumFolder(place, study), utc_now())
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
    else:
        _show(found)


def _show(found: dict[str, Any]) -> None:
    console = Console(highlight=False)
    served = "served now" if found["served"] else "not served now"
    console.print(f"{found['consortium']}: {found['state']} ({served})", markup=False)
    table = Table("party", "membership", "connected", "certificate", "answered")
    for name, party in found["parties"].items():
        days = party["certificate_days_left"]
        table.add_row(
            name,
            party["membership"],
            "yes" if party["connected"] else "no",
            "–" if days is None else f"{days} days left",
            f"{party['rounds_answered']} of {party['rounds_asked']} rounds",
        )
    console.print(table)
    privacy = found["privacy"]
    wanted = "" if found["queries"] is None else f" of {found['queries']} queries"
    console.print(f"rounds   {found['rounds']}")
    console.print(f"labels   {privacy['labels']}{wanted}, {privacy['abstentions']} abstentions")
    if privacy["epsilon_budget"] is not None:
        console.print(
            f"ε        {epsilon_text(privacy['epsilon_spent'])} spent, {privacy['epsilon_left']:.4f} left, for one "
            f"{privacy['unit']}" + ("" if privacy["delta"] is None else f" (δ = {privacy['delta']:g})")
        )
    for failure in found["last_failures"]:
        console.print(f"failed   {failure['when']}, {failure['party']}: {failure['outcome']}", markup=False)
