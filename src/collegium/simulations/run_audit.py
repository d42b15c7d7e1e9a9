"""An audit of a whole run: how strongly canaries show in what it released, against the ε that its ledger states.

What a canary contributes is what the party's own code makes of a data set that holds it alone. `analysis.one_run` has
the statistics.
"""

import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from collegium.coordinator.journal import Journal, Name, Released
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.surroundings import OnProgress, Progress
from collegium.data import PoolStore
from collegium.data import data_root as find_data_root
from collegium.errors import DataError
from collegium.parties.answer_book import AnswerBook
from collegium.parties.kind import Asked, Institution, party_kinds
from collegium.parties.policy import PolicyConfig
from collegium.parties.teachers.ensemble import TeacherEnsemble
from collegium.privacy.ledger.reading import LedgerReader
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.question import RecordsQuestion
from collegium.simulations.progress import RunProgress
from collegium.simulations.rehearsal import Rehearsal, rehearse
from collegium_accounting.analysis.one_run import epsilon_of, strength
from collegium_accounting.game.laws import Law, block_epsilon
from collegium_accounting.renyi import FloatArray

_ALONE = 200
"""How many canaries are asked about one by one: their lengths say what one of them contributes."""


@dataclass(frozen=True)
class AuditedKind:
    """What an audit says of one kind of release.

    Parameters
    ----------
    kind : what was released, by its name in the ledger; ``rounds`` how often.
    epsilon_stated : by the ledger, for what was charged for it.
    epsilon_of_canaries : what the canaries cost if all is as it should be. All parties' noise counts here, and not that
        of the honest ones alone; and in later rounds contributions are shorter than they may be.
    epsilon_lower_bound : what they cost at least; all bounds of an audit hold together at the stated probability.
    noise_found : the standard deviation of the noise, in parts of what the release says of it.
    """

    kind: str
    rounds: int
    canaries: int
    epsilon_stated: float
    epsilon_of_canaries: float
    epsilon_lower_bound: float
    noise_found: float

    @property
    def refuted(self) -> bool:
        """Whether the lower bound is above the stated ε."""
        return self.epsilon_lower_bound > self.epsilon_stated


@dataclass(frozen=True)
class RunAudit:
    """An audit of a run; `seconds` are those of rehearsal and audit together."""

    kinds: tuple[AuditedKind, ...]
    delta: float
    processes: bool
    seconds: float

    @property
    def refuted(self) -> tuple[AuditedKind, ...]:
        """The kinds whose stated ε is too small."""
        return tuple(one for one in self.kinds if one.refuted)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        kinds = [asdict(one) | {"refuted": one.refuted} for one in self.kinds]
        return asdict(self) | {"kinds": kinds}


