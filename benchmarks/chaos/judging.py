"""Whether a run under faults kept its promises: labels, ledger, ε, processes, files. Violations as lines of text."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import dp_accounting
from dp_accounting.rdp import RdpAccountant

from benchmarks.chaos.outcome import Outcome
from collegium.coordinator.run.run_folder import RunFolder, read_labels, read_run
from collegium.coordinator.run.run_record import reached
from collegium.coordinator.selection.queries import query_key
from collegium.errors import CollegiumError
from collegium.parties.answer_book import FILE
from collegium.privacy.ledger.chain import Entry
from collegium.privacy.ledger.entry import Charge, Release, queries_digest
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.protocol.identities import Credentials
from collegium_accounting.renyi import WIDE_ORDERS

if TYPE_CHECKING:
    from benchmarks.chaos.consortium import Consortium

_LEFT_OVER = re.compile(
    r"^\.(?!((serving|members|roster|exact-sums)\.)?lock$|(party|policy|consortium|study)\.schema\.json$)|\.(tmp|partial|new)$|^tmp"
)
"""Names that files have only while they are being written."""
_ROUNDING = 1e-9


def judge(scene: Consortium, outcome: Outcome) -> list[str]:
    """Everything that is wrong with how a run ended; also notes its labels and charges in ``outcome``."""
    found = []
    with Ledger.read(scene.kept.ledger) as ledger:
        key = Credentials.load(scene.kept.identity, "coordinator").subject.signing_key
        report = verify(ledger.path, key)
        labels, entries = ledger.labels(), list(ledger.entries())
        epsilon, delta = ledger.epsilon(), ledger.settings.delta
    outcome.labels, outcome.queries_charged = len(labels), sum(charged for _, charged in report.periods)
    pool = _pool(scene)
    found += wrong_labels(labels, dict(zip(pool, scene.truth, strict=True)))
    found += forgotten_labels(labels, outcome.labels_seen)
    found += unpaid_labels(entries)
    found += undercounted(epsilon, delta, labels, scene_sigma(entries))
    found += wrong_end(scene.stop_condition.kind, outcome, len(labels), len(set(pool)), scene.allowed)
    if outcome.state == "finished":
        if outcome.queries_charged != len(labels):
            found.append(f"paid for {outcome.queries_charged} queries to give {len(labels)} labels")
        given = dict(read_labels(scene.kept.run / "labels.csv"))
        if given != {at: labels.get(query) for at, query in enumerate(pool)}:
            found.append("labels.csv is not what the ledger released")
        stopped = str(reached(read_run(scene.kept.run).labels).stopped)
        if (len(labels) < len(set(pool))) != ("raise budget.epsilon" in stopped):
            found.append(f"{len(labels)} of {len(set(pool))} labels, and the run says of its end: {stopped}")
    found += parties_undercounted(scene, len(report.charges))
    found += left_files(scene.folder, scene.scratch)
    found += left_processes(str(scene.folder), {os.getpid()})
    found += tracebacks(sorted((scene.folder / "logs").iterdir()))
    return found


def wrong_end(kind: str, outcome: Outcome, labels: int, inputs: int, allowed: int) -> list[str]:
    """Whether a run ended as it was bound to.

    Parameters
    ----------
    labels, inputs, allowed : labels given; distinct inputs of the pool; labels after which it was to end.
    """
    stops = [line for line in outcome.clean_stops if line.startswith("coordinator: ")]
    last = stops[-1] if stops else ""
    match kind:
        case "every label":  # a run that faults stopped more often than anybody starts it again has stopped cleanly
            right = labels == inputs if outcome.state == "finished" else outcome.state == "stopped"
        case "budget spent":
            right = outcome.state == "finished" and labels == allowed
        case "policies exhausted":  # two parties that take turns answer twice what one does
            right = outcome.state == "stopped" and "QuorumNotReached" in last and 0 < labels <= 2 * allowed
        case _:
            right = outcome.state == "stopped" and "Interrupted" in last and allowed <= labels < inputs
    return [] if right else [f"{kind}: {outcome.state} with {labels} of {inputs} labels, {allowed} were due; {last}"]


def _pool(scene: Consortium) -> list[str]:
    """Keys of the pool's inputs; equal inputs have one."""
    from collegium.coordinator.settings.run_config import load_public

    return [query_key(row) for row in load_public(scene.config.run, scene.config.consortium.data_root).pool.x]


def wrong_labels(labels: Mapping[str, int], truth: Mapping[str, int]) -> list[str]:
    wrong = [query for query, label in labels.items() if truth.get(query) != label]
    return [f"{len(wrong)} labels are wrong"] if wrong else []


def forgotten_labels(labels: Mapping[str, int], seen: Sequence[Mapping[str, int]]) -> list[str]:
    """Labels that the ledger held once and holds otherwise, or no more."""
    changed = {query for held in seen for query, label in held.items() if labels.get(query) != label}
    return [f"{len(changed)} labels were forgotten or changed after a crash"] if changed else []


