"""The suite for mechanisms: what is released costs no more than the mechanism says.

The empirical part runs the mechanism on neighbouring vote histograms. The event whose rates differ most is chosen
on a pilot; fresh runs then give the two rates p and q with Clopper-Pearson bounds. The law that the ledger charges
states δ for every ε, and p − e^ε·q above that δ refutes it.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from collegium.errors import DataError, UnsupportedAccounting
from collegium_accounting.analysis.attack import Histogram, histograms, neighbours
from collegium_accounting.analysis.audit import clopper_pearson
from collegium_accounting.analysis.epsilons import planned_charges, rounds_of
from collegium_accounting.divergences.laws import log_win_probabilities
from collegium_accounting.game.laws import block_profile
from collegium_accounting.game.profile import Profile
from collegium_accounting.mechanisms.base import Noise
from collegium_accounting.mechanisms.labels import ABSTAIN, LabelMechanism, LabelStage, labels_of
from collegium_accounting.mechanisms.registry import create, known_names
from collegium_accounting.mechanisms.votes import VoteMechanism
from collegium_accounting.noise.distributed import COORDINATOR, AddedBy
from collegium_accounting.noise.sources import SeededNoise, SystemNoise
from collegium_accounting.renyi import RenyiCurve
from collegium_accounting.units import Adjacency, IntArray, Unit
from collegium_conformance.promises import promise, refuses

DELTAS = (0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4)
"""The stated law is tested at the ε of each δ, and at ε = 0."""
ORDERS = (1.5, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0)
FAILURE_PROBABILITY = 1e-6
_PILOT_RUNS = 20_000
_PAIRS_TESTED = 3
_ROUNDING = 1e-9
_BATCH = 100_000

Sums = Callable[[tuple[int, ...], int, np.random.Generator], IntArray]
"""What the parties' sum may be for one histogram: ``(histogram, runs, generator)`` to ``[runs, classes]``."""


@dataclasses.dataclass(frozen=True)
class _Tried:
    """A mechanism, who adds its noise, and the histograms and the seed that it is tried with."""

    mechanism: LabelMechanism
    added: AddedBy
    teachers: int
    classes: int
    seed: int

    @property
    def name(self) -> str:
        return self.mechanism.name

    @property
    def stages(self) -> tuple[LabelStage, ...]:
        return self.mechanism.summed(self.added)

    def release(self, counts: IntArray, noise: Noise) -> IntArray:
        return labels_of(self.stages, counts, noise)


def check_mechanism(  # noqa: PLR0913 -- one call with names for a test
    mechanism: LabelMechanism,
    *,
    teachers: int = 20,
    classes: int = 3,
    added: AddedBy = COORDINATOR,
    sums: Sums | None = None,
    runs: int = 200_000,
    seed: int = 0,
) -> None:
    """Check that a mechanism keeps its promises.

    Parameters
    ----------
    mechanism : LabelMechanism
        The mechanism with its parameters. Noise of a few votes is measured more sharply than noise of many.
    teachers : int
        Votes per query in the histograms that are tried; for a mechanism with a threshold, somewhat above it.
    classes : int
        Classes in the histograms that are tried, at least 2.
    added : AddedBy
        Who adds the noise: where the parties do, give the ``sums`` that carry it.
    sums : callable, optional
        What the parties' sum is for a histogram of all records, where it is not the histogram itself: a sample of
        the records, or a sum that carries the parties' noise. Takes the histogram (a tuple of counts), a number of
        runs and a numpy generator, and returns int64 ``[runs, classes]``. Such sums are no votes, so that the
        refusal of wrong votes is not asked for. The mechanism's tie rule and the
        independence of its draws are then checked on the histogram itself all the same.
    runs : int
        Releases on each of the two neighbours, at least 1,000.
    seed : int
        Of the noise; another seed is another experiment.

    Raises
    ------
    AssertionError
        With the promise that is broken: a name or source is missing; the parameters do not make the same mechanism
        again; a charge is no valid curve, falls as a unit gets more votes, or lies below the mechanism's own exact
        loss; the law that a ledger charges states less than what was measured; wrong votes are not refused; ties
        go to another class than the lowest; noise is reused. A mechanism that keeps its promises fails with
        probability at most 1e-6.

    References
    ----------
    Clopper and Pearson 1934; δ at every ε: docs/research/exact-accountant.md.
    """
    promise(runs >= 1000 and teachers >= 2 and classes >= 2, "the suite needs 1000 runs, 2 teachers and 2 classes")
    _check_description(mechanism)
    tried = _Tried(mechanism, added, teachers, classes, seed)
    curves = dict(_checked_charges(tried))
    _check_release(tried)
    if sums is None:
        _check_refusals(tried)
    _check_independence(tried)
    _check_ties(tried)
    for adjacency, curve in curves.items():
        if sums is None:
            _check_exact_loss(tried, adjacency, curve)
        _check_measured_loss(tried, adjacency, sums or _as_it_is, runs)


