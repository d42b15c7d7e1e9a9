"""Six regions whose truth is known: proportional hazards, other covariates in each, and censoring."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray
from survival.party import Surviving
from survival.question import SumSurvival
from survival.run import fits, whole

import collegium as cg
from collegium.coordinator.kinds.record_counts import Noisy
from collegium.data import Examples
from collegium.models.codes import Weights
from collegium.parties.kind import Asked
from collegium.protocol.question import QuestionTerms
from collegium_accounting.mechanisms.record_counts import ONE

Floats, Whole = NDArray[np.float64], NDArray[np.int64]
BINS, HORIZON = 12, 36.0
EFFECTS = np.array([1.5, -1.0, 0.8, 0.0])
RANGES = np.array([[0.0, 0, 0, 0, 0], [HORIZON, 1, 1, 1, 1]])
NAMES = [f"column-{number}" for number in range(1, 5)]
TASK = cg.Task.from_array(RANGES, ["censored", "died"])


def made(rng: np.random.Generator, records: int, region: int) -> tuple[Floats, Whole]:
    """Times and columns, and whether the event was seen, of a region."""
    x = rng.beta(1 + region / 3, 2, (records, 4))
    x[:, 2] = rng.random(records) < 0.3 + region / 20
    exact = 60.0 * rng.exponential(1.0, records) * np.exp(-(x - 0.5) @ EFFECTS)
    censored = np.minimum(rng.exponential(50.0, records), HORIZON + 1)
    return np.column_stack([np.minimum(exact, censored), x]), (exact <= censored).astype(np.int64)


def concordance(x: Floats, weights: Floats, event: Whole) -> float:
    """Harrell's C."""
    risk, pairs = x[:, 1:] @ weights, (x[:, :1] < x[:, 0]) & (event[:, None] > 0)
    return float((risk[:, None] > risk)[pairs].mean())


def kaplan_meier(time: Floats, event: Whole) -> Floats:
    """The exact curve at the end of each interval."""
    order = np.argsort(time)
    factors = 1 - event[order] / np.arange(len(time), 0, -1)
    return np.array([factors[time[order] <= end].prod() for end in np.linspace(0, HORIZON, BINS + 1)[1:]])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_curve_and_concordance_are_those_of_the_records_at_epsilon_1(seed: int) -> None:
    rng = np.random.default_rng(seed)
    regions = [made(rng, 1000, region) for region in range(6)]
    records = {f"region-{number}": (x, event) for number, (x, event) in enumerate(regions)}
    policy = cg.PolicyConfig(questions=("class-sums", "survival"), minimum_noise_sums=1.0, record_epsilon=2.0)
    parties = cg.LocalParties(records, TASK, policy=policy, seed=seed)
    counts = {"survival": {"time": "column-0", "columns": NAMES, "bins": BINS, "share": 0.9}}
    coordinator = cg.Coordinator(parties, RANGES, cg.ClassSums(sigma=60.0, classes=2), epsilon=1, counts=counts)
    coordinator.label(2)
    assert 0.8 < coordinator.epsilon <= 1.0
    found = {name: value for name, value, _ in coordinator.record.counts["survival"].found.rows}
    x, event = (np.concatenate(every) for every in zip(*regions, strict=True))
    curve = np.array([value for name, value in found.items() if name.startswith("survive")])
    assert np.abs(curve - kaplan_meier(x[:, 0], event)).max() < 0.03
    new, seen = made(np.random.default_rng(100 + seed), 3000, 2)
    private = concordance(new, np.array([found[f"{name}: half of 0 to 1"] for name in NAMES]), seen)
    for without_noise in (EFFECTS, of_records(x, event)):
        assert 0.6 < concordance(new, without_noise, seen) < private + 0.03


def asked(adjacency: str, weights: Weights | None) -> SumSurvival:
    terms = QuestionTerms("record-counts", {"sigma": 9.0, "parts": 2, "cells": 26 + 72}, adjacency)
    return SumSurvival(terms, "ledger", False, 0, (1, 2, 3, 4), BINS, 8, weights)


def answer(question: SumSurvival, x: Floats, event: Whole, groups: NDArray[np.str_] | None = None) -> Floats:
    examples = Examples(cg.encode(x, TASK), event, groups)
    return Surviving(SimpleNamespace(examples=examples, task=TASK)).compute(question, Asked("run", "round"))[0] / ONE


def of_records(x: Floats, event: Whole) -> Floats:
    """The same model of all records together, without noise."""
    rounds, weights = list[Noisy](), None
    for _ in range(5):
        rounds.append(Noisy(answer(asked("add-remove", weights), x, event), 1e-6))
        found, _ = fits(rounds, BINS, 8)[-1]
        weights = Weights.of(whole(found)[:, None])
    return found[BINS::2]


@pytest.mark.parametrize(("adjacency", "longest"), [("add-remove", 2**0.5), ("replace", 1.5**0.5)])
def test_no_record_or_person_moves_the_sum_further_than_is_charged(adjacency: str, longest: float) -> None:
    rng = np.random.default_rng(0)
    x, event = rng.uniform(-0.2, 1.2, (100, 5)) * [HORIZON, 1, 1, 1, 1], rng.integers(0, 2, 100)
    wild = rng.choice([-(2**30), 0, 2**30], (BINS + 8, 1)).astype(np.int32)
    lengths, x[rng.random(x.shape) < 0.1] = [], np.nan
    for weights in (None, Weights(wild, -26), Weights(wild, -40)):
        question = asked(adjacency, weights)
        alone = np.array([answer(question, x[[n]], event[[n]]) for n in range(100)])
        person = [answer(question, x[n : n + 7], event[n : n + 7], np.full(7, "one")) for n in range(60)]
        assert (answer(question, x, event) == alone.sum(axis=0)).all(), "a record's part hangs on the others"
        replaced = np.linalg.norm(alone[:, None, :] - alone[None, ::3, :], axis=2).max()
        assert adjacency == "add-remove" or replaced <= 2.0
        lengths += [np.linalg.norm(alone, axis=1), np.linalg.norm(person, axis=1)]
    assert np.concatenate(lengths).max() <= longest < 1.001 * np.concatenate(lengths).max()  # met: less would fail


def test_a_part_that_is_not_shortened_is_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("survival.party.bounded", lambda parts, longest: parts)
    with pytest.raises(AssertionError):
        test_no_record_or_person_moves_the_sum_further_than_is_charged("add-remove", 2**0.5)
