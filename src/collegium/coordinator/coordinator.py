"""One run, from a configuration to a student and a report, over any `Parties`.

Every step leaves what it did in the run's folder, so that a run that was interrupted is started again
by the same call: labels and charges are found in the ledger, a fitted student is found by what it was
fitted from, and the rest costs nothing to repeat.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator import run_record
from collegium.coordinator.accounting.filters import best_order
from collegium.coordinator.config import DISTILLATION, SAMPLED_KNN, MechanismConfig, RunConfig
from collegium.coordinator.labeller import Draw, Labeller, SeededDraw, SystemDraw, charge_of
from collegium.coordinator.masked import MaskedSum
from collegium.coordinator.mechanisms import IntArray, Mechanism, Unit, create
from collegium.coordinator.mechanisms.individual_knn import IndividualKNN, noised_neighbours
from collegium.coordinator.mechanisms.noised import NoisedStage, noised
from collegium.coordinator.neighbours.nearest_sum import NearestSum
from collegium.coordinator.parties import Parties
from collegium.coordinator.public_data import PublicData, load_public
from collegium.coordinator.queries import query_key
from collegium.coordinator.questions import questions_of
from collegium.coordinator.readiness import Readiness
from collegium.coordinator.rounds import ClearSum, RoundResult, VoteSum, quorum_count, require_quorum
from collegium.coordinator.run_folder import RunFolder
from collegium.coordinator.spending import spending
from collegium.protocol.errors import BudgetExceeded, CollegiumError, ConfigurationError
from collegium.protocol.inputs import array_spec
from collegium.protocol.ledger import Ledger
from collegium.protocol.limits import MAX_POOL_INPUTS
from collegium.protocol.messages import PoolRange
from collegium.protocol.renyi import PAPER_ORDERS, WIDE_ORDERS
from collegium.protocol.secure_sum import plan_graph

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True)
class Progress:
    """How far a step is: ``describe``, ``hold_pool``, ``fit``, ``votes``, ``labels``, ``student``, ``report``."""

    step: str
    done: int
    total: int


Baseline = Callable[[], Mapping[str, Any]]
"""Measures what pooled data would have given, without privacy; only a simulation can."""


class Coordinator:
    """Drives one run.

    Parameters
    ----------
    config : what was asked.
    parties : how parties are reached.
    folder : where the run's files go; made if it is not there.
    signer : the coordinator's identity, which signs the ledger; None leaves it unsigned (simulations).
    roster : every admitted party; those reachable now where it is None. The quorum is a fraction of it.
    public : pool and holdout, where they are loaded already.
    data_root : where data sources are looked for otherwise.
    positions : the pool's inputs to label, in this order; those that ``config`` asks where it is None.
    ledger : the file of the ledger that pays; the folder's own where it is None.
    signing_keys : Ed25519 public key of every party on the roster; the masked modes need them.
    vote_sum : how votes are added up; by ``config.votes.mode`` where it is None.
    research : also record what only a simulation may know (gaps, teachers' accuracy, data-dependent ε).
    keep_votes : also keep the vote histograms on disk: private data, for simulations alone.
    baseline : measures a non-private model for comparison.
    clock : monotonic seconds.
    progress : called as steps go on.
    """

    def __init__(
        self,
        config: RunConfig,
        parties: Parties,
        folder: Path,
        *,
        signer: Ed25519PrivateKey | None = None,
        roster: Sequence[str] | None = None,
        public: PublicData | None = None,
        data_root: Path | None = None,
        positions: Sequence[int] | None = None,
        ledger: Path | None = None,
        signing_keys: Mapping[str, bytes] | None = None,
        vote_sum: VoteSum | None = None,
        research: bool = False,
        keep_votes: bool = False,
        baseline: Baseline | None = None,
        device: str = "auto",
        threads: int = 1,
        clock: Callable[[], float] = time.monotonic,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._config = config
        self._parties = parties
        self._folder = RunFolder(folder)
        self._signer = signer
        self._roster = roster
        self._public = public
        self._data_root = data_root
        self._positions = positions
        self._ledger_file = ledger or self._folder.ledger
        self._vote_sum = vote_sum or _vote_sum(config, parties, signing_keys)
        self._research = research
        self._keep_votes = keep_votes
        self._baseline = baseline
        self._device, self._threads = device, threads
        self._clock = clock
        self._progress = progress
        self._mechanism = _mechanism(config, self._vote_sum)
        self._draw = _draw(config)

    def run(self, *, only_labels: bool = False) -> dict[str, Any]:
        """Do the whole run, or what is left of it, and return what run.json says.

        With ``only_labels`` it ends once the parties are no longer needed; another call does the rest.

        Raises
        ------
        StorageError, before any work, when the folder cannot be written; LedgerCorrupt; ConfigurationError,
        when the folder holds another run; BudgetExceeded, before any party is asked, when not one query fits;
        QuorumNotReached; DataError.
        """
        with self._opened() as ledger:
            try:
                self._label(ledger)
                if not only_labels:
                    self._fit_student()
                    self._measure_baseline()
                    self._finish(ledger)
            except CollegiumError as error:
                self._run["state"] = f"stopped: {error}"
                self._folder.write(self._run)
                raise
        return self._run

    def check(self) -> None:
        """Raise now what `run` would raise before it asks any party, or at its end over the student's settings.

        For whoever has to start parties first: they need not start for a run that cannot go on.
        """
        from collegium.coordinator.students import chosen_method, require_soft_targets

        chosen_method(self._config.student.method, self._config.student.options)
        if not self._research or self._vote_sum.mode == "masked+noised":
            require_soft_targets(self._config.student.method, None)
        with self._opened() as ledger:
            self._why_nothing_to_ask(self._labeller(ledger), self._distinct_keys)

    @contextmanager
    def _opened(self) -> Iterator[Ledger]:
        self._folder.prepare()
        with self._folder.lock(), closing(self._open_ledger()) as ledger:
            self._run = self._folder.read() or {}
            run_record.check_same_run(self._run, self._config, self._folder.path)
            self._data = self._public or load_public(self._config, self._data_root)
            self._begin(ledger)
            yield ledger

    def _open_ledger(self) -> Ledger:
        budget = self._config.budget
        orders = WIDE_ORDERS if budget.orders == "wide" else PAPER_ORDERS
        return Ledger.open(
            self._ledger_file,
            signer=self._signer,
            orders=orders,
            filter_order=self._filter_order(orders),
            delta=budget.delta,
            epsilon_budget=budget.epsilon,
            conversion=budget.conversion,
            name=self._config.name,
            budget_setting="budget.epsilon",
        )

    def _filter_order(self, orders: tuple[float, ...]) -> float | None:
        """The one order that the budget is tested at where later charges depend on earlier answers.

        Fixed when the ledger is made, by what fits the budget if every query goes through every stage.
        """
        if len(self._mechanism.stages) == 1:
            return None
        if self._ledger_file.exists():
            with closing(Ledger.read(self._ledger_file)) as held:
                return held.settings.filter_order
        budget = self._config.budget
        unit = Unit(self._config.teachers.per_party if budget.unit == "party" else 1)
        curves = [charge_of(stage, budget.bound, orders, unit) for stage in self._mechanism.stages]
        worst = sum(curves[1:], curves[0])
        queries = 1
        while (
            queries < MAX_POOL_INPUTS
            and (worst * 2 * queries).to_epsilon(budget.delta, budget.conversion).epsilon <= budget.epsilon
        ):
            queries *= 2
        return best_order(worst * queries, budget.delta, budget.conversion)

    def _begin(self, ledger: Ledger) -> None:
        pool = self._data.pool
        self._pool = array_spec(pool.x)
        self._questions = questions_of(self._config, pool.x, _ledger_id(ledger), self._positions)
        self._indices = self._questions.indices
        self._keys = [query_key(pool.x[index]) for index in self._indices]
        self._histograms: dict[str, IntArray] = {}
        run_record.begin(self._run, self._config, self._mechanism, self._vote_sum.mode, self._draw.private, self._pool)
        self._run["privacy"]["votes_per_unit"] = dict(self._questions.votes_per_unit)

    @property
    def _seed(self) -> int:
        return self._config.seed or 0

    def _labeller(self, ledger: Ledger) -> Labeller:
        return Labeller(
            ledger,
            self._mechanism,
            Unit(self._questions.votes_per_unit[self._config.budget.unit], self._questions.adjacency),
            self._draw,
            bound=self._config.budget.bound,
            take_up=self._vote_sum.mode != "masked+noised",
        )

    @property
    def _distinct_keys(self) -> list[str]:
        return list(dict.fromkeys(self._keys))

    def _why_nothing_to_ask(self, labeller: Labeller, keys: list[str]) -> str | None:
        """Why the budget takes no more of ``keys``, None where it does; BudgetExceeded when it never took any."""
        if not labeller.pending(keys) or labeller.worth_asking(keys):
            return None
        stopped = labeller.why_stopped(self._config.budget.epsilon)
        if not labeller.labels(keys):
            raise BudgetExceeded(stopped)
        return stopped

    def _label(self, ledger: Ledger) -> None:
        labeller, keys = self._labeller(ledger), self._distinct_keys
        stopped = self._why_nothing_to_ask(labeller, keys)
        if stopped is None and labeller.pending(keys):
            with self._timed("labels"):
                stopped = self._ask_parties(labeller, keys)
        held = labeller.labels(self._keys)
        self._labels = np.array([held.get(key, run_record.UNASKED) for key in self._keys], dtype=np.int64)
        self._run["labels"] = run_record.labels(self._labels, self._indices, self._data, self._config.task, stopped)
        self._run["privacy"] |= spending(ledger, self._questions.votes_per_unit)
        self._run["ledger"] = {"head": str(ledger.head()), "signed": self._signer is not None}
        self._run["state"] = "labelled"
        rows = zip(self._indices.tolist(), self._labels.tolist(), strict=True)
        self._folder.write_labels([(index, label if label >= 0 else None) for index, label in rows])
        self._folder.write(self._run)

    def _ask_parties(self, labeller: Labeller, keys: list[str]) -> str | None:
        """Round by round until all have a label; or why it stopped before."""
        votes = self._config.votes
        roster = sorted(self._roster if self._roster is not None else self._parties.names())
        quorum = quorum_count(votes.quorum, len(roster))
        readiness = Readiness(self._parties, roster, self._questions.teacher, self._data.pool.x, self._pool)
        self._readiness = readiness
        limit_s = votes.fit_deadline_s
        for start in range(0, len(keys), self._config.queries.batch):
            asked = labeller.worth_asking(keys[start : start + self._config.queries.batch])
            if not asked:
                continue
            readiness.prepare(deadline_s=votes.deadline_s, fit_deadline_s=limit_s, on_step=self._tell)
            limit_s = votes.deadline_s
            run_record.readiness(self._run, readiness.standings)
            require_quorum(readiness.outcomes(), quorum, "are ready")
            if self._vote_sum.mode == "masked+noised" or self._config.mechanism.name == SAMPLED_KNN:
                fitted = self._pay_then_ask(labeller, asked, readiness.ready(), quorum)
            else:
                result = self._round(asked, readiness.ready(), quorum, self._parameters)
                if self._research or self._keep_votes:
                    self._remember(asked, result)
                fitted = labeller.label(asked, result.counts)
            self._tell("labels", len(labeller.labels(keys)), len(keys))
            if not fitted:
                break
        return labeller.why_stopped(self._config.budget.epsilon) if labeller.pending(keys) else None

    def _pay_then_ask(self, labeller: Labeller, keys: list[str], teachers: Mapping[str, int], quorum: int) -> bool:
        """One round per stage, paid before it.

        A sum that the parties noised is an answer in its own right, and every stage of sampled neighbours has its
        own sample.
        """
        while pending := labeller.pending(keys):
            number, chunk = labeller.next_stage(pending)
            if not chunk:
                return False
            stage = self._mechanism.stages[number]
            noise = {"sigma": stage.sigma} if isinstance(stage, NoisedStage) else {}
            labeller.pay(number, chunk)
            result = self._round(chunk, teachers, quorum, self._parameters | noise, stage.name)
            labeller.settle(number, chunk, result.counts)
        return True

    @property
    def _parameters(self) -> dict[str, float]:
        """The mechanism's numbers, as the parties' policies see them."""
        said = {key: float(v) for key, v in self._mechanism.parameters().items() if not isinstance(v, str)}
        if isinstance(self._mechanism, IndividualKNN):
            said["sigma"] *= said["levels"]  # the noise on an entry of the sum
        return said

    def _round(
        self,
        keys: list[str],
        teachers: Mapping[str, int],
        quorum: int,
        parameters: dict[str, float],
        purpose: str = "release",
    ) -> RoundResult:
        position = dict(zip(reversed(self._keys), reversed(self._indices.tolist()), strict=True))
        indices = tuple(position[key] for key in keys)
        asked = PoolRange(self._pool.sha256, indices)
        request = self._questions.request(self._mechanism.name, parameters, self._vote_sum.mode, asked, purpose)
        began_s = self._clock()
        result = self._vote_sum.sum_votes(
            request,
            teachers,
            queries=len(indices),
            classes=len(self._config.task.classes),
            deadline_s=self._config.votes.deadline_s,
            quorum=quorum,
            on_answer=lambda done, asked: self._tell("votes", done, asked),
        )
        run_record.round_done(self._run, request.round_id, len(indices), result, self._clock() - began_s)
        self._readiness.note_round(result.outcomes)
        self._folder.write(self._run)
        return result

    def _remember(self, keys: Sequence[str], result: RoundResult) -> None:
        fresh = dict(zip(keys, result.counts, strict=True))
        self._histograms |= fresh
        if self._keep_votes:
            self._folder.keep_votes(fresh)

    def _fit_student(self) -> None:
        from collegium.coordinator.students import fit_student, load_student

        given = self._labels >= 0
        student_config = self._config.student
        origin = run_record.student_origin(self._indices, self._labels, student_config, self._seed, self._pool)
        if self._folder.student.exists() and self._run.get("student", {}).get("fitted_from") == origin:
            return
        with self._timed("student"):
            student = fit_student(
                student_config.method,
                self._data.pool.x,
                self._indices[given],
                self._labels[given],
                self._config.task,
                seed=self._seed,
                device=self._device,
                threads=self._threads,
                options=student_config.options,
                progress=lambda done, total: self._tell("student", done, total),
                soft_targets=self._soft_targets(given),
            )
        student.save(self._folder.student)
        published = load_student(self._folder.student, device=self._device)
        self._run["student"] = {"method": student_config.method, "fitted_from": origin} | run_record.student_quality(
            published.predict, self._data.holdout, self._config.task
        )
        self._folder.write(self._run)

    def _soft_targets(self, given: NDArray[np.bool_]) -> NDArray[np.float64] | None:
        """The teachers' votes without noise, for the one student that learns them; None for all others."""
        if not self._research or self._config.student.method != DISTILLATION:
            return None
        kept = self._folder.kept_votes() | self._histograms
        keys = [key for key, labelled in zip(self._keys, given, strict=True) if labelled]
        if not keys or any(key not in kept for key in keys):
            return None
        counts = np.stack([kept[key] for key in keys])
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))

    def _measure_baseline(self) -> None:
        if self._baseline is None or "baseline" in self._run:
            return
        with self._timed("baseline"):
            self._run["baseline"] = dict(self._baseline())
        self._folder.write(self._run)

    def _finish(self, ledger: Ledger) -> None:
        from collegium.coordinator.report import write_report

        if self._research:
            self._diagnose()
        self._run["state"] = "finished"
        self._folder.write(self._run)
        write_report(self._folder.read() or {}, self._folder.report, research=self._research)
        self._tell("report", 1, 1)

    def _diagnose(self) -> None:
        from collegium.coordinator.research import research_figures

        kept = self._folder.kept_votes() | self._histograms
        labelled = self._labels != run_record.UNASKED
        rows = [row for row, key in enumerate(self._keys) if labelled[row] and key in kept]
        if len(rows) <= self._run.get("research_only", {}).get("queries", 0):
            return  # nothing beyond what an earlier start of this run saw
        truth = self._data.pool.y
        with self._timed("research"):
            self._run["research_only"] = research_figures(
                np.stack([kept[self._keys[row]] for row in rows]),
                None if truth is None else truth[self._indices[rows]],
                self._mechanism,
                delta=self._config.budget.delta,
                continuous=self._config.mechanism.noise == "continuous",
                labelled=int(labelled.sum()),
            )

    def _tell(self, step: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(Progress(step, done, total))

    @contextmanager
    def _timed(self, step: str) -> Any:
        began_s = self._clock()
        yield
        timings = self._run.setdefault("timings_s", {})
        timings[step] = timings.get(step, 0.0) + self._clock() - began_s


def _vote_sum(config: RunConfig, parties: Parties, signing_keys: Mapping[str, bytes] | None) -> VoteSum:
    votes = config.votes
    if config.mechanism.name == SAMPLED_KNN:
        plain = config.model_copy(update={"mechanism": MechanismConfig()})
        return NearestSum(_vote_sum(plain, parties, signing_keys))
    if votes.mode == "clear":
        return ClearSum(parties)
    if signing_keys is None:
        raise ConfigurationError(f"votes.mode = {votes.mode!r} needs the parties' signing keys: give the roster")
    plan = plan_graph(len(signing_keys), votes.dropout, votes.collusion)
    return MaskedSum(parties, config.name, signing_keys, plan, noised=votes.mode == "masked+noised")


def _mechanism(config: RunConfig, vote_sum: VoteSum) -> Mechanism:
    known: dict[str, float] = {}
    if config.neighbours is not None and config.neighbours.k is not None:
        known = {"k": config.neighbours.k, "classes": len(config.task.classes)}
    mechanism = create(config.mechanism.name, **(config.mechanism.parameters | known))
    if isinstance(vote_sum, MaskedSum) and vote_sum.noised:
        if isinstance(mechanism, IndividualKNN):
            return noised_neighbours(mechanism, vote_sum.plan.honest_survivors)
        return noised(mechanism, vote_sum.plan)
    return mechanism


def _ledger_id(ledger: Ledger) -> str:
    """The first entry's digest: it holds the time, so that a ledger made afresh has another name."""
    return next(ledger.entries()).hash.hex()[:32]


def _draw(config: RunConfig) -> Draw:
    continuous = config.mechanism.noise == "continuous"
    if config.seed is not None:
        return SeededDraw(config.seed, continuous)
    if continuous:
        raise ConfigurationError(
            "mechanism.noise = 'continuous' only reproduces papers and is not private: set seed too, or use 'discrete'"
        )
    return SystemDraw()