def _as_it_is(histogram: Histogram, runs: int, generator: np.random.Generator) -> IntArray:
    return np.tile(np.asarray(histogram, dtype=np.int64), (runs, 1))


def _check_description(mechanism: LabelMechanism) -> None:
    cls = type(mechanism)
    frozen = getattr(getattr(cls, "__dataclass_params__", None), "frozen", False)
    promise(dataclasses.is_dataclass(cls) and frozen, f"{cls.__qualname__} must be a frozen dataclass")
    promise(isinstance(mechanism, LabelMechanism), f"{cls.__qualname__} must derive from LabelMechanism")
    for part in ("name", "source"):
        text = getattr(cls, part, "")
        promise(isinstance(text, str) and bool(text), f"{cls.__qualname__} has no {part}")
    name = cls.name
    promise(name in known_names(), f"{name} is not registered: put @register on {cls.__qualname__}")
    parameters = mechanism.parameters()
    for key, value in parameters.items():
        finite = isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
        promise(finite, f"{name}: the parameter {key!r} is {value!r}; a ledger keeps finite numbers and texts")
    again = create(name, **parameters)
    promise(again == mechanism, f"{name}: parameters() must make the same mechanism again; got {again}")
    promise(len(mechanism.stages) > 0, f"{name} has no stage, so nothing would be charged")


def _charge(tried: _Tried, unit: Unit) -> RenyiCurve:
    curves = [stage.charge(ORDERS, unit) for stage in tried.stages]
    return sum(curves[1:], curves[0])


def _checked_charges(tried: _Tried) -> Iterator[tuple[Adjacency, RenyiCurve]]:
    """The charge of one query for one vote, per adjacency that the mechanism covers; at least one."""
    covered = 0
    for adjacency in Adjacency:
        try:
            one = _charge(tried, Unit(1, adjacency))
        except UnsupportedAccounting:
            continue
        covered += 1
        rising = one.values[np.isfinite(one.values)]
        grows = bool((np.diff(rising) >= -_ROUNDING * (1.0 + rising[:-1])).all())
        promise(grows, f"{tried.name}: a Rényi divergence cannot fall as the order rises, but the charge does")
        try:
            two = _charge(tried, Unit(2, adjacency))
        except UnsupportedAccounting:
            pass
        else:
            larger = bool((two.values >= one.values * (1.0 - _ROUNDING)).all()) and two.delta >= one.delta
            promise(larger, f"{tried.name}: a unit of two votes is charged less than a unit of one vote")
        yield adjacency, one
    promise(covered > 0, f"{tried.name} states a charge for no adjacency")


def _check_release(tried: _Tried) -> None:
    votes = np.zeros((4, tried.classes), dtype=np.int64)
    votes[:, 0] = tried.teachers
    kept = votes.copy()

    def released(counts: IntArray) -> IntArray:
        return tried.release(counts, SystemNoise())

    labels = released(votes)
    promise((votes == kept).all(), f"{tried.name} changes the votes that it is given")
    promise(
        isinstance(labels, np.ndarray) and len(labels) == 4 and labels.dtype == np.int64,
        f"{tried.name} must release one int64 outcome per query",
    )
    inside = (labels == ABSTAIN) | ((labels >= 0) & (labels < max(tried.classes, 2)))
    promise(bool(inside.all()), f"{tried.name} releases what is neither a class nor {ABSTAIN} (no label)")
    empty = released(votes[:0])
    promise(len(empty) == 0, f"{tried.name} releases labels although no query was asked")


def _check_refusals(tried: _Tried) -> None:
    votes = np.full((4, tried.classes), tried.teachers, dtype=np.int64)
    for wrong, what in (
        (votes - tried.teachers - 1, "negative counts"),
        (votes + 0.5, "counts that are no whole numbers"),
        (votes[0], "counts without the shape [queries, classes]"),
    ):
        refuses(
            DataError,
            lambda wrong=wrong: [stage.run(wrong, SystemNoise()) for stage in tried.stages[:1]],  # type: ignore[misc]
            f"{tried.name} must refuse {what} with DataError",
        )


