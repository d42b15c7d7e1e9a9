"""`collegium ledger show | verify`: what was charged and released, and whether the record is whole."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from collegium.errors import ConfigurationError, StorageError
from collegium.privacy.ledger.audit import VerifyReport
from collegium.privacy.ledger.chain import Entry, Head
from collegium.privacy.ledger.entry import ABSTENTION, Charge, Release, Settings
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.renyi import Epsilon
from collegium.protocol.certificates import read_certificate, read_subject

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Every charge of a run, and the hash chain and signatures over them.",
)

LedgerPath = Annotated[Path, typer.Argument(help="A ledger.sqlite, or the folder of a run that holds one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command(epilog="Example: collegium ledger show runs/first")
def show(path: LedgerPath, as_json: AsJson = False) -> None:
    """List every charge and release, with ε after each. The chain is checked on the way."""
    with Ledger.read(_file(path)) as ledger:
        settings, entries = ledger.settings, list(ledger.entries())
    if as_json:
        typer.echo(json.dumps(_settings_json(settings) | {"entries": [_entry_json(entry) for entry in entries[1:]]}))
        return
    table = Table(title=f"{settings.name}, δ = {settings.delta:g}, {settings.conversion} conversion")
    for column in ("entry", "time (UTC)", "what", "queries", "labels", "ε after"):
        words = column in ("time (UTC)", "what")
        table.add_column(column, justify="left" if words else "right", no_wrap=column != "what")
    for entry in entries[1:]:
        what, queries, labels = "", "", ""
        if isinstance(entry.content, Charge):
            parameters = ", ".join(f"{name} {value}" for name, value in sorted(entry.content.mechanism.items()))
            what = entry.content.purpose + (f" ({parameters})" if parameters else "")
            queries = str(entry.content.queries)
        elif isinstance(entry.content, Release):
            what, labels = f"release under entry {entry.content.charge}", str(len(entry.content.labels))
        table.add_row(str(entry.seq), entry.time_utc[:19], what, queries, labels, f"{entry.spent.epsilon:.4f}")
    console = Console(highlight=False)
    console.print(table)
    console.print(f"head {entries[-1].seq}:{entries[-1].hash.hex()}", soft_wrap=True)


@app.command(
    epilog="Example: collegium ledger verify runs/first --public-key coordinator/certificate.pem --head 12:5f0c…"
)
def verify(
    path: LedgerPath,
    public_key: Annotated[
        str | None,
        typer.Option(help="Who must have signed: a certificate issued at enrolment (.pem), or 64 hex digits."),
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="A head printed earlier (SEQ:HASH): the ledger must still hold that entry.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Walk the whole chain; exit with status 8 and the first bad entry where there is one."""
    key = None if public_key is None else _public_key(public_key)
    with Ledger.read(_file(path)) as ledger:
        report = ledger.verify(key, None if head is None else Head.parse(head))
    if as_json:
        typer.echo(json.dumps(_report_json(report, head_checked=head is not None)))
        return
    typer.echo(f"{report.entries} entries agree: {report.queries_charged} queries in {report.charges} charges")
    typer.echo(f"{report.labels} labels, ε = {report.spent.epsilon:.4f} at δ = {report.spent.delta:g}")
    typer.echo(_signature_text(report))
    if head is None:
        typer.echo("entries cut off the end would not show: compare --head with the one in an earlier report")
    typer.echo(f"head {report.head}")


def _file(path: Path) -> Path:
    return path / "ledger.sqlite" if path.is_dir() else path


def _public_key(text: str) -> bytes:
    """32 bytes from hex digits, or the signing key that a certificate binds."""
    if text.endswith(".pem"):
        try:
            pem = Path(text).read_bytes()
        except OSError as error:
            raise StorageError(f"the certificate {text} cannot be read: {error.strerror}") from None
        return read_subject(read_certificate(pem)).signing_key
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ConfigurationError("--public-key takes a certificate (.pem) or an Ed25519 key of 64 hex digits")
    return key


def _signature_text(report: VerifyReport) -> str:
    if not report.public_key:
        return "not signed: the chain only agrees with itself"
    if report.key_is_known:
        return f"signed throughout by the given key {report.public_key.hex()}"
    return f"signed throughout by {report.public_key.hex()}, as the ledger itself states: compare --public-key"


def _number(value: float) -> float | None:
    """JSON knows no infinity: null stands for it."""
    return value if math.isfinite(value) else None


def _spent_json(spent: Epsilon) -> dict[str, object]:
    return {"epsilon": _number(spent.epsilon), "order": spent.order}


def _settings_json(settings: Settings) -> dict[str, object]:
    return {
        "name": settings.name,
        "delta": settings.delta,
        "conversion": settings.conversion.value,
        "orders": list(settings.orders),
        "filter_order": settings.filter_order,
        "public_key": settings.public_key.hex(),
    }


def _entry_json(entry: Entry) -> dict[str, object]:
    shared: dict[str, object] = {
        "entry": entry.seq,
        "time_utc": entry.time_utc,
        "hash": entry.hash.hex(),
        "spent": _spent_json(entry.spent),
    }
    if isinstance(entry.content, Charge):
        return shared | {
            "kind": "charge",
            "purpose": entry.content.purpose,
            "mechanism": dict(entry.content.mechanism),
            "queries": entry.content.queries,
            "queries_sha256": entry.content.queries_sha256,
            "curve": [_number(float(value)) for value in entry.content.curve.values],
            "curve_delta": entry.content.curve.delta,
            "epsilon_budget": entry.content.epsilon_budget,
        }
    assert isinstance(entry.content, Release)  # settings are the first entry alone
    labels = entry.content.labels
    return shared | {
        "kind": "release",
        "charge": entry.content.charge,
        "labels": len(labels),
        "abstentions": sum(label == ABSTENTION for label in labels.values()),
    }


def _report_json(report: VerifyReport, *, head_checked: bool) -> dict[str, object]:
    return {
        "name": report.name,
        "entries": report.entries,
        "charges": report.charges,
        "queries_charged": report.queries_charged,
        "labels": report.labels,
        "delta": report.spent.delta,
        "spent": _spent_json(report.spent),
        "head": str(report.head),
        "head_checked": head_checked,
        "public_key": report.public_key.hex(),
        "public_key_checked": report.key_is_known,
    }
