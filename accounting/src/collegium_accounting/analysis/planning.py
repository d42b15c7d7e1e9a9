"""Which noise, threshold and number of queries for a target (ε, δ), with these expected gaps.

A plan stops on data-independent values alone. What the labels are worth is estimated from histograms that
the user expects: a gap g stands for n teachers of whom the top class has g·n votes more than each other
class, which is the hardest way to share out the rest.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from collegium_accounting.analysis.epsilons import planned_charges, published_curve, rounds_of
from collegium_accounting.errors import ConfigurationError
from collegium_accounting.extras import optional_import
from collegium_accounting.game.laws import Law, block_epsilon
from collegium_accounting.mechanisms.base import Mechanism
from collegium_accounting.mechanisms.parameters import Value, fields_of
from collegium_accounting.mechanisms.registry import create, known_names, mechanism_named
from collegium_accounting.mechanisms.votes import VoteMechanism
from collegium_accounting.mechanisms.whole_vector import VectorMechanism
from collegium_accounting.renyi import checked_delta
from collegium_accounting.units import IntArray

_USUAL = "class-sums"
"""The mechanism that needs no teachers."""
_MOST_QUERIES = 1_000_000
_ANY_NOISE, _ANY_TEACHERS = 10.0, 100


@dataclass(frozen=True)
class Choice:
    """One mechanism with its noise, what it affords and what its labels are worth.

    ``agreement`` is the expected share of answers that name the class with most votes; ``correct`` the
    expected number of such answers. Class sums have neither: they label the whole pool, and how well depends on it.

    Parameters
    ----------
    mechanism, parameters : its registered name, and its parameters by name.
    queries, answered : how many inputs may be asked about, and how many of them are expected to be answered.
    epsilon : the ε that it costs.
    agreement, correct : see above.
    """

    mechanism: str
    parameters: dict[str, float | int | str]
    queries: int
    answered: int
    epsilon: float
    agreement: float | None
    correct: float | None

    @property
    def made(self) -> Mechanism:
        """The mechanism itself."""
        return create(self.mechanism, **self.parameters)

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value:g}" for name, value in self.parameters.items())
        asked = "" if self.agreement is None else f", {self.queries:,} queries, {self.agreement:.1%} agree"
        return f"{self.mechanism}({shown}){asked}: ε = {self.epsilon:.4g}"


# One call with names for a notebook.
def plan(  # noqa: PLR0913 -- each name is an option of the command
    epsilon: float,
    *,
    delta: float = 1e-5,
    classes: int = 10,
    rounds: int = 1,
    teachers: int | None = None,
    gaps: Sequence[float] = (0.75,),
    queries: int | None = None,
    mechanism: str | None = None,
    votes_per_unit: int = 1,
    agreement: float = 0.95,
) -> Choice:
    """The noise for a target (ε, δ): of class sums, the default, or of votes where there are teachers.

    Parameters
    ----------
    epsilon, delta : float
        What it may cost.
    classes : int
        Classes of the task.
    rounds : int
        Sums that are released, 1 to 8, each with the same noise; for class sums.
    teachers : int, optional
        The number of teachers of all parties, where these vote; class sums need none.
    gaps : sequence of float
        Expected gaps between the two most frequent votes, as shares of the teachers.
    queries : int, optional
        How many inputs are asked about; as many as fit where it is left out.
    mechanism : str, optional
        The only mechanism of votes to consider; the best of all where it is left out.
    votes_per_unit : int
        Votes that one protected unit casts.
    agreement : float
        The share of labels that should name the class with most votes.

    Returns
    -------
    Choice
        Printed as one line; ``choice.made`` is the mechanism.

    Raises
    ------
    ConfigurationError
        If nothing fits, or an argument belongs to votes and there are no teachers.

    Examples
    --------
    >>> from collegium_accounting.analysis.planning import plan
    >>> print(plan(epsilon=1.0, classes=10))
    class-sums(sigma=3.731, classes=10, rounds=1): ε = 0.9999
    """
    checked_delta(delta)
    if np.ndim(epsilon):
        raise ConfigurationError("a plan is for one epsilon: call it for each of several")
    if teachers is None:
        kind = mechanism_named(_USUAL if mechanism is None else mechanism)
        if not issubclass(kind, VectorMechanism) or queries is not None:
            raise ConfigurationError("a plan for votes needs the number of teachers; class sums take no queries")
        if not epsilon > 0.0:
            raise ConfigurationError(f"a plan needs epsilon > 0; got {epsilon}")
        sums = create(kind.name, **kind.within_budget({"classes": classes, "rounds": rounds}, epsilon, delta))
        law = sums.stages[0].law(sums.unit())
        return Choice(sums.name, sums.parameters(), rounds, rounds, block_epsilon({law: rounds}, delta), None, None)
    target = Target(epsilon, delta, teachers, classes, tuple(gaps), votes_per_unit, queries)
    return settled(best(choices(mechanism, target), agreement), target)


@dataclass(frozen=True)
class Target:
    """What the plan must keep: ε at δ for the unit, and the expected gaps."""

    epsilon: float
    delta: float
    teachers: int
    classes: int
    gaps: tuple[float, ...]
    votes_per_unit: int
    queries: int | None = None

    def __post_init__(self) -> None:
        checked_delta(self.delta)
        if self.teachers < 1 or self.classes < 2 or not self.gaps or self.epsilon <= 0.0:
            raise ConfigurationError("a plan needs teachers >= 1, classes >= 2, at least one gap and epsilon > 0")
        if not all(0.0 <= gap <= 1.0 for gap in self.gaps):
            raise ConfigurationError("gaps are shares of the teachers, between 0 and 1")

    def histograms(self) -> IntArray:
        """One expected histogram per gap, shape ``[gaps, classes]``."""
        rows = []
        for gap in self.gaps:
            rest = round(self.teachers * (1.0 - gap) / self.classes)
            top = self.teachers - rest * (self.classes - 1)
            rows.append([max(top, 0)] + [rest] * (self.classes - 1))
        return np.asarray(rows, dtype=np.int64)


def planned_names() -> tuple[str, ...]:
    """The mechanisms that know which settings to try for a target."""
    kinds = {name: mechanism_named(name) for name in known_names()}
    return tuple(
        name
        for name, kind in kinds.items()
        if issubclass(kind, VoteMechanism) and list(kind.plans(_ANY_NOISE, _ANY_TEACHERS))
    )


def choices(mechanism: str | None, target: Target, given: Mapping[str, Value] = {}) -> list[Choice]:
    """The plans of a mechanism over a range of noise, in ascending noise, those that afford no query left out.

    Compared by the published bounds, which are quick; ``settled`` gives one of them its full number of queries.

    Parameters
    ----------
    mechanism : str or None
        Its registered name; None for all that know plans, one after the other.
    target : Target
        What the plans must keep.
    given : mapping
        Parameters that are fixed, by name.

    Raises
    ------
    ConfigurationError
        If there is no such mechanism or parameter, or the mechanism knows no plans.
    """
    if mechanism is None:
        return [choice for name in planned_names() for choice in choices(name, target, given)]
    cls = mechanism_named(mechanism)
    if unknown := sorted(set(given) - set(fields_of(cls))):
        raise ConfigurationError(f"{mechanism} has no parameter {unknown[0]!r}")
    scales = target.teachers * np.geomspace(0.01, 1.0, 13)
    candidates: list[VoteMechanism] = []
    if issubclass(cls, VoteMechanism):
        tried = (one for scale in scales for one in cls.plans(float(scale), target.teachers))
        candidates = [cls(**(one.parameters() | dict(given))) for one in tried]
    if not candidates:
        raise ConfigurationError(f"plans are made for {', '.join(planned_names())}; got {mechanism!r}")
    found = [_choice(candidate, target) for candidate in dict.fromkeys(candidates)]
    return [choice for choice in found if choice.queries > 0]


def settled(choice: Choice, target: Target) -> Choice:
    """The same plan by the exact accountant, which affords more queries and takes seconds to compute."""
    mechanism = choice.made
    unit = mechanism.unit(target.votes_per_unit)
    share = choice.answered / choice.queries

    def rounds(queries: int) -> dict[Law, int]:
        charges = planned_charges(mechanism, unit, queries, math.ceil(share * queries))
        return rounds_of(charges, target.classes)

    most = choice.queries
    if target.queries is None and rounds(2 * most) != rounds(most):
        while block_epsilon(rounds(2 * most), target.delta) <= target.epsilon and most < _MOST_QUERIES:
            most *= 2
        limits, further = rounds(2 * most), range(most + 1, 2 * most)
        most += bisect_right(further, target.epsilon, key=lambda n: block_epsilon(rounds(n), target.delta, limits))
    answered = math.ceil(share * most)
    return replace(
        choice,
        queries=most,
        answered=answered,
        epsilon=block_epsilon(rounds(most), target.delta),
        correct=(choice.agreement or 0.0) * answered,
    )


def best(found: Sequence[Choice], agreement: float) -> Choice:
    """Most correct answers among the plans that reach ``agreement``; the most agreeing plan if none does.

    With a fixed number of queries that is the plan with the best labels. Raises ConfigurationError when
    there is no plan at all.
    """
    if not found:
        raise ConfigurationError(
            "with no amount of noise does a single query fit within this ε; raise ε or use more teachers"
        )
    good = [choice for choice in found if _worth(choice)[0] >= agreement]
    if not good:
        return max(found, key=_worth)
    return max(good, key=lambda choice: _worth(choice)[::-1])


def _worth(choice: Choice) -> tuple[float, float]:
    """Agreement and correct answers of a plan for votes."""
    return choice.agreement or 0.0, choice.correct or 0.0


def _choice(mechanism: VoteMechanism, target: Target) -> Choice:
    histograms = target.histograms()
    agrees, passes = mechanism.expected_agreement(histograms)
    answered_share = float(passes.mean())
    unit = mechanism.unit(target.votes_per_unit)
    agreement = float((agrees * passes).sum() / max(float(passes.sum()), 1e-300))

    def epsilon_of(queries: int) -> float:
        answered = math.ceil(answered_share * queries)
        charges = planned_charges(mechanism, unit, queries, answered)
        return published_curve(charges).to_epsilon(target.delta).epsilon

    if target.queries is None:
        queries = bisect_right(range(1, _MOST_QUERIES + 1), target.epsilon, key=epsilon_of)
    else:
        queries = target.queries if epsilon_of(target.queries) <= target.epsilon else 0
    answered = math.ceil(answered_share * queries)
    return Choice(
        mechanism=mechanism.name,
        parameters=mechanism.parameters(),
        queries=queries,
        answered=answered,
        epsilon=epsilon_of(queries) if queries else 0.0,
        agreement=agreement,
        correct=agreement * answered,
    )


def pyplot() -> Any:
    """matplotlib's drawing functions, without a screen; MissingExtra where it is not installed."""
    with optional_import("a picture"):
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as functions
    return functions


