"""An audit of a whole run: how strongly canaries show in what it released, against the ε that its ledger states.

What a canary contributes is what the party's own code makes of a data set that holds it alone; how many votes each
class has is what it makes of each party's. `analysis.one_run` has the statistics.
"""

import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from collegium.coordinator.journal import Journal, Name, Released
from collegium.coordinator.noise import noise_on_entries
from collegium.coordinator.run.factories import configured_mechanism
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.surroundings import OnProgress, Progress
from collegium.coordinator.selection.queries import query_key
from collegium.data import Examples, PoolStore, load
from collegium.data import data_root as find_data_root
from collegium.data.task import TeacherSettings
from collegium.errors import DataError
from collegium.parties.answer_book import AnswerBook
from collegium.parties.kind import Asked, Institution, party_kinds
from collegium.parties.policy import PolicyConfig
from collegium.parties.teachers.ensemble import TeacherEnsemble
from collegium.parties.teachers.splits import load_or_create_key
from collegium.privacy.ledger.reading import LedgerReader
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.question import Question, RecordsQuestion
from collegium.simulations.cohort import PreparedRun, virtual_party
from collegium.simulations.progress import RunProgress
from collegium.simulations.rehearsal import Rehearsal, rehearse, votes_are_audited
from collegium_accounting.analysis.one_run import epsilon_of, epsilon_of_outcomes, label_noise, outcomes_of, strength
from collegium_accounting.game.laws import Law, block_epsilon
from collegium_accounting.mechanisms import Mechanism
from collegium_accounting.mechanisms.gaussian_stage import GaussianLabels
from collegium_accounting.mechanisms.labels import ABSTAIN, LabelMechanism, LabelRule, LabelStage, Threshold
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import Adjacency, IntArray

_ALONE = 200
"""How many canaries are asked about one by one: their lengths say what one of them contributes."""

_PAIRS = 13
"""How many pairs of neighbouring counts are tried."""

