"""Who adds the noise is a property of the sum: what is seen, and so what is charged, follows from it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collegium_accounting.analysis.account import account
from collegium_accounting.analysis.epsilons import planned_charges
from collegium_accounting.errors import ConfigurationError, UnsupportedAccounting
from collegium_accounting.game.laws import VectorLaw
from collegium_accounting.game.winner import RoundLaw
from collegium_accounting.mechanisms import (
    COORDINATOR,
    AddedBy,
    Adjacency,
    SeededNoise,
    SumMode,
    Unit,
    create,
    known_names,
    mechanism_named,
)
from collegium_accounting.mechanisms.labels import ABSTAIN, NEXT_STAGE, LabelMechanism
from collegium_accounting.noise.distributed import NoiseShare

CONFIDENT = {"sigma1": 150.0, "sigma2": 40.0, "threshold": 200.0}
PARTIES = AddedBy(3)
REPLACED, COMES = Unit(1, Adjacency.REPLACE), Unit(1, Adjacency.ADD_REMOVE)


# μ and slack to the last bit, as they were when each noised form was a mechanism of its own.
@pytest.mark.parametrize(
    ("name", "parameters", "number", "unit", "mu", "slack"),
    [
        ("gnmax", {"sigma": 40.0}, 0, REPLACED, "0x1.21b884d05450bp-5", "0x1.ad7f29abcaf4ep-26"),
        ("confident-gnmax", CONFIDENT, 0, REPLACED, "0x1.34f288a87f5c9p-7", "0x1.e8abfd59a610ap-30"),
        ("confident-gnmax", CONFIDENT, 1, COMES, "0x1.99ba200caef57p-6", "0x1.ad7f29abcaf4ep-27"),
        (
            *("individual-knn", {"sigma": 7.0, "participations": 20, "levels": 8}, 0, COMES),
            *("0x1.249e8b24a6f19p-3", "0x1.b643106627e95p-22"),
        ),
        (
            *("class-sums", {"sigma": 3.0, "classes": 2}, 0, COMES),
            *("0x1.5555555555556p-2", "0x1.2a42f961f79b6p-19"),
        ),
        (
            *("record-counts", {"sigma": 3.0, "parts": 1, "cells": 20}, 0, REPLACED),
            *("0x1.e2b7dddfefbd2p-2", "0x1.2a42f961f79cep-18"),
        ),
    ],
)
def test_a_sum_that_three_honest_parties_noised_is_charged_as_before(
    name: str, parameters: dict[str, float], number: int, unit: Unit, mu: str, slack: str
) -> None:
    law = create(name, **parameters).summed(PARTIES)[number].law(unit)
    assert law == VectorLaw(float.fromhex(mu), float.fromhex(slack))


def test_a_class_sum_costs_the_same_however_many_honest_parties_share_its_noise() -> None:
    """A charge pays for the sum of all parties, and for that without those who stay away: by either bound."""
    sums = create("class-sums", sigma=4.7, classes=10)
    stages = [sums.summed(AddedBy(honest))[0] for honest in (1, 2, 3, 4, 5, 7, 8, 21, 24, 170, 225)]
    assert len({stage.law(COMES) for stage in stages}) == 1
    assert len({tuple(stage.charge((1.5, 2.0, 32.0), COMES).values) for stage in stages}) == 1


@pytest.mark.parametrize("unit", [REPLACED, COMES])
def test_a_threshold_test_costs_one_number_where_the_coordinator_adds_the_noise_and_the_whole_vector_else(
    unit: Unit,
) -> None:
    mechanism = create("confident-gnmax", **CONFIDENT)
    test, noised = mechanism.summed(COORDINATOR)[0], mechanism.summed(PARTIES)[0]
    assert isinstance(test.law(unit), RoundLaw)
    moved, entries = (math.sqrt(2.0), 2) if unit is REPLACED else (1.0, 1)
    assert noised.law(unit) == NoiseShare(150.0, 3).law(moved, entries)
    one, whole = (float(stage.charge((2.0,), unit).values[0]) for stage in (test, noised))
    assert one == pytest.approx(2.0 / (2.0 * 150.0**2)) and whole == pytest.approx(moved**2 * one)


@pytest.mark.parametrize("name", known_names())
def test_parties_share_the_noise_of_those_mechanisms_alone_that_say_so(name: str) -> None:
    required = {"k": 3, "classes": 2, "labels": 2, "sampling_rate": 0.5, "voters": 9, "tau": 1.0, "epsilon": 1.0}
    required |= {"participations": 2, "parts": 1, "cells": 5, "delta": 1e-3, "constant": 1.0, "threshold": 4.0}
    required |= {"sigma": 9.0, "sigma1": 9.0, "sigma2": 9.0, "gamma": 0.5, "accept_no_privacy": True}
    cls = mechanism_named(name)
    needed = {key: value for key, value in required.items() if key in cls.__dataclass_fields__}
    mechanism = create(name, **(needed | ({"gamma": None} if name == "nzc" else {})))
    if SumMode.MASKED_AND_NOISED in cls.sum_modes:
        shares = [stage.share for stage in mechanism.summed(PARTIES)]
        assert all(share is not None and share.honest_survivors == 3 for share in shares)
    else:
        with pytest.raises(ConfigurationError, match=f"{name} has none"):
            mechanism.summed(PARTIES)
    assert all(stage.share is None for stage in mechanism.summed(COORDINATOR))


def test_labels_are_read_off_a_noised_sum_and_nothing_is_added() -> None:
    mechanism = create("confident-gnmax", sigma1=1.0, sigma2=1.0, threshold=5.0)
    assert isinstance(mechanism, LabelMechanism)
    test, release = mechanism.summed(PARTIES)
    noisy = np.array([[-3, 5, 4], [4, -9, 4]])
    for seed in range(20):
        assert test.run(noisy, SeededNoise(seed)).tolist() == [NEXT_STAGE, ABSTAIN]
        assert release.run(noisy, SeededNoise(seed)).tolist() == [1, 0]


def test_a_share_of_less_than_half_a_vote_is_charged_for_nobody() -> None:
    for charged in (lambda stage: stage.law(REPLACED), lambda stage: stage.charge((2.0,), REPLACED)):
        with pytest.raises(ConfigurationError, match="raise sigma"):
            charged(create("gnmax", sigma=0.8).summed(PARTIES)[0])


def test_an_account_of_votes_is_refused_where_the_parties_add_the_noise() -> None:
    with pytest.raises(UnsupportedAccounting, match="--queries"):
        account(create("gnmax", sigma=40.0), votes=[[3, 1]], added=PARTIES)
    report = account(create("gnmax", sigma=40.0), queries=2, added=PARTIES).as_dict()
    assert (report["noise_added_by"], report["honest_survivors"]) == ("parties", 3)


def test_a_run_of_neighbours_is_charged_for_every_participation_where_the_parties_add_the_noise() -> None:
    mechanism = create("individual-knn", sigma=9.0, participations=4)
    for added, charged in ((COORDINATOR, 2), (PARTIES, 4)):
        (one,) = planned_charges(mechanism, mechanism.unit(), 2, added=added)
        assert one.queries == charged


@pytest.mark.parametrize("survivors", [-1, 10_001])
def test_a_number_of_survivors_that_no_consortium_has_is_refused(survivors: int) -> None:
    with pytest.raises(ConfigurationError, match="honest survivors"):
        AddedBy(survivors)