@contextmanager
def picture(path: Path, inches: tuple[float, float]) -> Iterator[Any]:
    """Axes to draw on, of a picture that is in the file ``path`` afterwards; ConfigurationError where it cannot be."""
    functions = pyplot()
    figure, axes = functions.subplots(figsize=inches)
    try:
        yield axes
        figure.tight_layout()
        try:
            figure.savefig(path)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"the plot cannot be written to {path}: {error}") from None
    finally:
        functions.close(figure)


def draw(found: Sequence[Choice], chosen: Choice, target: Target, path: Path) -> None:
    """The trade-off as a picture: affordable answers against agreement, one curve per mechanism."""
    with picture(path, (7.0, 4.5)) as axes:
        for name in sorted({choice.mechanism for choice in found}):
            points = sorted((c.answered, 100.0 * _worth(c)[0]) for c in found if c.mechanism == name)
            axes.plot(*zip(*points, strict=True), marker="o", linestyle="-" if len(points) < 20 else "", label=name)
        axes.plot(chosen.answered, 100.0 * _worth(chosen)[0], marker="*", markersize=16, color="black", label="chosen")
        axes.set_xscale("log")
        axes.set_xlabel(f"labels within ε = {target.epsilon:g} at δ = {target.delta:g}")
        axes.set_ylabel("labels that name the majority class, %")
        axes.grid(alpha=0.3)
        axes.legend()