_VOTING_ALONE = 20
"""How many canaries vote one by one."""


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
    noise_shared : whether votes on several inputs had the same noise, or noise that is alike.
    """

    kind: str
    rounds: int
    canaries: int
    epsilon_stated: float
    epsilon_of_canaries: float
    epsilon_lower_bound: float
    noise_found: float
    noise_shared: bool = False

    @property
    def refuted(self) -> bool:
        """Whether the lower bound is above the stated ε, or noise is not drawn anew as that ε supposes."""
        return self.noise_shared or self.epsilon_lower_bound > self.epsilon_stated


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
        shared = ", with noise that several inputs share" if one.noise_shared else ""
        typer.echo(f"refuted: {one.kind} states ε {stated:.3f}, and cost at least {least:.3f}{shared}", err=True)
    if found.refuted:
        raise typer.Exit(1)


def audited(
    rehearsed: Rehearsal, failure: float = 0.05, on_progress: OnProgress = lambda step: None
) -> Iterator[AuditedKind]:
    """Each kind of vector that the rehearsal released; all bounds hold but for the probability ``failure``."""
    run, delta = rehearsed.run, rehearsed.run.config.budget.delta
    stated, released = _stated(run.folder), _released(rehearsed)
    votes = _Votes.of(rehearsed, stated)
    failure /= max(len(released) + len(votes.stages), 1)
    for (purpose, _), rounds in released.items():
        halves, coined, products = _of_canaries(rehearsed, [question for question, _ in rounds], on_progress)
        values = np.stack([one.values for _, one in rounds])
        noise = np.array([one.noise for _, one in rounds])
        found = strength(values.astype(np.float64), halves, coined, products, failure)
        yield AuditedKind(
            purpose.replace("_", " "),
            len(rounds),
            len(rehearsed.canaries),
            block_epsilon(stated[purpose], delta),
            epsilon_of(math.sqrt(float((np.diag(products) / noise**2).sum())), delta),
            epsilon_of(found.mu, delta),
            float(np.sqrt(np.mean(np.square(found.noise / noise)))),
        )
    for stage in votes.stages:
        yield votes.audited(stage, stated[stage.name], failure, delta)


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


def _released(rehearsed: Rehearsal) -> dict[tuple[str, int], list[tuple[RecordsQuestion, Released]]]:
    """What was released for each question about records, by its purpose in the ledger and its length, in order."""
    about_records = [question for question in rehearsed.questions if isinstance(question, RecordsQuestion)]
    found: dict[tuple[str, int], list[tuple[RecordsQuestion, Released]]] = {}
    journal = Journal(rehearsed.run.folder)
    for question in about_records:
        for name in journal.names():
            if (purpose := _purpose(name, question)) and (released := journal.released(name)) is not None:
                found.setdefault((purpose, question.length), []).append((question, released))
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
    own, everyone = _institution(rehearsed.run, "canary", rehearsed.canaries), np.arange(len(rehearsed.canaries))

    def answer(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """What a party answers that holds these canaries, ``[questions, entries]``."""
        return _computed(replace(own, examples=rehearsed.canaries.take(numbers)), questions)

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


@dataclass(frozen=True, eq=False)
class _Votes:
    """The votes on inputs, and what was released of them.

    Parameters
    ----------
    stages : that released something; the last one also of queries that the others passed on.
    counts : of all parties before any noise, ``[queries, classes]``; ``labels`` ``[queries]`` what followed.
    places : the round of each query and its place there, ``[queries, 2]``.
    one : what one vote is at most, in the units of the counts.
    """

    mechanism: Mechanism
    stages: tuple[LabelStage, ...]
    counts: IntArray
    labels: IntArray
    places: IntArray
    one: int
    parties: int

    @classmethod
    def of(cls, rehearsed: Rehearsal, stated: Mapping[str, object]) -> "_Votes":
        """Of what the parties were asked about inputs; of nothing where they were not, or it is not audited."""
        run, pool = rehearsed.run, rehearsed.run.public.pool.x
        mechanism, places = configured_mechanism(run.config), list[tuple[int, int, int]]()
        asked = [one for one in rehearsed.questions if one.queries is not None] if votes_are_audited(run.config) else []
        for round_, question in enumerate(asked):
            assert question.queries is not None  # see above
            places += [(round_, place, index) for place, index in enumerate(question.queries.indices)]
        nothing = np.zeros(0, dtype=np.int64)
        if not asked or not isinstance(mechanism, LabelMechanism):
            return cls(mechanism, (), nothing[:, None], nothing, nothing[:, None], 0, 0)
        counts, one = _votes_cast(rehearsed, asked)
        with LedgerReader.read(RunFolder(run.folder).ledger) as ledger:
            released = ledger.labels()
        # An input that was asked about again has the same votes.
        number_of = {query_key(pool[index]): number for number, (*_, index) in reversed([*enumerate(places)])}
        numbers = [number for key, number in number_of.items() if key in released]
        labels = [released[key] for key in number_of if key in released]
        stages = tuple(stage for stage in mechanism.summed(asked[0].terms.added) if stage.name in stated)
        in_round = np.array(places, dtype=np.int64)[numbers, :2]
        return cls(mechanism, stages, counts[numbers], np.array(labels), in_round, one, len(run.cohort))

    def audited(self, stage: LabelStage, stated: Mapping[Law, int], failure: float, delta: float) -> AuditedKind:
        """What the outcomes of one stage say."""
        rule = stage.rule if isinstance(stage, GaussianLabels) else None
        outcomes, here = self.labels, np.flatnonzero(self.labels != ABSTAIN)
        if isinstance(rule, Threshold):
            outcomes, here = (self.labels != ABSTAIN).astype(np.int64), np.arange(len(self.labels))
        counts = self.counts[here]
        scale = noise_on_entries(stage, self.parties)
        assert isinstance(self.mechanism, LabelMechanism)  # it has stages
        likely, places = outcomes_of(self.mechanism, stage, scale), self.places[here]
        groups = [places[:, 0]]
        if len(np.unique(places[:, 1])) < len(here):  # there were several rounds
            groups.append(places[:, 1])
        found = label_noise(outcomes[here], lambda parts: likely(counts, parts), tuple(groups), failure)
        rounds = sum(stated.values())

        def cost(parts: float) -> float:
            """ε of so many rounds, under so many parts of the stated noise."""
            if not math.isfinite(parts):
                return 0.0
            if stage.added.parties:  # all counts are seen
                return epsilon_of(self.one * math.sqrt(self._moves * rounds) / (scale * parts), delta)
            first, second = (likely(side, parts) for side in self._neighbours(scale * parts, rule))
            chances = zip(first[:, -1].tolist(), second[:, -1].tolist(), strict=True)
            return max(epsilon_of_outcomes(*pair, rounds, delta) for pair in chances)

        return AuditedKind(
            stage.name,
            rounds,
            int(self.counts.sum(axis=1).max()),
            block_epsilon(stated, delta),
            cost(1.0),
            cost(found.most),
            found.estimate,
            found.shared,
        )

    @property
    def _moves(self) -> int:
        """How many counts one vote changes."""
        return 2 if self.mechanism.unit().adjacency is Adjacency.REPLACE else 1

    def _neighbours(self, noise: float, rule: LabelRule | None) -> tuple[IntArray, IntArray]:
        """Counts that one vote makes of each other, ``[pairs, classes]`` each: the last class is more or less ahead."""
        first = np.zeros((_PAIRS, self.counts.shape[1]), dtype=np.int64)
        first[:, -1] = np.linspace(0.0, 3.0 * noise, _PAIRS).astype(np.int64) + self.one
        if isinstance(rule, Threshold):
            first[:, -1] += max(math.ceil(rule.threshold) - self.one, 0)
        second = first.copy()
        second[:, -1] -= self.one
        second[:, 0] += self.one * (self._moves - 1)
        return first, second


def _votes_cast(rehearsed: Rehearsal, asked: list[Question]) -> tuple[IntArray, int]:
    """The sums of all parties' votes, ``[queries, classes]`` of all questions, and the largest vote of one voter.

    That is the largest of a party's rows over its number of teachers or, where records vote, of a canary's alone.
    """
    run, settings = rehearsed.run, rehearsed.run.config.teachers
    totals, largest = [], 1
    for number, member in enumerate(run.cohort):
        teachers = virtual_party(run.folder, number).ensembles
        records = load(member.source, run.config.task, data_root=None)
        own = _institution(run, member.name, records, load_or_create_key(member.folder), teachers)
        totals.append(_computed(own, asked))
        if settings is not None:
            largest = max(largest, int(totals[-1].sum(axis=1).max()) // len(teachers(settings)))
    for number in range(0 if settings is not None else _VOTING_ALONE):
        alone = rehearsed.canaries.take(np.array([number % len(rehearsed.canaries)]))
        largest = max(largest, int(_computed(_institution(run, "canary", alone), asked).sum(axis=1).max()))
    return np.sum(totals, axis=0), largest


def _no_teachers(settings: object) -> TeacherEnsemble:
    raise AssertionError("questions about records ask no teachers")


def _institution(
    run: PreparedRun,
    name: str,
    records: Examples,
    key: bytes = bytes(32),
    teachers: Callable[[TeacherSettings], TeacherEnsemble] = _no_teachers,
) -> Institution:
    """One that has answered nothing yet, and keeps what it answers in memory."""
    pools, book = PoolStore(run.folder / "pools"), AnswerBook(None, name, PolicyConfig(), None)
    return Institution(name, records, run.config.task, pools, key, None, "cpu", teachers, lambda: book, math.inf)


def _computed(own: Institution, asked: Sequence[Question]) -> IntArray:
    """What an institution answers to questions of one kind, one below the other."""
    kind = party_kinds()[asked[0].kind](own)
    return np.concatenate([kind.compute(one, Asked("audit", one.name)) for one in asked])
