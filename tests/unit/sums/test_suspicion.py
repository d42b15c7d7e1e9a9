"""A group is named where it spoils the result for the others, and an honest one is not. All noise is from seeds."""

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2
from support.sums_scene import POOL, SPEC, TASK

from collegium.coordinator.groups import Suspected, Verdict, _beyond, changed, differ, judged, suspicion
from collegium.coordinator.journal import Part
from collegium.coordinator.kinds.class_sums import _JudgedRounds
from collegium.data import Examples
from collegium.errors import Contradiction
from collegium.models.codes import Weights
from collegium.models.kernels import KernelMap
from collegium.models.noisy_sums import NoisySums, Round, added_up
from collegium.models.pool_spectrum import PoolSpectrum
from collegium.parties.kinds.class_sums import RecordsOfClasses
from collegium_accounting.mechanisms.class_sums import bound_squared

CLASSES, SIGMA = len(TASK.classes), 6.0
UNIT = float(np.sqrt(bound_squared(CLASSES)))


def records(seed: int) -> Examples:
    """400 records whose class is the largest of their first columns, nine times of ten."""
    random = np.random.default_rng(seed)
    x = random.random((400, POOL.shape[1])).astype(np.float32)
    told = x[:, :CLASSES].argmax(axis=1)
    return Examples(x, np.where(random.random(400) < 0.9, told, random.integers(0, CLASSES, 400)))


@pytest.fixture(scope="module")
def spectrum(kernel: KernelMap) -> PoolSpectrum:
    return PoolSpectrum.of_pool(kernel, POOL)


@pytest.fixture(scope="module")
def honest(kernel: KernelMap) -> list[np.ndarray]:
    return [RecordsOfClasses(records(seed), TASK).sums(kernel) for seed in range(9)]


def shifted(own: np.ndarray, factor: int) -> np.ndarray:
    blocks = own[:-1].reshape(CLASSES, -1)
    return factor * np.append(np.roll(blocks, 1, axis=0).reshape(-1), own[-1])


def released(vectors: Sequence[np.ndarray], groups: int, seed: int) -> list[Part]:
    random, parts = np.random.default_rng(seed), []
    for number in range(groups):
        total = np.sum(vectors[number::groups], axis=0)
        drawn = np.rint(random.normal(0.0, SIGMA * UNIT, total.shape)).astype(np.int64)
        parts.append(Part(total + drawn, SIGMA * UNIT, (f"of group {number}",)))
    return parts


def named(parts: Sequence[Part], spectrum: PoolSpectrum) -> Suspected | None:
    groups = [NoisySums(SPEC, (Round(part.values, part.noise),)) for part in parts]
    return suspicion(groups, lambda sums: sums.classifier(POOL, TASK, spectrum=spectrum), spectrum, CLASSES)


@pytest.mark.parametrize("seed", range(20))
def test_honest_groups_are_all_in(honest: list[np.ndarray], spectrum: PoolSpectrum, seed: int) -> None:
    assert named(released(honest, 3, seed), spectrum) is None


@pytest.mark.bits
@pytest.mark.parametrize("groups", [3, 4])
@pytest.mark.parametrize("factor", [10, 1_000])
def test_the_group_of_shifted_classes_is_named(
    honest: list[np.ndarray], spectrum: PoolSpectrum, groups: int, factor: int
) -> None:
    for seed in range(5):
        liar = seed % groups
        sent = [shifted(own, factor) if number == liar else own for number, own in enumerate(honest)]
        found = named(released(sent, groups, seed), spectrum)
        assert found is not None and found.group == liar


@pytest.mark.parametrize("groups", [1, 2])
def test_of_fewer_than_three_groups_none_is_named(
    honest: list[np.ndarray], spectrum: PoolSpectrum, groups: int
) -> None:
    """Each accuses the other."""
    sent = [shifted(own, 1_000) if number == 0 else own for number, own in enumerate(honest)]
    assert named(released(sent, groups, 0), spectrum) is None


