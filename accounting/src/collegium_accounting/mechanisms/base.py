"""What a mechanism is: one frozen object that releases labels, states what that costs and who adds the noise.

Whoever needs to know something about a mechanism asks the object: ledger, policy, a party's own account,
labeller, planning, audit, report and command line contain no list of mechanisms. A new mechanism is one class
in one file, derived from `Mechanism`; the defaults here are those of a noisy argmax over teachers' votes whose
noise the coordinator adds.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium_accounting.divergences.exact import exact_divergences
from collegium_accounting.divergences.grids import NoiseLaw, ThresholdTestLaw
from collegium_accounting.divergences.laws import top_class_probability
from collegium_accounting.errors import ConfigurationError, UnsupportedAccounting
from collegium_accounting.game.laws import Law, RenyiLaw, together
from collegium_accounting.mechanisms.parameters import Value, checked, fields_of
from collegium_accounting.noise.distributed import NoiseShare
from collegium_accounting.noise.sources import SeededNoise, SystemNoise
from collegium_accounting.renyi import WIDE_ORDERS, FloatArray, RenyiCurve
from collegium_accounting.units import Adjacency, IntArray, Unit, checked_counts

ABSTAIN = -1
"""Outcome of a stage: the query gets no label (⊥)."""

NEXT_STAGE = -2
"""Outcome of a stage: the query goes on to the following stage."""

WHOLE_MECHANISM = ""
"""In the terms of a request: its one sum serves every stage of the mechanism."""

_SIMULATED_DRAWS = 2_000


class AnsweredBy(StrEnum):
    """Who answers at a party: its teachers, or its records, by votes or by what all of them add up to."""

    TEACHERS = "teachers"
    RECORDS_WITHIN_A_RADIUS = "records within a radius"
    SAMPLED_RECORDS = "a sample of the records"
    ALL_RECORDS = "all records"


class SumMode(StrEnum):
    """What the coordinator sees of the votes; see docs/choosing-noise.md."""

    CLEAR = "clear"
    MASKED = "masked"
    MASKED_AND_NOISED = "masked+noised"


class Noise(Protocol):
    """Where a mechanism's randomness comes from: the system's (release) or a seed (reproduction)."""

    @property
    def private(self) -> bool:
        """True only for exact discrete samplers fed by the operating system's randomness."""
        ...

    def laplace(self, scale: float, shape: tuple[int, ...]) -> NDArray[np.float64] | IntArray:
        """Independent Laplace noise of scale ``scale`` in votes."""
        ...

    def gaussian(self, sigma: float, shape: tuple[int, ...]) -> NDArray[np.float64] | IntArray:
        """Independent Gaussian noise of parameter ``sigma`` in votes."""
        ...

    def gumbel_argmax(self, counts: IntArray, scale: float) -> IntArray:
        """Per row of ``counts``, shape ``[queries, classes]``: argmax of counts + Gumbel(``scale``).

        The Gumbel noise itself has no exact sampler, its argmax has one (the exponential mechanism),
        so a source hands out the argmax alone.
        """
        ...


class Stage(ABC):
    """One charged step of a mechanism: it is charged for a batch of queries and then run on that batch."""

    name: str
    """What the ledger calls this step, e.g. ``threshold`` or ``release``."""

    @property
    @abstractmethod
    def noise_votes(self) -> float:
        """The scale of its noise in votes: σ of a Gaussian, 1/γ of Laplace or Gumbel noise."""

    @property
    def share(self) -> NoiseShare | None:
        """The noise that each party adds to its votes before masking; None where the coordinator adds the noise."""
        return None

    @abstractmethod
    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        """What published accountants charge the unit for one query, whatever the votes are, on ``orders``.

        Raises UnsupportedAccounting for a unit or an adjacency that the bound does not cover.
        """

    def law(self, unit: Unit, classes: int | None = None) -> Law:
        """What one query releases here, as the exact accountant counts it: what a budget stops on.

        The law is that of the discrete noise of a release. By default it is the Rényi curve of `charge`.

        Parameters
        ----------
        unit : Unit
            Whose data are protected.
        classes : int or None
            The number of classes where the caller knows it: two classes cost less.

        Raises
        ------
        UnsupportedAccounting
            For a unit or an adjacency that is not covered.
        """
        return RenyiLaw.of(self.charge(WIDE_ORDERS, unit))

    @abstractmethod
    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        """Outcome per query for ``counts`` of shape ``[queries, classes]``: a class, ABSTAIN or NEXT_STAGE."""


