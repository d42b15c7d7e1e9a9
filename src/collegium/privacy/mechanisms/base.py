"""What a mechanism is: a frozen description that can release, state its charge and name its source."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from collegium.privacy.renyi import RenyiCurve
from collegium.privacy.units import Adjacency, IntArray, Unit

ABSTAIN = -1
"""Outcome of a stage: the query gets no label (⊥)."""

NEXT_STAGE = -2
"""Outcome of a stage: the query goes on to the following stage."""


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


@runtime_checkable
class Stage(Protocol):
    """One charged step of a mechanism. The labeller charges it for a batch, then runs it on that batch."""

    @property
    def name(self) -> str:
        """What the ledger calls this step, e.g. ``threshold`` or ``release``."""
        ...

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        """What one query costs here whatever the votes are (data-independent), on ``orders``."""
        ...

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        """Outcome per query for ``counts`` of shape ``[queries, classes]``: a class, ABSTAIN or NEXT_STAGE.

        ``predictions``, shape ``[queries]``, holds the student's own answer or -1 (interactive use only).
        """
        ...


@runtime_checkable
class Mechanism(Protocol):
    """A frozen description of how vote histograms become labels."""

    name: ClassVar[str]
    source: ClassVar[str]
    """The paper and theorem behind the charge."""

    @property
    def stages(self) -> tuple[Stage, ...]: ...

    def parameters(self) -> dict[str, float | int | str]:
        """What a report, a ledger entry and a party's policy show: noise scales by their field names."""
        ...


@runtime_checkable
class HasExactLoss(Protocol):
    """A mechanism whose exact loss on given votes can be computed. The votes decide it, so it is secret."""

    def exact_loss(
        self, counts: IntArray, orders: tuple[float, ...], adjacency: Adjacency, discrete: bool
    ) -> NDArray[np.float64]:
        """Exact Rényi loss of each query over all neighbours, both directions, shape ``[queries, orders]``.

        ``discrete`` for the noise of a release, else the continuous noise of the papers. Raises
        UnsupportedAccounting where no such analysis is valid.
        """
        ...


@runtime_checkable
class HasPaperBound(Protocol):
    """A mechanism with a published data-dependent bound."""

    def paper_bound(self, counts: IntArray, orders: tuple[float, ...], unit: Unit) -> NDArray[np.float64]:
        """The published data-dependent bound, one direction only, shape ``[queries, orders]``."""
        ...


@runtime_checkable
class HasClassicCharge(Protocol):
    """A stage that also knows the published data-independent bound and its privacy loss distribution."""

    def classic_charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        """What published accountants charge for one query."""
        ...

    def privacy_loss(self, unit: Unit) -> Any:
        """A dp-accounting PrivacyLossDistribution that dominates one query."""
        ...


@runtime_checkable
class HasRunCharge(Protocol):
    """A mechanism whose whole run costs less than its queries one by one."""

    def charged_queries(self, queries: int) -> int:
        """How many queries one unit pays for when ``queries`` were asked."""
        ...
