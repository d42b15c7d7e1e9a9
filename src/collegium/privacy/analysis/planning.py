"""Which noise, threshold and number of queries for a target (ε, δ), with these expected gaps.

A plan stops on data-independent values alone. What the labels are worth is estimated from histograms that
the user expects: a gap g stands for n teachers of whom the top class has g·n votes more than each other
class, which is the hardest way to share out the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collegium.errors import ConfigurationError
from collegium.privacy.accounting.grids import NoiseKind, NoiseLaw, tables
from collegium.privacy.accounting.laws import levels_of, win_log_probabilities
from collegium.privacy.accounting.screening import ThresholdTestLaw
from collegium.privacy.analysis.account import AccountQuery, data_independent
from collegium.privacy.mechanisms.base import Mechanism
from collegium.privacy.mechanisms.registry import create
from collegium.privacy.renyi import WIDE_ORDERS, Conversion, FloatArray
from collegium.privacy.units import IntArray, Unit

_MOST_QUERIES = 1_000_000


@dataclass(frozen=True)
class Choice:
    """One mechanism with its noise, what it affords and what its labels are worth.

    ``agreement`` is the expected share of answers that name the class with most votes; ``correct`` the
    expected number of such answers.
    """

    mechanism: str
    parameters: dict[str, float | int | str]
    queries: int
    answered: int
    epsilon: float
    agreement: float
    correct: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Target:
    """What the plan must keep: ε at δ for the unit, and the expected gaps."""

    epsilon: float
    delta: float
    teachers: int
    classes: int
    gaps: tuple[float, ...]
    unit: Unit
    queries: int | None = None

    def __post_init__(self) -> None:
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


def choices(mechanism: str, target: Target) -> list[Choice]:
    """The plans of one mechanism over a range of noise, in ascending noise, those that afford no query left out.

    Compared by the published bounds, which are quick; ``settled`` gives one of them its full number of queries.
    """
    scales = target.teachers * np.geomspace(0.01, 1.0, 13)
    candidates = [one for scale in scales for one in _candidates(mechanism, float(scale), target)]
    found = [_choice(candidate, target, classic=True) for candidate in candidates]
    return [choice for choice in found if choice.queries > 0]


def settled(choice: Choice, target: Target) -> Choice:
    """The same plan by the certified bound, which affords more queries and takes seconds to search."""
    return _choice(create(choice.mechanism, **choice.parameters), target, classic=False)  # type: ignore[arg-type]


def best(found: Sequence[Choice], agreement: float) -> Choice:
    """Most correct answers among the plans that reach ``agreement``; the most agreeing plan if none does.

    With a fixed number of queries that is the plan with the best labels. Raises ConfigurationError when
    there is no plan at all.
    """
    if not found:
        raise ConfigurationError("no noise affords a single query within this ε; raise it or involve more teachers")
    good = [choice for choice in found if choice.agreement >= agreement]
    if not good:
        return max(found, key=lambda choice: (choice.agreement, choice.correct))
    return max(good, key=lambda choice: (choice.correct, choice.agreement))


def _candidates(mechanism: str, scale: float, target: Target) -> list[Mechanism]:
    rounded = float(f"{scale:.3g}")
    if mechanism in ("lnmax", "exponential"):
        return [create(mechanism, gamma=float(f"{1.0 / scale:.3g}"))]
    if mechanism == "gnmax":
        return [create(mechanism, sigma=rounded)]
    if mechanism == "confident-gnmax":
        shares = (0.5, 0.6, 0.7, 0.8)
        return [
            create(mechanism, sigma1=4.0 * rounded, sigma2=rounded, threshold=float(round(share * target.teachers)))
            for share in shares
        ]
    raise ConfigurationError(f"plans are made for lnmax, gnmax, confident-gnmax and exponential; got {mechanism!r}")


def _choice(mechanism: Mechanism, target: Target, *, classic: bool) -> Choice:
    histograms = target.histograms()
    agrees, passes = _agreement(mechanism, histograms)
    answered_share = float(passes.mean())
    agreement = float((agrees * passes).sum() / max(float(passes.sum()), 1e-300))

    def epsilon_of(queries: int) -> float:
        answered = math.ceil(answered_share * queries)
        question = AccountQuery(
            mechanism, queries, target.delta, WIDE_ORDERS, Conversion.IMPROVED, target.unit, answered, classic
        )
        return data_independent(question).to_epsilon(target.delta).epsilon

    queries = _most_queries(epsilon_of, target.epsilon, target.queries)
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


def _most_queries(epsilon_of: Any, epsilon: float, wanted: int | None) -> int:
    """The largest number within the budget, or ``wanted`` if that fits and nothing if it does not."""
    if wanted is not None:
        return wanted if epsilon_of(wanted) <= epsilon else 0
    low, high = 0, 1
    while high < _MOST_QUERIES and epsilon_of(high) <= epsilon:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if epsilon_of(middle) <= epsilon else (low, middle)
    return low


def _agreement(mechanism: Mechanism, histograms: IntArray) -> tuple[FloatArray, FloatArray]:
    """Per histogram: probability that an answer names the top class, and that there is an answer."""
    given = mechanism.parameters()
    passes = np.ones(histograms.shape[0])
    if "sigma1" in given:
        screen = ThresholdTestLaw(float(given["sigma1"]), float(given["threshold"]), discrete=True)
        passes = np.exp(screen.log_pass(histograms.max(axis=1)))
    if mechanism.name == "exponential":
        score = float(given["gamma"]) * (histograms - histograms.max(axis=1, keepdims=True))
        return np.exp(score[:, 0] - np.log(np.exp(score).sum(axis=1))), passes
    kind: NoiseKind = "discrete-laplace" if "gamma" in given else "discrete-gaussian"
    scale = 1.0 / float(given["gamma"]) if "gamma" in given else float(given.get("sigma2", given.get("sigma", 0.0)))
    noise = NoiseLaw(kind, scale)
    levels = levels_of(histograms, noise)
    table = tables(noise, int(histograms.max()), levels.classes)
    return np.exp(win_log_probabilities(levels, table)[:, 0]), passes


def draw(found: Sequence[Choice], chosen: Choice, target: Target, path: Path) -> None:
    """The trade-off as a picture: affordable answers against agreement, one curve per mechanism."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.0, 4.5))
    for name in sorted({choice.mechanism for choice in found}):
        points = sorted((c.answered, 100.0 * c.agreement) for c in found if c.mechanism == name)
        axes.plot(*zip(*points, strict=True), marker="o", linestyle="-" if len(points) < 20 else "", label=name)
    axes.plot(chosen.answered, 100.0 * chosen.agreement, marker="*", markersize=16, color="black", label="chosen")
    axes.set_xscale("log")
    axes.set_xlabel(f"labels within ε = {target.epsilon:g} at δ = {target.delta:g}")
    axes.set_ylabel("labels that name the majority class, %")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the plot cannot be written to {path}: {error}") from None
    finally:
        pyplot.close(figure)