@dataclass(frozen=True)
class RecordBudget:
    """What one record may spend within a run where records have budgets of their own.

    Parameters
    ----------
    levels : int
        Units of the largest weight of a vote; weights are whole numbers of these units.
    participations : int
        Votes of full weight that one record may cast.
    rho_per_unit_squared : float
        Zero-concentrated cost of a vote of one unit; a vote of w units costs w² times as much.
    """

    levels: int
    participations: int
    rho_per_unit_squared: float

    @property
    def units_squared(self) -> int:
        """What the squares of a record's weights, in units, may add up to within the run."""
        return self.participations * self.levels**2

    @property
    def rho_of_one_participation(self) -> float:
        """Zero-concentrated cost of one vote of full weight."""
        return self.levels**2 * self.rho_per_unit_squared


class Mechanism(ABC):
    """A frozen description of how vote histograms become labels, and of all that follows from it.

    Derive a frozen dataclass whose fields are the parameters, described by `parameters.Parameter`, and decorate
    it with `registry.register`. Parameters are checked when an object is made; ConfigurationError names a wrong one.
    """

    name: ClassVar[str]
    """What configurations, ledgers and policies call it."""
    source: ClassVar[str]
    """The paper and theorem behind the charge."""
    adjacencies: ClassVar[tuple[Adjacency, ...]] = (Adjacency.REPLACE, Adjacency.ADD_REMOVE)
    """The adjacencies that its charge covers; the first one is its own."""
    answered_by: ClassVar[AnsweredBy] = AnsweredBy.TEACHERS
    """Who votes at a party."""
    sum_modes: ClassVar[tuple[SumMode, ...]] = (SumMode.CLEAR, SumMode.MASKED)
    """The ways to sum votes in which a run may use it; in ``masked+noised`` as `noised_by_parties`."""
    sum_per_stage: ClassVar[bool] = False
    """Whether every stage needs a sum of its own, which is paid for before it is asked for."""
    private: ClassVar[bool] = True
    """False for a mechanism that is not differentially private: it never passes a budget."""
    charged_once: ClassVar[bool] = False
    """Whether a run is charged once, for `charged_queries`, rather than query by query."""
    gives_labels: ClassVar[bool] = True
    """Whether its releases become labels, so that a run may be configured with it."""
    several_labels: ClassVar[bool] = False
    """Whether a record may hold several of the classes; counts then come in parts of a vote."""
    no_votes_because: ClassVar[str] = ""
    """Why its loss must not be computed from votes; empty where it may."""
    no_audit_because: ClassVar[str] = ""
    """Why running it on counts tells nothing about its charge; empty where it does."""

    def __post_init__(self) -> None:
        for field in fields_of(type(self)).values():
            object.__setattr__(self, field.name, checked(self.name, field, getattr(self, field.name)))

    @property
    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """Its steps, in their order; all but the last may pass a query on."""

    def parameters(self) -> dict[str, Value]:
        """Its parameters by name, those that were left out excepted: what ledgers, reports and requests hold."""
        given = {name: getattr(self, name) for name in fields_of(type(self))}
        return {name: value for name, value in given.items() if value is not None}

    def numbers(self) -> dict[str, float]:
        """Its parameters as they travel in a request; raises ConfigurationError where one is a text."""
        texts = [name for name, value in self.parameters().items() if isinstance(value, str)]
        if texts:
            raise ConfigurationError(f"{self.name}: parties cannot be told {texts[0]!r}, which is no number")
        return {name: float(value) for name, value in self.parameters().items()}

    def with_parameters(self, **values: Value) -> Self:
        """The same mechanism with the parameters in ``values`` changed; ConfigurationError for a wrong value."""
        return type(self)(**(self.parameters() | values))

    @classmethod
    def completed(cls, given: Mapping[str, Any], *, delta: float, queries: int) -> dict[str, Any]:
        """``given`` parameters and those that follow from an account for ``queries`` queries at ``delta``."""
        return dict(given)

    @classmethod
    def within_budget(cls, given: Mapping[str, Any], epsilon: float, delta: float, unit: str) -> dict[str, Any]:
        """``given`` parameters and those that follow from a budget of (``epsilon``, ``delta``) for the named unit."""
        return dict(given)

    # Release.

    def release(self, votes: ArrayLike, *, noise: Noise | None = None) -> IntArray:
        """Labels for vote histograms. Whoever releases labels pays `charge` for them.

        Parameters
        ----------
        votes : array_like
            Whole numbers of votes, shape ``[queries, classes]``.
        noise : Noise or None
            Where the noise comes from; the operating system's randomness unless a seeded source is given.

        Returns
        -------
        int64 array, shape ``[queries]``: a class, or -1 (`ABSTAIN`) for a query without a label.

        Raises
        ------
        DataError
            If ``votes`` are not counts of that shape.
        """
        counts = checked_counts(votes)
        source = SystemNoise() if noise is None else noise
        labels = np.full(len(counts), NEXT_STAGE, dtype=np.int64)
        for stage in self.stages:
            left = np.flatnonzero(labels == NEXT_STAGE)
            if len(left):
                labels[left] = stage.run(counts[left], source)
        return labels

    def noise_law(self, discrete: bool) -> NoiseLaw | None:
        """The law of the noise on each count of which the largest wins; None where that is not how it releases.

        ``discrete`` for the noise of a release, else the continuous noise of the papers.
        """
        return None

    def screen_law(self, discrete: bool) -> ThresholdTestLaw | None:
        """The law of the noisy test that the largest count passes before a release; None where there is none.

        ``discrete`` as for `noise_law`.
        """
        return None

    def expected_agreement(self, counts: IntArray) -> tuple[FloatArray, FloatArray]:
        """How good its labels are on histograms whose first class has most votes.

        Parameters
        ----------
        counts : int64 array
            Vote histograms, shape ``[queries, classes]``.

        Returns
        -------
        Two arrays of shape ``[queries]``: the probability that an answer names the first class, and that there is
        an answer. Where no law of its noise is known they are estimated from 2,000 seeded releases.
        """
        law, screen = self.noise_law(discrete=True), self.screen_law(discrete=True)
        if law is not None:
            passes = np.ones(len(counts)) if screen is None else np.exp(screen.log_pass(counts.max(axis=1)))
            return top_class_probability(counts, law), passes
        drawn = self.release(np.repeat(counts, _SIMULATED_DRAWS, axis=0), noise=SeededNoise(0))
        outcomes = drawn.reshape(len(counts), _SIMULATED_DRAWS)
        answered = (outcomes != ABSTAIN).mean(axis=1)
        return (outcomes == 0).mean(axis=1) / np.maximum(answered, 1.0 / _SIMULATED_DRAWS), answered

    # Cost.

    def unit(self, votes: int = 1, adjacency: Adjacency | None = None) -> Unit:
        """A privacy unit of ``votes`` votes under its own adjacency, or under ``adjacency`` where it covers that."""
        return self.checked_unit(Unit(votes, adjacency or self.adjacencies[0]))

    def party_unit(self, teachers: int, adjacency: Adjacency | None = None) -> Unit:
        """The privacy unit of a party that hosts ``teachers`` teachers, under its own adjacency or ``adjacency``.

        Raises UnsupportedAccounting where records vote: a party then casts as many votes as it has records.
        """
        if self.answered_by is not AnsweredBy.TEACHERS:
            raise UnsupportedAccounting(
                f"{self.name} protects records: a party casts as many votes as it has records, so there is no ε of a "
                "party; account for the unit record"
            )
        return self.unit(teachers, adjacency)

    def checked_unit(self, unit: Unit | None = None) -> Unit:
        """``unit``, or its own; raises UnsupportedAccounting for an adjacency that its charge does not cover."""
        unit = unit or Unit(1, self.adjacencies[0])
        if unit.adjacency not in self.adjacencies:
            raise UnsupportedAccounting(
                f"{self.name} is accounted for under {' or '.join(self.adjacencies)} adjacency, not {unit.adjacency}"
            )
        return unit

    def charged_queries(self, queries: int) -> int:
        """How many queries one unit pays for when ``queries`` were asked."""
        return queries

    def charge(
        self,
        orders: tuple[float, ...],
        unit: Unit | None = None,
        *,
        queries: int = 1,
        answered: int | None = None,
    ) -> RenyiCurve:
        """What published accountants charge the unit for ``queries`` queries, whatever the votes are.

        Parameters
        ----------
        orders : tuple of float
            Rényi orders, ascending, each above 1.
        unit : Unit or None
            Whose data are protected; one vote under the mechanism's own adjacency where it is None.
        queries : int
            Queries that enter the first stage.
        answered : int or None
            Queries that reach the later stages; all of them where it is None.

        Raises
        ------
        UnsupportedAccounting
            If the charge does not cover the unit.
        ConfigurationError
            If ``answered`` does not lie between 0 and ``queries``.
        """
        unit = self.checked_unit(unit)
        total = RenyiCurve.zero(orders)
        for stage, count in zip(self.stages, self.queries_per_stage(queries, answered), strict=True):
            total = total + stage.charge(orders, unit) * count
        return total

    def queries_per_stage(self, queries: int, answered: int | None = None) -> tuple[int, ...]:
        """Queries that each stage is charged for where ``queries`` enter the first and ``answered`` reach the others.

        All queries reach them where ``answered`` is None. Raises ConfigurationError unless it lies between 0 and
        ``queries``.
        """
        if queries < 0 or (answered is not None and not 0 <= answered <= queries):
            raise ConfigurationError(f"answered must lie between 0 and the {queries} queries; got {answered}")
        later = queries if answered is None else answered
        asked = (queries,) + (later,) * (len(self.stages) - 1)
        return tuple(self.charged_queries(count) for count in asked)

    def exact_loss(
        self, counts: IntArray, orders: tuple[float, ...], adjacency: Adjacency, discrete: bool
    ) -> FloatArray | None:
        """Exact Rényi loss of each query over all neighbours, both directions, shape ``[queries, orders]``, or None.

        The neighbours are those of the vote histograms ``counts``, shape ``[queries, classes]``, under ``adjacency``.
        The votes decide the loss, so it is secret. ``discrete`` for the noise of a release, else the continuous noise
        of the papers. Raises UnsupportedAccounting where no analysis of votes is valid.
        """
        self.check_votes_may_be_analysed()
        noise = self.noise_law(discrete)
        if noise is None:
            return None
        return exact_divergences(counts, noise, orders, adjacency=adjacency, screen=self.screen_law(discrete))

    def paper_bound(self, counts: IntArray, orders: tuple[float, ...], unit: Unit) -> FloatArray | None:
        """The published data-dependent bound for ``unit``, one direction only, shape ``[queries, orders]``, or None.

        ``counts`` are vote histograms, shape ``[queries, classes]``.
        """
        self.check_votes_may_be_analysed()
        return None

    def check_votes_may_be_analysed(self) -> None:
        """Raise UnsupportedAccounting, saying why, where the loss must not be computed from votes."""
        if self.no_votes_because:
            raise UnsupportedAccounting(self.no_votes_because)

    def other_figures(
        self, queries: int, delta: float, orders: tuple[float, ...], counts: IntArray | None
    ) -> dict[str, float]:
        """Further values of ε that an account shows, by the name that they have in its JSON.

        They are for ``queries`` queries at ``delta``, with the Rényi ``orders`` of the account; ``counts`` are the
        vote histograms, shape ``[queries, classes]``, or None for a plan.
        """
        return {}

    # Parties.

    def noised_by_parties(self, honest_survivors: int) -> "Mechanism":
        """This mechanism where each party adds a share of the noise: of the mode ``masked+noised``.

        ``honest_survivors`` is the least number of honest parties whose shares are in any sum that is opened.
        Raises ConfigurationError where the noise cannot be shared.
        """
        raise ConfigurationError(
            "votes.mode = 'masked+noised' needs a mechanism whose noise the parties can share, such as Gaussian noise "
            f"on every count; {self.name} has none"
        )

    @property
    def noise_votes(self) -> float:
        """The smallest noise scale of any stage, in votes: what a party's policy compares with its floor."""
        return min(stage.noise_votes for stage in self.stages)

    def stages_asked(self, stage: str) -> tuple[Stage, ...]:
        """The stages that a sum asked for ``stage`` serves, all of them for `WHOLE_MECHANISM`.

        Raises ConfigurationError for a stage that the mechanism does not have or does not ask for by itself.
        """
        if self.sum_per_stage == (stage == WHOLE_MECHANISM):
            wanted = "one stage at a time" if self.sum_per_stage else "once for all of its stages"
            raise ConfigurationError(f"{self.name} is asked for {wanted}; got the stage {stage!r}")
        asked = tuple(one for one in self.stages if stage in (WHOLE_MECHANISM, one.name))
        if not asked:
            raise ConfigurationError(f"{self.name} has no stage {stage!r}")
        return asked

    def answer_law(self, unit: Unit, stage: str = WHOLE_MECHANISM) -> Law:
        """What one answer costs those who gave it, in the worst case over votes: what a party charges itself.

        That of the whole noisy counts, which a party computes at once.

        Parameters
        ----------
        unit : Unit
            All votes of the party that may appear or disappear, or one record where records vote.
        stage : str
            The stage that the sum is asked for; see `stages_asked`.
        """
        return together(one.law(self.checked_unit(unit)) for one in self.stages_asked(stage))

    @property
    def record_budget(self) -> RecordBudget | None:
        """What one record may spend, where the party keeps a budget for each record; None elsewhere."""
        return None

    # Plans.

    @classmethod
    def plans(cls, noise_votes: float, teachers: int) -> Iterable[Self]:
        """Which settings to try with noise of about ``noise_votes`` votes and so many ``teachers``; none by default."""
        return ()
