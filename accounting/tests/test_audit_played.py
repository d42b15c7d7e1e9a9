"""What an audit plays is what a mechanism releases; noise is drawn from seeds, so no verdict hangs on luck."""

from typing import Any

import pytest

from collegium_accounting.analysis.audit import Audit, audit
from collegium_accounting.mechanisms import Mechanism, SeededNoise, create

SUMS = create("class-sums", sigma=2.0, classes=5, rounds=2)
COUNTS = create("record-counts", sigma=3.0, parts=3, cells=9)


class HalfTheNoise(SeededNoise):
    """A planted bug."""

    def gaussian(self, sigma: float, shape: tuple[int, ...]) -> Any:
        return super().gaussian(sigma / 2.0, shape)


def audited(mechanism: Mechanism, noise: SeededNoise, rounds: int) -> Audit:
    return audit(mechanism, noise, teachers=20, rounds=rounds, runs=200_000, delta=1e-3)


@pytest.mark.parametrize(("mechanism", "rounds"), [(SUMS, 2), (COUNTS, 1)])
def test_whole_noisy_vectors_are_attacked_and_the_bound_comes_close(mechanism: Mechanism, rounds: int) -> None:
    found = audited(mechanism, SeededNoise(1), rounds)
    assert found.consistent and found.rounds == rounds and found.expected_rate is not None
    assert 0.6 * found.epsilon_stated < found.epsilon_lower_bound < found.epsilon_stated


@pytest.mark.parametrize("mechanism", [SUMS, COUNTS])
def test_planted_bug_half_of_the_noise_on_a_vector_is_refuted(mechanism: Mechanism) -> None:
    found = audited(mechanism, HalfTheNoise(1), 1)
    assert not found.follows_its_law and not found.consistent


@pytest.mark.bits
def test_a_record_takes_part_in_as_many_rounds_as_its_budget_pays_for() -> None:
    """Played in all rounds, a correct mechanism was refuted."""
    once = create("individual-knn", sigma=4.0, participations=1)
    found = audited(once, SeededNoise(1), 10)
    assert found.consistent and found.rounds == 1
    paid_for_one = found.epsilon_stated
    often = audited(create("individual-knn", sigma=4.0, participations=10), SeededNoise(1), 10)
    assert often.consistent and often.rounds == 10 and often.epsilon_lower_bound > paid_for_one


def test_a_class_sum_is_released_as_often_as_its_mechanism_says() -> None:
    assert audited(SUMS, SeededNoise(1), 40).rounds == 2