def test_another_number_of_records_is_nothing_that_differs(honest: list[np.ndarray], spectrum: PoolSpectrum) -> None:
    large = [own * (20 if number == 1 else 1) for number, own in enumerate(honest)]
    for seed in range(10):
        assert named(released(large, 3, seed), spectrum) is None


def rounds(
    groups: Sequence[Examples], lying: int | None, factor: int, kernel: KernelMap, spectrum: PoolSpectrum, sigma: float
) -> tuple[list[NoisySums], list[NoisySums]]:
    """The first and the second round of each group; ``lying`` shifts its classes in the second, ``factor`` times."""
    random = np.random.default_rng(5)

    def noised(values: np.ndarray, weights: Weights | None) -> NoisySums:
        drawn = np.rint(random.normal(0.0, sigma * UNIT, values.shape)).astype(np.int64)
        return NoisySums(SPEC, (Round(values + drawn, sigma * UNIT, weights),))

    times = [factor if number == lying else 1 for number in range(len(groups))]
    own = [RecordsOfClasses(group, TASK).sums(kernel) for group in groups]
    before = [noised(many * sums, None) for many, sums in zip(times, own, strict=True)]
    weights = added_up(before).next_weights(spectrum, CLASSES, 8, sigma * UNIT)
    assert weights is not None
    after = []
    for number, (many, group) in enumerate(zip(times, groups, strict=True)):
        labels = (group.labels() + (number == lying)) % CLASSES
        after.append(noised(many * RecordsOfClasses(Examples(group.x, labels), TASK).sums(kernel, weights), weights))
    return before, after


@pytest.mark.parametrize("liar", [0, 2])
def test_a_group_that_lies_from_the_second_round_on_has_changed(
    kernel: KernelMap, spectrum: PoolSpectrum, liar: int
) -> None:
    """At the price of its own first round, in which it was honest; the others have not, however much it counts."""
    before, after = rounds([records(seed) for seed in range(3)], liar, 10, kernel, spectrum, SIGMA)
    assert changed(before, after, spectrum, CLASSES) == [liar]
    assert differ(added_up(after), added_up(before), spectrum, CLASSES)


@pytest.mark.parametrize("sigma", [SIGMA, 0.01])
def test_honest_groups_have_not_changed_where_records_lie_otherwise_than_the_pool(
    kernel: KernelMap, spectrum: PoolSpectrum, sigma: float
) -> None:
    """The pool tells wrongly what the weights took off, by more than noise and chance explain where there is little."""

    def elsewhere(seed: int) -> Examples:
        own = [records(20 * seed + number) for number in range(20)]
        x = np.concatenate([one.x for one in own])
        return Examples(x**4, np.concatenate([one.labels() for one in own]))

    before, after = rounds([elsewhere(seed) for seed in range(3)], None, 1, kernel, spectrum, sigma)
    assert not changed(before, after, spectrum, CLASSES)
    if sigma < 1.0:
        assert differ(added_up(after), added_up(before), spectrum, CLASSES), "so much the pool misleads here"


@pytest.mark.bits
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_an_honest_difference_is_as_rare_as_its_probability_says(classes: int) -> None:
    """100,000 sums of squares under weights that fall; each assertion fails by chance with probability 1e-5 at most.

    With two classes a multiple of χ² with the same mean and spread is passed three times as often as it says at 0.003.
    """
    eigenvalues, random = 1.0 / np.arange(1.0, 61.0), np.random.default_rng(9)
    weights = eigenvalues / (eigenvalues + 4.0)
    drawn = random.chisquare(classes - 1, (100_000, len(weights))) @ weights
    for chance in (0.01, 0.003, 0.001):
        low, high = 0.0, float(drawn.max()) * 4.0
        while high - low > 1e-6 * high:
            middle = (low + high) / 2.0
            rarer = _beyond(np.full(len(weights), middle / weights.sum()), weights, classes) < chance
            low, high = (low, middle) if rarer else (middle, high)
        expected = len(drawn) * chance
        assert abs(int((drawn > high).sum()) - expected) < 5.0 * np.sqrt(expected)


