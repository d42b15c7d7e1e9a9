"""What can be known of a consortium before anything is spent: whether it can run, and how good its labels will be."""

import math
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.noise import noise_on_entries
from collegium.coordinator.rounds.masked_sum import MaskedSum
from collegium.coordinator.rounds.rounds import OnReply, quorum_count
from collegium.coordinator.run.announced import announced_terms
from collegium.coordinator.run.colluders import Colluders, beyond_plan
from collegium.coordinator.run.coordinator import CoordinatorRun, Reach, Storage
from collegium.coordinator.run.counts_terms import counts_mechanism, counts_mode
from collegium.coordinator.run.factories import Division, configured_mechanism, division, sum_in, vote_sum_of
from collegium.coordinator.selection.kernel_choice import kernel_spec
from collegium.coordinator.selection.queries import query_key, study_of
from collegium.coordinator.settings.consortium import ConsortiumConfig
from collegium.coordinator.settings.run_config import PublicData
from collegium.data.task import OWN_CHOICE, ImageInputs
from collegium.data.teacher_kinds import BUILT_IN, OF_IMAGES, import_path
from collegium.errors import ConfigurationError
from collegium.limits import MAX_RECORDS_PER_PARTY
from collegium.models.kernels import KernelMap
from collegium.models.noisy_sums import PARTY_CONTRIBUTIONS
from collegium.models.pool_spectrum import PoolSpectrum
from collegium.privacy.analysis.evaluation import records_needed
from collegium.privacy.evaluation_cells import Layout
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.identities import Credentials
from collegium.protocol.question import about_all_records
from collegium.protocol.replies import ReplyBody
from collegium.protocol.requests import RequestBody
from collegium.protocol.secure_sum.plan import SMALLEST_SUM, GraphPlan
from collegium.settings import toml_value
from collegium_accounting.mechanisms import LabelMechanism, SumMode
from collegium_accounting.mechanisms.record_counts import ONE

SHARES = (0.6, 0.75, 0.9)
"""The shares of the votes for which labels are forecast."""
LARGE_EPSILON = 8.0
"""Beyond it a budget promises hardly anything; as in docs/choosing-noise.md."""
DROWNED, CLEAR = 10, 4
"""With a tenth of the needed contributions most labels were wrong; with four times as many, nine tenths of the
accuracy without noise were there (digits, Banking77, medical abstracts, the patients of docs/differing-files.md)."""
FEW_PARTIES = 5
"""With fewer parties, a sum tells much of each of them."""


@dataclass(frozen=True)
class Forecast:
    """How good labels are where a share of the votes is for one class, and all others for one other class.

    Parameters
    ----------
    share : of the votes, for the class with most of them.
    right : probability that a label names that class.
    answered : probability that there is a label.
    """

    share: float
    right: float
    answered: float