def unpaid_labels(entries: Iterable[Entry]) -> list[str]:
    """Every release is the batch that one charge before it names; no batch is paid twice, no label given twice."""
    found: list[str] = []
    charges: dict[int, Charge] = {}
    used: set[int] = set()
    given: set[str] = set()
    for entry in entries:
        content = entry.content
        if isinstance(content, Charge):
            charges[entry.seq] = content
        elif isinstance(content, Release):
            charge = charges.get(content.charge)
            if charge is None:
                found.append(f"entry {entry.seq} releases labels before any charge")
            elif len(content.labels) != charge.queries or not _names(charge, content):
                found.append(f"entry {entry.seq} releases other labels than entry {content.charge} paid for")
            if content.charge in used:
                found.append(f"entry {entry.seq} releases under entry {content.charge} again")
            if twice := given & set(content.labels):
                found.append(f"entry {entry.seq} gives {len(twice)} labels again")
            used.add(content.charge)
            given |= set(content.labels)
    return found


def _names(charge: Charge, release: Release) -> bool:
    """The digest is over the keys in the order of asking, which a release does not keep: batches here are of one or
    two queries, so both orders are tried."""
    keys = list(release.labels)
    return charge.queries_sha256 in (queries_digest(keys), queries_digest(keys[::-1]))


def scene_sigma(entries: Iterable[Entry]) -> float:
    """The noise that the charges state."""
    sigmas = {float(e.terms.mechanism["sigma"]) for e in entries if isinstance(e.content, Charge)}
    return max(sigmas, default=1.0)


def undercounted(epsilon: float, delta: float, labels: Mapping[str, int], sigma: float) -> list[str]:
    """ε of the ledger against that of all released labels by another accountant (dp-accounting's Rényi one).

    One vote that moves changes the histogram by √2, so a label is a Gaussian mechanism of multiplier σ/√2.
    """
    if not labels:
        return []
    accountant = RdpAccountant(orders=WIDE_ORDERS)
    accountant.compose(dp_accounting.GaussianDpEvent(sigma / 2**0.5), len(labels))
    due = accountant.get_epsilon(delta)
    if epsilon >= due * (1 - _ROUNDING):
        return []
    return [f"the ledger counts ε = {epsilon:.6g}, its {len(labels)} labels cost {due:.6g}"]


def parties_undercounted(scene: Consortium, charged: int) -> list[str]:
    """Every party's own account holds at least the rounds in which the coordinator had its answer.

    The coordinator ``charged`` so many rounds. A round that a crash cut short is asked once more by the same request:
    it has one charge, and is one answer of each party that may have answered both times.
    """
    found = []
    run = RunFolder(scene.kept.run).read()
    for name in scene.names:
        state = scene.folder / name / "state"
        rounds = 0
        if run is not None and name in run.parties:
            asked = [one.round_id for one in run.rounds if name not in one.failed]
            again = len(asked) - len(set(asked))
            rounds = min(charged, run.parties[name].rounds_answered - again)
        try:
            charges = len(verify(state / FILE, chain="party").charges)
            with closing(sqlite3.connect(state / FILE)) as database:
                answers = database.execute("SELECT COALESCE(SUM(times), 0) FROM answered").fetchone()[0]
        except (CollegiumError, sqlite3.Error) as error:
            found.append(f"the account of {name}: {error}")
            continue
        if min(charges, answers) < rounds:
            found.append(f"{name} counts {charges} charges and {answers} answers for {rounds} rounds that it answered")
    return found


def left_files(folder: Path, scratch: Path) -> list[str]:
    """Files that are only there while another is being written, and whatever lies in the processes' TMPDIR."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    left = [path for path in files if _LEFT_OVER.search(path.name) or scratch in path.parents]
    return [f"left behind: {path.relative_to(folder)}" for path in sorted(left)]


def left_processes(folder: str, but: set[int]) -> list[str]:
    """Processes that have this folder in their command line, or run in it or below."""
    found = []
    for entry in Path("/proc").iterdir():
        here = ""
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            with suppress(OSError):  # another user's
                here = os.readlink(entry / "cwd")
        except (OSError, ValueError):
            continue
        if not entry.name.isdigit() or int(entry.name) in but:
            continue
        if folder in command or Path(here).is_relative_to(folder):
            found.append(f"still running: {command[:200]}")
    return found


def tracebacks(logs: Iterable[Path]) -> list[str]:
    """Logs with an error in them that nobody foresaw."""
    found = []
    for path in logs:
        text = path.read_text(encoding="utf-8", errors="replace")
        if "Traceback" in text or '"exception"' in text or "AssertionError" in text:
            found.append(f"{path.name} holds an error that nobody foresaw")
    return found