@pytest.mark.parametrize("axes", [4, 40])
def test_equal_weights_give_the_law_of_one_sum_of_squares(axes: int) -> None:
    for classes, squares in itertools.product((3, 10), (0.5, 2.0, 4.0)):
        found = _beyond(np.full(axes, squares * (classes - 1)), np.full(axes, 0.3), classes)
        assert 0.0 <= found - chi2.sf(axes * squares * (classes - 1), axes * (classes - 1)) < 1e-10
    assert _beyond(np.full(axes, 1e9), np.full(axes, 0.3), 3) <= 1e-12


def test_a_group_that_contradicts_itself_is_left_out_and_two_are_refused() -> None:
    groups = [Part(np.zeros(1, dtype=np.int64), 1.0, (name,)) for name in ("alpha", "beta", "gamma")]

    def check_but(*false: str) -> object:
        def check(part: Part) -> None:
            if part.parties[0] in false:
                raise Contradiction("too long: and what to do")

        return check

    def nobody() -> Suspected | None:
        return None

    verdict = judged(groups, check_but("beta"), nobody)  # type: ignore[arg-type]
    assert verdict.left_out == 1 and verdict.spoilt == {"beta"} and verdict.why.endswith(": too long")
    assert [part.parties[0] for part in verdict.kept(groups)] == ["alpha", "gamma"]
    assert judged(groups, check_but(), nobody) == Verdict((("alpha",), ("beta",), ("gamma",)))  # type: ignore[arg-type]
    for false, among in ((("alpha", "beta"), groups), (("alpha",), groups[:1])):
        with pytest.raises(Contradiction, match="what to do"):
            judged(among, check_but(*false), nobody)  # type: ignore[arg-type]
    with pytest.raises(Contradiction, match="all parties together"):
        verdict.kept([Part(np.zeros(1, dtype=np.int64), 1.0, ("alpha", "beta", "gamma"))])


def asks(number: int, network: bytes | None = None, *, drawn: bool = False) -> Any:
    """Who asks for a round of class sums; ``network`` names another map, which is the same here."""
    facts = SimpleNamespace(config=SimpleNamespace(task=TASK, drawn=drawn), pool=POOL)
    asked = {"weights": None, "per_party": False, "most_records": 2**20, "spec": SPEC}
    return SimpleNamespace(number=number, of_inputs=0, network=network, map=(network, None), facts=facts, **asked)


@pytest.mark.parametrize("network", [None, b"learned"])
@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("lies", [False, True])
def test_a_lie_in_a_sum_of_all_together_does_not_reach_the_result(
    honest: list[np.ndarray], network: bytes | None, drawn: bool, lies: bool
) -> None:
    """The first round is by groups, and honest; of the second the first says whether it is believed.

    Where records' features are drawn, how honest ones lie is not known: only what no records give is left out.
    """
    groups, rounds = tuple(released(honest, 3, 1)), _JudgedRounds(3, CLASSES, "cpu")
    first = rounds.heard_of(asks(1, drawn=drawn), groups)
    assert rounds.heard_of(asks(1, drawn=drawn), ()) is first, "what is known is not judged again"
    sent = [
        np.append(shifted(own, 1)[:-1], own[-1]) if lies and number < 5 else own for number, own in enumerate(honest)
    ]
    members = tuple(name for part in groups for name in part.parties)
    of_all = released(sent, 1, 2)[0]._replace(parties=members)
    found = rounds.heard_of(asks(2, network, drawn=drawn), (of_all,))
    believed = any(np.array_equal(one.values, of_all.values) for one in found.rounds)
    assert believed == (drawn or not lies) and bool(rounds.doubted) != believed
    assert rounds.verdict.left_out is None, "of a sum of all together nobody can be named"