@dataclass(frozen=True)
class Findings:
    """What a check found.

    Parameters
    ----------
    choice : what labels and student come from, and why.
    drawn : whether the inputs of the pool are drawn from the public schema.
    queries : how many queries the run means to ask, and ``affordable`` how many of them the budget pays for.
    votes : of all parties together; 0 where records vote, whose number is private.
    needed : records (parties, where the unit is the party) with which class sums tell the classes apart; None for other
        mechanisms.
    measured : records (or parties) from which on the institutions' evaluation states an accuracy of 80 % to ± 5 points;
        None where there is none.
    graph : of the secure sum, who shares with how many and what it bears; None where votes are summed in the clear. Of
        groups, that of the smallest.
    division : how the institutions are summed by groups, and why; None for other mechanisms than class sums.
    most_records : the cap on the records of one institution.
    colluders : what ε becomes with more colluding parties than planned; empty where the coordinator adds the noise.
    policy : of a study, the lines of policy.toml that agree to it.
    """

    choice: str
    pool_inputs: int
    drawn: bool
    holdout_records: int | None
    queries: int
    affordable: int
    votes: int
    forecasts: tuple[Forecast, ...]
    needed: int | None
    measured: int | None
    unit: str
    graph: GraphPlan | None
    division: Division | None
    most_records: int
    colluders: tuple[Colluders, ...]
    policy: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def _lower(self) -> str:
        """What to do where nobody set the cap."""
        unset = self.most_records == MAX_RECORDS_PER_PARTY
        return ": set budget.records_per_party to what the largest has" if unset else ""

    def lines(self) -> list[str]:
        """The findings as lines for people."""
        pool = f"{self.pool_inputs} inputs" + (" that are drawn from the schema" if self.drawn else "")
        holdout = "none" if self.holdout_records is None else f"{self.holdout_records} records"
        lines = [
            f"method       {self.choice}",
            f"pool         {pool}; holdout: {holdout}",
            f"budget       pays for {self.affordable} of {self.queries} queries",
        ]
        for one in self.forecasts:
            share, right, none = (f"{100 * part:.0f} %" for part in (one.share, one.right, 1 - one.answered))
            unanswered = "" if none == "0 %" else f", and {none} of the queries get none"
            lines.append(
                f"forecast     {share} of {self.votes} votes for one class: about {right} of the labels are the "
                f"majority's{unanswered}"
            )
        whom = "parties" if self.unit == "party" else "records of all parties together"
        if self.needed is not None:
            lines.append(
                f"forecast     noise decides the labels with {max(1, self.needed // DROWNED)} {whom}, and costs little "
                f"accuracy from {CLEAR * self.needed} on"
            )
        if self.measured is not None:
            lines.append(
                f"evaluation   states the student's accuracy to about ± 5 points from {self.measured} {whom} on"
            )
        if self.graph is not None:
            lines.append(f"secure sum   {self.graph}")
        if self.division is not None:
            price = f", at {self.division.noise:.2f} times the noise" if self.division.groups > 1 else ""
            number = self.division.groups if self.division.groups > 1 else "none"
            lines.append(f"groups       {number}: {self.division.why}{price}")
            lines.append(f"cap          an institution counts for at most {self.most_records:,} records{self._lower}")
        if self.colluders:
            first, *others = self.colluders
            more = "; ".join(f"{one.colluding}: ε = {one.epsilon:.3g}, noise of {one.noise_of} left" for one in others)
            lines += [
                f"colluders    ε = {first.epsilon:.3g} holds with {first.colluding} parties that collude with the "
                f"coordinator, with the noise of {first.noise_of} honest ones",
                f"             with more, at worst, {more}",
            ]
        if self.policy:
            lines.append("policy       send these lines to the institutions: a policy.toml that lacks them refuses")
            lines += [f"    {line}" for line in self.policy]
        return [*lines, *(f"warning      {warning}" for warning in self.warnings)]