class _Noiseless:
    """Noise that is always 0, which makes ties visible."""

    private = False

    def laplace(self, scale: float, shape: tuple[int, ...]) -> IntArray:
        return np.zeros(shape, dtype=np.int64)

    def gaussian(self, sigma: float, shape: tuple[int, ...]) -> IntArray:
        return np.zeros(shape, dtype=np.int64)

    def gumbel_argmax(self, counts: IntArray, scale: float) -> IntArray:
        return np.asarray(counts.argmax(axis=1), dtype=np.int64)


def _check_ties(tried: _Tried) -> None:
    """Discrete noise makes ties, and the exact accounting counts them for the lowest class."""
    half = max(1, tried.teachers // 2)
    tied = np.array([[half] * tried.classes, [0] * (tried.classes - 2) + [half, half]], dtype=np.int64)
    labels = tried.release(tied, _Noiseless())
    for row, label in zip(tied, labels.tolist(), strict=True):
        lowest = int(row.argmax())
        promise(
            label in (lowest, ABSTAIN),
            f"{tried.name}: of equal noisy counts the lowest class must win, here {lowest}, not {label}: "
            "the analysis of discrete noise counts ties that way",
        )


def _check_independence(tried: _Tried) -> None:
    """Equal histograms agree as often within one release as across releases, or noise is shared between them.

    Compared are the rates at which two outcomes agree: neighbouring rows of one release, equal rows of two
    releases, and different rows of two releases, which share nothing. Each rate lies in its Clopper-Pearson
    interval but for probability 1e-6 / 3.
    """
    histogram = _undecided(tried)
    calls, rows = 2_000, 10
    once, again = (tried.release(np.tile(histogram, (calls, 1)), SeededNoise(tried.seed)) for _ in range(2))
    promise(
        bool((once == again).all()),
        f"{tried.name} draws randomness beside the noise that it is given: equal seeds give other labels",
    )
    noise = SeededNoise(tried.seed + 1)
    drawn = np.stack([tried.release(np.tile(histogram, (rows, 1)), noise) for _ in range(calls)])
    across = drawn[0::2, 0::2] == drawn[1::2, 1::2]
    for shared, what in (
        (drawn[:, 0::2] == drawn[:, 1::2], "for several queries of one release"),
        (drawn[0::2] == drawn[1::2], "in two releases"),
    ):
        low, high = clopper_pearson(int(shared.sum()), shared.size, FAILURE_PROBABILITY / 6)
        other_low, other_high = clopper_pearson(int(across.sum()), across.size, FAILURE_PROBABILITY / 6)
        # Rows that agree by chance are not independent of one another where noise is shared, but then the rate is 1.
        promise(
            low <= other_high and other_low <= high,
            f"{tried.name} uses the same noise {what}: equal votes agree in {shared.mean():.1%} of the cases, "
            f"and in {across.mean():.1%} where nothing is shared",
        )


def _undecided(tried: _Tried) -> IntArray:
    """Among the histograms that are tried, the one whose most frequent outcome is the least frequent."""
    noise = SeededNoise(tried.seed)
    rows = [np.array(row, dtype=np.int64) for row in histograms(tried.teachers, tried.classes)]
    frequent = [np.unique(tried.release(np.tile(row, (500, 1)), noise), return_counts=True)[1].max() for row in rows]
    return rows[int(np.argmin(frequent))]


def _check_exact_loss(tried: _Tried, adjacency: Adjacency, curve: RenyiCurve) -> None:
    """The data-independent charge lies above the mechanism's own exact loss between any two neighbours."""
    mechanism, generator = tried.mechanism, np.random.default_rng(tried.seed)
    if not isinstance(mechanism, VoteMechanism) or mechanism.noise_law(discrete=True) is None:
        return
    random = generator.multinomial(tried.teachers, generator.dirichlet(np.ones(tried.classes), size=20))
    orders = np.array(ORDERS)[:, None]
    for pair in neighbours([*histograms(tried.teachers, tried.classes), *map(tuple, random.tolist())], adjacency):
        laws = _log_laws(mechanism, np.array(pair, dtype=np.int64))
        for one, other in (laws, laws[::-1]):
            moments = orders * one + (1.0 - orders) * other
            peak = moments.max(axis=1)
            losses = (peak + np.log(np.exp(moments - peak[:, None]).sum(axis=1))) / (orders[:, 0] - 1.0)
            column = int((losses - curve.values).argmax())
            promise(
                bool(losses[column] <= curve.values[column] * (1.0 + 1e-6) + _ROUNDING),
                f"{mechanism.name} charges {curve.values[column]:.4g} at order {ORDERS[column]:g} under "
                f"{adjacency.value}, but its exact loss between {pair[0]} and {pair[1]} is {losses[column]:.4g}: the "
                "charge is too small",
            )


def _log_laws(mechanism: VoteMechanism, counts: IntArray) -> NDArray[np.float64]:
    """log Pr of each outcome of a release, the abstention last where there is one; ``[histograms, outcomes]``."""
    noise, screen = mechanism.noise_law(discrete=True), mechanism.screen_law(discrete=True)
    assert noise is not None
    wins = log_win_probabilities(counts, noise)
    if screen is None:
        return wins
    most = counts.max(axis=1)
    return np.column_stack([wins + screen.log_pass(most)[:, None], screen.log_fail(most)])


@dataclasses.dataclass(frozen=True)
class _Rates:
    """How often an event came on each of two neighbours: bounds of both rates that hold together."""

    low: float
    high: float
    other_low: float
    other_high: float

    def least_failure(self, epsilon: float) -> float:
        """The smallest δ that fits the bounds at ``epsilon``."""
        first = self.low - math.exp(epsilon) * self.other_high
        return max(first, (1.0 - self.high) - math.exp(epsilon) * (1.0 - self.other_low))


def _stated_profile(tried: _Tried, adjacency: Adjacency) -> Profile | None:
    """What one answer costs by the laws that a ledger charges; None where nothing finite is stated."""
    charges = planned_charges(tried.mechanism, Unit(1, adjacency), 1, added=tried.added)
    try:
        return block_profile(rounds_of(charges, tried.classes), DELTAS[-1])
    except UnsupportedAccounting:
        return None


def _check_measured_loss(tried: _Tried, adjacency: Adjacency, sums: Sums, runs: int) -> None:
    profile = _stated_profile(tried, adjacency)
    if profile is None:
        return
    stated = _stated(profile)
    noise, generator = SeededNoise(tried.seed + 2), np.random.default_rng(tried.seed)

    def draw(histogram: Histogram, number: int) -> IntArray:
        parts = [min(_BATCH, number - start) for start in range(0, number, _BATCH)]
        return np.concatenate([tried.release(sums(histogram, part, generator), noise) for part in parts])

    pilots = []
    for pair in neighbours(histograms(tried.teachers, tried.classes), adjacency):
        first, second = (draw(histogram, _PILOT_RUNS) for histogram in pair)
        for event in _events(first, second):
            for one, other, order in ((first, second, pair), (second, first, pair[::-1])):
                statements = _statements(stated, _rates(one, other, event, 1e-3))
                excess = max((least / max(charged, 1e-300) for least, charged, _ in statements), default=-math.inf)
                pilots.append((excess, order, event))
    pilots.sort(key=lambda pilot: pilot[0], reverse=True)
    for _, (base, moved), event in pilots[:_PAIRS_TESTED]:
        rates = _rates(draw(base, runs), draw(moved, runs), event, FAILURE_PROBABILITY / (4 * _PAIRS_TESTED))
        for least, charged, where in _statements(stated, rates):
            promise(
                least <= charged,
                f"{tried.name} states δ = {charged:.4g} at {where}, but at least {least:.4g} was measured between "
                f"{base} and {moved} under {adjacency.value}: the noise is too small or reused, or the law too small",
            )


def _events(first: IntArray, second: IntArray) -> list[NDArray[np.int64]]:
    """Each outcome, and the outcomes that are more frequent on the first histogram, together."""
    known = np.unique(np.concatenate([first, second]))
    likelier = np.array([value for value in known if (first == value).sum() > (second == value).sum()], dtype=np.int64)
    return [*(np.array([value]) for value in known), likelier]


def _rates(first: IntArray, second: IntArray, event: NDArray[np.int64], failure: float) -> _Rates:
    bounds = [clopper_pearson(int(np.isin(one, event).sum()), len(one), failure) for one in (first, second)]
    return _Rates(*bounds[0], *bounds[1])


def _stated(profile: Profile) -> list[tuple[float, float]]:
    """Each ε at which δ is compared, with the δ that is stated."""
    never = profile.delta(700.0)  # what stays, however large ε is
    epsilons = {0.0, *(profile.epsilon(max(delta, 2.0 * never)) for delta in DELTAS)}
    return [(epsilon, profile.delta(epsilon) * (1.0 + _ROUNDING)) for epsilon in sorted(epsilons)]


def _statements(stated: list[tuple[float, float]], rates: _Rates) -> list[tuple[float, float, str]]:
    """For each ε: the least δ that fits ``rates``, the δ that is stated, and where."""
    return [(rates.least_failure(epsilon), delta, f"ε = {epsilon:.4g}") for epsilon, delta in stated]
