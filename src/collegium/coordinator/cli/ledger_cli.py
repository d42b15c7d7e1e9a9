"""`collegium ledger show | verify`: what was charged and released, and whether the record is whole."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from collegium.coordinator.cli.options import AsJson
from collegium.coordinator.report.page import rendered
from collegium.coordinator.run.run_folder import ledger_of
from collegium.data.texts import counted
from collegium.errors import ConfigurationError
from collegium.privacy.ledger.chain import Entry, Head
from collegium.privacy.ledger.entry import ABSTENTION, Charge, Release, Terms, encode
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verification import Verification, verify_ledger
from collegium.protocol.certificates import read_certificate, read_subject
from collegium.whole_files import read_whole
from collegium_accounting.terminal import epsilon_text

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Show or verify the charges of a run, with hash chain and signatures.",
)

LedgerPath = Annotated[Path, typer.Argument(help="A ledger.sqlite, or the folder of a run that holds one.")]
Chain = Annotated[
    Literal["", "party", "record"],
    typer.Option(help="In a party's answer-book.sqlite: its own ledger, or that of what it cost any one record."),
]


@app.command(epilog="Example: collegium ledger show runs/first")
def show(path: LedgerPath, chain: Chain = "", as_json: AsJson = False) -> None:
    """List every charge and release, with ε after each. The chain is checked on the way."""
    with Ledger.read(_file(path), chain=chain) as ledger:
        settings, entries = ledger.settings, list(ledger.entries())
    if as_json:
        shown = asdict(settings) | {"public_key": settings.public_key.hex()}
        typer.echo(json.dumps(shown | {"entries": [_entry_json(entry) for entry in entries[1:]]}))
        return
    table = Table(title=f"{settings.name}, δ = {settings.delta:g}")
    for column in ("entry", "time (UTC)", "what", "queries", "labels", "ε after"):
        words = column in ("time (UTC)", "what")
        table.add_column(column, justify="left" if words else "right", no_wrap=column != "what")
    for entry in entries[1:]:
        what, queries, labels = "", "", ""
        if isinstance(entry.content, Charge):
            what = entry.content.purpose
            queries = str(entry.content.queries)
        elif isinstance(entry.content, Terms):
            what = f"terms: {_terms_text(json.loads(encode(entry.content, '')))}"
        elif isinstance(entry.content, Release):
            what, labels = f"release under entry {entry.content.charge}", str(len(entry.content.labels))
        table.add_row(str(entry.seq), entry.time_utc[:19], what, queries, labels, epsilon_text(entry.spent))
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
        typer.Option(help="The key that signed: a certificate of the consortium (.pem), or 64 hex digits."),
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="A head printed earlier (NUMBER:HASH). The ledger must still hold that entry.")
    ] = None,
    chain: Chain = "",
    as_json: AsJson = False,
) -> None:
    """Walk the whole chain, and compute ε from its entries alone; exit with status 8 and the first bad entry, if any.

    The walk is a second implementation, which shares only the file's format with the ledger.
    """
    key = None if public_key is None else public_key_of(public_key)
    held = verify_ledger(_file(path), key, None if head is None else Head.parse(head), chain)
    if as_json:
        shown = _report_json(held, key_checked=key is not None, head_checked=head is not None)
        shown["followed_by"] = {
            party: [public.hex(), followed] for party, (public, followed, *_) in held.witnesses.items()
        }
        typer.echo(json.dumps(shown))
        return
    text = rendered(
        "coordinator.cli",
        "verified.txt.j2",
        held=held,
        found=held.found,
        delta=float.fromhex(held.found.settings["delta"]),
        terms_text=_terms_text,
        key_checked=key is not None,
        head_checked=head is not None,
    )
    typer.echo(text)


def _file(path: Path) -> Path:
    """The ledger that a path stands for: the file itself, or for a folder of a run the one that its charges are in."""
    return ledger_of(path) if path.is_dir() else path


def public_key_of(text: str) -> bytes:
    """What ``--public-key`` names: 32 bytes from hex digits, or the signing key that a certificate binds."""
    if text.endswith(".pem"):
        return read_subject(read_certificate(read_whole(Path(text)))).signing_key
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ConfigurationError("--public-key takes a certificate (.pem) or an Ed25519 key of 64 hex digits")
    return key


def _terms_text(terms: Mapping[str, Any]) -> str:
    """Terms as their entry's line says them."""
    mechanism = ", ".join(f"{name} {value}" for name, value in sorted(terms["mechanism"].items()))
    votes = ", ".join(f"{count} of one {unit}" for unit, count in sorted(terms["votes_per_unit"].items()))
    budget, blocks = terms["epsilon_budget"], terms["blocks"]
    limit = "no budget" if budget is None else f"budget ε = {float.fromhex(budget):g}"
    limited = {name: block["rounds"] for name, block in blocks.items() if block["rounds"] is not None}
    rounds = [f"{counted(most, 'round', 'rounds')} of {name}" for name, most in limited.items()]
    most = f"; at most {', '.join(rounds)}" if rounds else ""
    unit = f"{terms['unit']} ({terms['adjacency']})"
    noise = terms["noise"]
    if terms["honest_survivors"]:
        noise += f", added by the parties, at least {terms['honest_survivors']} honest ones in any sum"
    return f"{limit} per {unit}{most}; votes: {votes}; noise: {noise}; {mechanism or 'any mechanism'}"


def _number(value: float) -> float | None:
    """JSON knows no infinity: null stands for it."""
    return value if math.isfinite(value) else None


def _entry_json(entry: Entry) -> dict[str, object]:
    shared: dict[str, object] = {
        "entry": entry.seq,
        "hash": entry.hash.hex(),
        "spent": {"epsilon": _number(entry.spent)},
    }
    shared |= json.loads(encode(entry.content, entry.time_utc))
    if isinstance(entry.content, Terms):
        shared["epsilon_budget"] = entry.content.epsilon_budget
    if isinstance(entry.content, Release):
        labels = entry.content.labels
        shared |= {"labels": len(labels), "abstentions": sum(label == ABSTENTION for label in labels.values())}
    return shared


def _report_json(held: Verification, *, key_checked: bool, head_checked: bool) -> dict[str, object]:
    found = held.found
    return {
        "name": found.settings["name"],
        "entries": len(found.heads),
        "charges": len(found.charges),
        "queries_charged": held.queries,
        "labels": held.labels,
        "delta": float.fromhex(found.settings["delta"]),
        "spent": [
            {"unit": unit, "adjacency": adjacency, "epsilon": _number(epsilon)}
            for (unit, adjacency), epsilon in held.epsilons.items()
        ],
        "unit": found.periods[-1][0]["unit"],
        "seeded": found.periods[-1][0]["noise"] == "seeded",
        "terms": [terms | {"queries_charged": queries} for terms, queries in found.periods],
        "head": found.heads[-1],
        "head_checked": head_checked,
        "public_key": found.settings["public_key"],
        "public_key_checked": key_checked,
    }