def check_consortium(config: ConsortiumConfig, public: PublicData) -> Findings:
    """Raise what a run would raise before it asks any party, and state what can be foreseen of it.

    Nothing is kept: the run is prepared in a folder that is then deleted, as if nothing had been charged; for a study,
    beside a copy of the ledger.

    Raises
    ------
    ConfigurationError, DataError, BudgetExceeded
        If no run can come of the configuration.
    """
    names, votes, teachers = config.consortium.parties, config.votes, config.teachers
    if teachers is not None and teachers.kind != OWN_CHOICE:
        try:
            import_path(teachers.kind)
        except ConfigurationError as error:
            raise ConfigurationError(f"teachers.kind: {error}") from None
        if teachers.kind in OF_IMAGES and not isinstance(config.task.inputs, ImageInputs):
            raise ConfigurationError(
                f"teachers.kind: {teachers.kind} learns from images alone: name random-forest, mlp or linear"
            )
    if votes.mode != SumMode.CLEAR and len(names) < SMALLEST_SUM:
        raise ConfigurationError(
            f"consortium.parties: a masked sum needs {SMALLEST_SUM} parties at least, and there are {len(names)}"
        )
    with tempfile.TemporaryDirectory(prefix="collegium-check-") as folder:
        stand_ins = dict.fromkeys(names, b"")
        reach = Reach(_Nobody(), names, stand_ins)
        trial = CoordinatorRun(config.run, reach, _storage(config, Path(folder)), public=public)
        affordable = trial.check(thrown_away=True)
    summed = about_all_records(config.mechanism.kind)  # one sum labels every input
    queries = len(public.pool) if summed else config.queries.count
    voting = 0 if teachers is None else len(names) * teachers.per_party
    forecasts = _forecasts(config, voting) if voting and not config.task.multilabel else ()
    needed = _needed(config, public) if summed and not config.run.drawn else None
    return Findings(
        choice=config.choice,
        pool_inputs=len(public.pool),
        drawn=config.run.drawn,
        holdout_records=None if public.holdout is None else len(public.holdout),
        queries=queries,
        affordable=affordable,
        votes=voting,
        forecasts=forecasts,
        needed=needed,
        measured=_measured(config) if config.run.evaluation is not None else None,
        unit=config.budget.unit,
        graph=_graph(config),
        division=division(config.run, len(names)) if summed else None,
        most_records=config.budget.most_records,
        colluders=_colluders(config, affordable),
        policy=() if config.consortium.study is None else tuple(_policy_lines(config, public)),
        warnings=tuple(_warnings(config, public, forecasts, needed)),
    )


def _storage(config: ConsortiumConfig, folder: Path) -> Storage:
    """Where a check runs: beside a copy of the ledger for a study, which other studies may have spent before."""
    study, place = config.consortium.study, config.place
    if study is None or not place.ledger.exists():
        return Storage(folder)
    copy = folder / "ledger.sqlite"
    with closing(sqlite3.connect(place.ledger)) as held, closing(sqlite3.connect(copy)) as made:
        held.backup(made)
    signer = Credentials.load(place.identity, "coordinator").signing_key
    return Storage(folder / study, ledger=copy, signer=signer, study=study)


def _graph(config: ConsortiumConfig) -> GraphPlan | None:
    summed = vote_sum_of(config.run, _Nobody(), dict.fromkeys(config.consortium.parties, b""))
    return summed.weakest if isinstance(summed, MaskedSum) else None


def _colluders(config: ConsortiumConfig, queries: int) -> tuple[Colluders, ...]:
    summed, budget = vote_sum_of(config.run, _Nobody(), dict.fromkeys(config.consortium.parties, b"")), config.budget
    if not isinstance(summed, MaskedSum) or not summed.added.parties or not queries:
        return ()
    mechanism, teachers = configured_mechanism(config.run), config.teachers
    votes = 1 if teachers is None else teachers.per_party
    unit = mechanism.unit() if budget.unit == "record" else mechanism.party_unit(votes)
    return tuple(beyond_plan(mechanism, summed.weakest, unit, budget.delta, queries))


class _Nobody:
    """`Parties` of whom none is there."""

    def names(self) -> list[str]:
        return []

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        raise AssertionError("a check asks no party")


def _forecasts(config: ConsortiumConfig, votes: int) -> tuple[Forecast, ...]:
    histograms = np.zeros((len(SHARES), len(config.task.classes)), dtype=np.int64)
    histograms[:, 0] = [round(share * votes) for share in SHARES]
    histograms[:, 1] = votes - histograms[:, 0]
    mechanism = configured_mechanism(config)
    assert isinstance(mechanism, LabelMechanism)  # votes are counted for labels
    right, answered = mechanism.expected_agreement(histograms)
    return tuple(Forecast(*map(float, one)) for one in zip(SHARES, right, answered, strict=True))


def _policy_lines(config: ConsortiumConfig, public: PublicData) -> Iterator[str]:
    asked = config.queries.count
    for name, value in announced_terms(config.run, asked, public.spec).policy().items():
        beside = name in ("queries", "record_epsilon", "epsilon", "record_rho")
        yield f"{name} = {toml_value(value)}" + ("  # beside what is answered already" if beside else "")


