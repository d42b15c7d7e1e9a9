"""What a mechanism is: one frozen object that adds noise to sums, and states what its releases cost.

Whoever needs to know something about a mechanism asks the object: ledger, policy, a party's own account,
labeller, planning, audit, report and command line contain no list of mechanisms. A new mechanism is one class
in one file, derived from one of three bases: `labels.LabelMechanism` where labels follow from its releases,
`votes.VoteMechanism` where single votes are counted for them, `whole_vector.VectorMechanism` where a vector is released
as it is. Which label follows from noisy numbers is the matter of a `labels.LabelRule`. Who adds the noise is none of
the mechanism's parameters: it is a property of the sum, `AddedBy`, which `Mechanism.summed` and all costs take.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from collegium_accounting.errors import ConfigurationError, UnsupportedAccounting
from collegium_accounting.game.laws import Law, RenyiLaw
from collegium_accounting.mechanisms.parameters import Value, checked, fields_of
from collegium_accounting.noise.distributed import COORDINATOR, AddedBy, NoiseShare
from collegium_accounting.noise.inversion import check_fits
from collegium_accounting.renyi import WIDE_ORDERS, RenyiCurve
from collegium_accounting.units import Adjacency, IntArray, Unit


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


@dataclass(frozen=True)
class Stage(ABC):
    """One charged step of a mechanism: it is charged for a batch of queries and then released for that batch.

    Parameters
    ----------
    name : what the ledger calls this step, e.g. ``threshold`` or ``release``.
    added : who adds its noise.
    """

    name: str
    added: AddedBy = field(default=COORDINATOR, kw_only=True)

    @property
    @abstractmethod
    def noise_votes(self) -> float:
        """The scale of its noise in votes: σ of a Gaussian, 1/γ of Laplace or Gumbel noise."""

    @property
    def noise_on_entries(self) -> float:
        """The scale of its noise in units of the whole numbers that it is added to."""
        return self.noise_votes

    @property
    def share(self) -> NoiseShare | None:
        """The noise that each party adds to its votes before masking; None where the coordinator adds the noise.

        Raises ConfigurationError where a share would be too small to be accounted for.
        """
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
    """A frozen description of the noise on sums, and of what follows from it.

    Derive a frozen dataclass whose fields are the parameters, described by `parameters.Parameter`, and decorate
    it with `registry.register`. Parameters are checked when an object is made, and that its noise can be drawn;
    ConfigurationError names a wrong one.
    """

    name: ClassVar[str]
    """What configurations, ledgers and policies call it."""
    source: ClassVar[str]
    """The paper and theorem behind the charge."""
    adjacencies: ClassVar[tuple[Adjacency, ...]] = (Adjacency.REPLACE, Adjacency.ADD_REMOVE)
    """The adjacencies that its charge covers; the first one is its own."""
    sum_modes: ClassVar[tuple[SumMode, ...]] = (SumMode.CLEAR, SumMode.MASKED)
    """The ways to sum in which it may be used; ``masked+noised`` where parties can share its noise."""
    private: ClassVar[bool] = True
    """False for a mechanism that is not differentially private: it never passes a budget."""
    charged_once: ClassVar[bool] = False
    """Whether a run is charged once, for `charged_queries`, rather than query by query."""
    several_labels: ClassVar[bool] = False
    """Whether a record may hold several of the classes; counts then come in parts of a vote."""
    no_votes_because: ClassVar[str] = ""
    """Why its loss must not be computed from votes; empty where it may."""
    no_audit_because: ClassVar[str] = ""
    """Why running it on counts tells nothing about its charge; empty where it does."""

    def __post_init__(self) -> None:
        for field_ in fields_of(type(self)).values():
            object.__setattr__(self, field_.name, checked(self.name, field_, getattr(self, field_.name)))
        for stage in self.stages:
            check_fits(stage.noise_on_entries)

    @property
    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """Its steps, in their order, as they are where the coordinator adds the noise."""

    def summed(self, added: AddedBy) -> tuple[Stage, ...]:
        """Its steps on a sum whose noise ``added`` says who adds; ConfigurationError where parties cannot share it."""
        if not added.parties:
            return self.stages
        if SumMode.MASKED_AND_NOISED not in self.sum_modes:
            raise ConfigurationError(
                "votes.mode = 'masked+noised' needs a mechanism whose noise the parties can share, such as Gaussian "
                f"noise on every count; {self.name} has none"
            )
        return tuple(replace(stage, added=added) for stage in self.stages)

    def parameters(self) -> dict[str, Value]:
        """Its parameters by name, those that were left out excepted: what ledgers, reports and requests hold."""
        given = {name: getattr(self, name) for name in fields_of(type(self))}
        return {name: value for name, value in given.items() if value is not None}

    @classmethod
    def completed(cls, given: Mapping[str, Any], *, delta: float, queries: int) -> dict[str, Any]:
        """``given`` parameters and those that follow from an account for ``queries`` queries at ``delta``."""
        return dict(given)

    @classmethod
    def within_budget(cls, given: Mapping[str, Any], epsilon: float, delta: float) -> dict[str, Any]:
        """``given`` parameters and those that follow from a budget of (``epsilon``, ``delta``)."""
        return dict(given)

    @property
    def noise_votes(self) -> float:
        """The smallest noise scale of any stage, in votes: what a party's policy compares with its floor."""
        return min(stage.noise_votes for stage in self.stages)

    def unit(self, votes: int = 1, adjacency: Adjacency | None = None) -> Unit:
        """A privacy unit of ``votes`` votes under ``adjacency``, or under its own one.

        Raises UnsupportedAccounting for an adjacency that its charge does not cover.
        """
        adjacency = adjacency or self.adjacencies[0]
        if adjacency not in self.adjacencies:
            raise UnsupportedAccounting(
                f"{self.name} is accounted for under {' or '.join(self.adjacencies)} adjacency, not {adjacency}"
            )
        return Unit(votes, adjacency)

    def party_unit(self, teachers: int, adjacency: Adjacency | None = None) -> Unit:
        """The privacy unit of a party that hosts ``teachers`` teachers, under its own adjacency or ``adjacency``.

        Raises UnsupportedAccounting where records vote: a party then casts as many votes as it has records.
        """
        raise UnsupportedAccounting(
            f"{self.name} protects records: a party casts as many votes as it has records, so there is no ε of a "
            "party; account for the unit record"
        )

    def charged_queries(self, queries: int, added: AddedBy = COORDINATOR) -> int:
        """How many queries one unit pays for when ``queries`` were asked, and the noise is ``added`` so."""
        return queries

    def record_budget(self, added: AddedBy = COORDINATOR) -> RecordBudget | None:
        """What one record may spend, where the party keeps a budget for each record; None elsewhere.

        ``added`` is who adds the noise.
        """
        return None

    def other_figures(
        self, queries: int, delta: float, orders: tuple[float, ...], counts: IntArray | None
    ) -> dict[str, float]:
        """Further values of ε that an account shows, by the name that they have in its JSON.

        They are for ``queries`` queries at ``delta``, with the Rényi ``orders`` of the account; ``counts`` are the
        vote histograms, shape ``[queries, classes]``, or None for a plan.
        """
        return {}