def audit_run(
    path: Path,
    *,
    canaries: int = 3000,
    processes: bool = False,
    data_root: Path | None = None,
    failure: float = 0.05,
    on_progress: OnProgress = lambda step: None,
) -> RunAudit:
    """Rehearse the configuration at ``path`` and measure what it released; see `rehearsal.rehearse` for errors."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="collegium-audit-") as folder:
        base = Path(folder).resolve()
        rehearsed = rehearse(path, base, canaries, processes=processes, data_root=data_root, on_progress=on_progress)
        kinds = tuple(audited(rehearsed, failure, on_progress))
    return RunAudit(kinds, rehearsed.run.config.budget.delta, processes, round(time.monotonic() - started, 1))


def show(path: Path, canaries: int, *, processes: bool, data_root: Path | None, as_json: bool) -> None:
    """Audit the run of a configuration and print a table, or one JSON object; exit with 1 where an ε is refuted."""
    root = find_data_root(data_root)
    with RunProgress(Console(stderr=True)) as progress:
        found = audit_run(path, canaries=canaries, processes=processes, data_root=root, on_progress=progress)
    if as_json:
        typer.echo(json.dumps(found.as_dict(), ensure_ascii=False))
    else:
        table = Table("released", "ε stated", "ε of the canaries", "at least (95 %)", "noise found", "canaries")
        for one in found.kinds:
            name = one.kind if one.rounds == 1 else f"{one.kind}, {one.rounds} rounds"
            epsilons = (one.epsilon_stated, one.epsilon_of_canaries, one.epsilon_lower_bound, one.noise_found)
            table.add_row(name, *(f"{value:.3f}" for value in epsilons), f"{one.canaries:,}")
        where = "as processes, over TLS" if processes else "in one process"
        Console().print(table)
        Console().print(f"δ = {found.delta:g}; {found.seconds:.0f} s, parties {where}", highlight=False)
    for one in found.refuted:
        stated, least = one.epsilon_stated, one.epsilon_lower_bound
        typer.echo(f"refuted: {one.kind} states ε {stated:.3f}, and cost at least {least:.3f}", err=True)
    if found.refuted:
        raise typer.Exit(1)


def audited(
    rehearsed: Rehearsal, failure: float = 0.05, on_progress: OnProgress = lambda step: None
) -> Iterator[AuditedKind]:
    """Each kind of vector that the rehearsal released; all bounds hold but for the probability ``failure``."""
    run, delta = rehearsed.run, rehearsed.run.config.budget.delta
    stated, released = _stated(run.folder), _released(rehearsed)
    for purpose, rounds in released.items():
        halves, coined, products = _of_canaries(rehearsed, [question for question, _ in rounds], on_progress)
        values = np.stack([one.values for _, one in rounds])
        noise = np.array([one.noise for _, one in rounds])
        found = strength(values.astype(np.float64), halves, coined, products, failure / len(released))
        yield AuditedKind(
            purpose.replace("_", " "),
            len(rounds),
            len(rehearsed.canaries),
            block_epsilon(stated[purpose], delta),
            epsilon_of(math.sqrt(float((np.diag(products) / noise**2).sum())), delta),
            epsilon_of(found.mu, delta),
            float(np.sqrt(np.mean(np.square(found.noise / noise)))),
        )


def _stated(folder: Path) -> dict[str, dict[Law, int]]:
    """The rounds of each law that the ledger was charged with, by their purpose."""
    found: dict[str, dict[Law, int]] = {}
    with LedgerReader.read(RunFolder(folder).ledger) as ledger:
        for terms, charged in ledger.charged():
            for purpose, count in charged.items():
                if laws := terms.blocks[purpose].laws:  # empty where another block pays
                    own = found.setdefault(purpose.partition(" of ")[0], {})
                    own[laws[terms.unit]] = own.get(laws[terms.unit], 0) + count
    return found


def _released(rehearsed: Rehearsal) -> dict[str, list[tuple[RecordsQuestion, Released]]]:
    """What was released for each question about records, by its purpose in the ledger and its length, in order."""
    about_records = [question for question in rehearsed.questions if isinstance(question, RecordsQuestion)]
    found: dict[str, list[tuple[RecordsQuestion, Released]]] = {}
    journal = Journal(rehearsed.run.folder)
    for question in about_records:
        for name in journal.names():
            if (purpose := _purpose(name, question)) and (released := journal.released(name)) is not None:
                found.setdefault(purpose, []).append((question, released))
    return found


def _purpose(name: Name, question: RecordsQuestion) -> str | None:
    """What the ledger calls this release, if it is the answer to the question."""
    if name.about:
        return name.charged.split("|")[1] if name.about == question.asked.hex() else None
    of_sums = isinstance(question, SumClasses) and json.loads(name.charged)[0] == question.number
    return "sums" if of_sums else None


def _of_canaries(
    rehearsed: Rehearsal, questions: list[RecordsQuestion], on_progress: OnProgress
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Half of what all canaries contribute, w, and the mean products, as `one_run.strength` takes them.

    Raises DataError where some canaries together contribute something else than each of them alone.
    """
    answer, everyone = _answers(rehearsed, questions), np.arange(len(rehearsed.canaries))
    some = everyone[:_ALONE]
    alone = []
    for number in some:
        alone.append(answer(some[[number]]))
        on_progress(Progress("canaries", len(alone), len(some)))
    if not np.array_equal(np.sum(alone, axis=0), answer(some)):
        raise DataError(f"records count otherwise together than alone in answers of the kind {questions[0].kind}")
    halves = answer(everyone) / 2.0
    lengths = np.array(alone, dtype=np.float64)
    products = np.einsum("itl,isl->ts", lengths, lengths) / len(some)
    return halves, answer(np.flatnonzero(rehearsed.present)) - halves, products


def _answers(
    rehearsed: Rehearsal, questions: list[RecordsQuestion]
) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """What a party answers that holds these canaries, ``[questions, entries]``, by the canaries' numbers."""
    config, pools = rehearsed.run.config, PoolStore(rehearsed.run.folder / "pools")

    def no_teachers(settings: object) -> TeacherEnsemble:
        raise AssertionError("questions about all records ask no teachers")

    book = AnswerBook(None, "canary", PolicyConfig(), None)
    own = Institution(
        "canary", rehearsed.canaries, config.task, pools, bytes(32), None, "cpu", no_teachers, lambda: book, 0.0
    )

    def answer(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        kind = party_kinds()[questions[0].kind](replace(own, examples=rehearsed.canaries.take(numbers)))
        return np.concatenate([kind.compute(one, Asked("audit", one.name)) for one in questions])

    return answer