def studies_about(ledger: Path, pool: NDArray[Any]) -> set[str | None]:
    """The studies that have labels for some of these inputs, whichever pool of theirs holds them."""
    inputs = {query_key(one) for one in pool}
    with Ledger.read(ledger) as held:
        return {study_of(key) for key in held.labels() if key.rpartition(":")[2] in inputs}


def _measured(config: ConsortiumConfig) -> int:
    run, settings, classes = config.run, config.run.evaluation, len(config.task.classes)
    assert settings is not None
    parties, layout, mode = dict.fromkeys(config.consortium.parties, b""), Layout(classes), counts_mode(run, settings)
    mechanism = counts_mechanism(run, settings, layout.parts, layout.length)
    stage, *_ = mechanism.summed(sum_in(mode, run, _Nobody(), parties).added)
    return records_needed(classes, (noise_on_entries(stage, len(parties)) / ONE) ** 2)


def _needed(config: ConsortiumConfig, public: PublicData) -> int:
    run, names, task, pool = config.run, config.consortium.parties, config.task, public.pool.x
    mechanism = configured_mechanism(run)
    stage, *_ = mechanism.summed(vote_sum_of(run, _Nobody(), dict.fromkeys(names, b"")).added)
    of_mean = 1.0 / math.sqrt(run.sums_in_mean)
    spec = kernel_spec(run.sums, pool, task.inputs, len(task.classes), mechanism.noise_votes * of_mean, run.seed or 0)
    spectrum = PoolSpectrum.of_pool(KernelMap.of_pool(spec, pool, task.inputs), pool)
    needed = spectrum.contributions_needed(noise_on_entries(stage, len(names)) * of_mean, len(task.classes))
    return math.ceil(needed / (PARTY_CONTRIBUTIONS if run.budget.unit == "party" else 1.0))


def _warnings(
    config: ConsortiumConfig, public: PublicData, forecasts: tuple[Forecast, ...], needed: int | None
) -> list[str]:
    found, parties, budget = [], len(config.consortium.parties), config.budget
    if budget.epsilon > LARGE_EPSILON:
        found.append(f"budget.epsilon = {budget.epsilon:g} promises hardly anything to anybody: at most 8 is a promise")
    if parties < FEW_PARTIES:
        found.append(f"{parties} parties: a sum of so few tells much of each of them")
    if quorum_count(config.votes.quorum, parties) == parties:
        found.append("votes.quorum: a round needs every party; one that is away stops all")
    if forecasts and forecasts[1].right < 0.9:
        found.append(
            "the noise is large for so few votes: lower it, or raise teachers.per_party or the number of parties "
            "(docs/choosing-noise.md)"
        )
    if needed is not None and needed > parties * (1 if budget.unit == "party" else len(public.pool)):
        whom = "parties" if budget.unit == "party" else "records in all"
        found.append(
            f"with fewer than {needed} {whom} the noise hides classes: raise budget.epsilon, or have fewer classes"
        )
    ledger = config.place.ledger
    others = studies_about(ledger, public.pool.x) - {config.consortium.study} if ledger.exists() else set()
    if others and config.votes.mode != SumMode.MASKED_AND_NOISED:
        found.append(
            "other studies have asked about inputs of this pool, and an institution gives one exact sum about an "
            "input, for good: use their labels, or set votes.mode = 'masked+noised'"
        )
    teachers = config.teachers
    if teachers is not None and teachers.kind not in (*BUILT_IN, OWN_CHOICE):
        found.append(f"teachers.kind: each institution must allow {teachers.kind} in its policy (teacher_imports)")
    if public.holdout is not None:
        known = Counter(public.holdout.labels().tolist())
        lacking = [name for number, name in enumerate(config.task.classes) if not known[number]]
        if lacking and not config.task.multilabel:
            found.append(f"the holdout has no record of the class {', '.join(lacking)}")
    return found
