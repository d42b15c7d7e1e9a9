"""Six hospitals whose truth is known: a length of stay that follows from three columns, and noise of its own."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray
from regression.party import Squares
from regression.question import SumSquares

import collegium as cg
from collegium.data import Examples
from collegium.parties.kind import Asked
from collegium.protocol.question import QuestionTerms
from collegium_accounting.mechanisms.record_counts import ONE

Floats = NDArray[np.float64]
RANGES = np.array([[0.0, 0, 0, 0], [30.0, 1, 1, 1]])
TASK = cg.Task.from_array(RANGES, ["no", "yes"])
EFFECTS, MIDDLE, OWN = np.array([8.0, -6.0, 0.0]), 15.0, 2.0
NAMES = ("column-1", "column-2", "column-3")


def made(rng: np.random.Generator, records: int, hospital: int = 0) -> Floats:
    x = rng.beta(1 + hospital / 3, 1.5, (records, 3))
    stay = MIDDLE + (2 * x - 1) @ EFFECTS / 2 + rng.normal(0, OWN, records)
    return np.column_stack([np.clip(stay, 0, 30), x])


def question(adjacency: str, per_party: bool = False) -> SumSquares:
    terms = QuestionTerms("record-counts", {"sigma": 9.0, "parts": 1, "cells": 36}, adjacency)
    return SumSquares(terms, "ledger", per_party, 0, (1, 2, 3), 6)


def answer(asked: SumSquares, x: Floats, groups: NDArray[np.str_] | None = None) -> Floats:
    examples = Examples(cg.encode(x, TASK), np.zeros(len(x), dtype=np.int64), groups)
    return Squares(SimpleNamespace(examples=examples, task=TASK)).compute(asked, Asked("run", "round"))[0] / ONE


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_predicts_as_least_squares_without_noise_at_epsilon_1(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hospitals = [made(rng, 500, number) for number in range(6)]
    records = {f"hospital-{number}": (own, np.arange(500) % 2) for number, own in enumerate(hospitals)}
    policy = cg.PolicyConfig(questions=("class-sums", "regression"), minimum_noise_sums=1.0, record_epsilon=2.0)
    parties = cg.LocalParties(records, TASK, policy=policy, seed=seed)
    counts = {"regression": {"target": "column-0", "columns": NAMES, "share": 0.9}}
    coordinator = cg.Coordinator(parties, RANGES, cg.ClassSums(sigma=60.0, classes=2), epsilon=1, counts=counts)
    coordinator.label(2)
    assert 0.8 < coordinator.epsilon <= 1.0
    found = {name: row for name, *row in coordinator.record.counts["regression"].found.rows}
    weights = np.array([found["constant"], *(found[f"{name}: half of 0 to 1"] for name in NAMES)])
    every, new = np.concatenate(hospitals), made(np.random.default_rng(100 + seed), 3000)
    exact = np.linalg.lstsq(signed(every), every[:, 0], rcond=None)[0]
    missed = [float(np.sqrt(np.mean((signed(new) @ w - new[:, 0]) ** 2))) for w in (weights[:, 0], exact)]
    assert missed[0] < 1.1 * missed[1] < 1.2 * OWN
    off = np.abs(weights[:, 0] - exact) / weights[:, 1]
    assert off.max() < 5.0  # twelve figures in all, each a normal one: fails in 7e-6, as the seeds never do
    nobody = np.array([found[f"{name}: missing"] for name in NAMES])
    assert (np.abs(nobody[:, 0]) < 5.0 * nobody[:, 1]).all() and nobody[:, 1].min() > weights[1:, 1].max(), "never seen"
    value, error = found["root mean squared error"]
    assert abs(value - missed[1]) < 5.0 * error + 0.1


def signed(x: Floats) -> Floats:
    return np.column_stack([np.ones(len(x)), 2 * x[:, 1:] - 1])


@pytest.mark.parametrize(("adjacency", "longest"), [("add-remove", 1.0), ("replace", 0.5**0.5)])
def test_no_record_or_person_moves_the_sum_further_than_is_charged(adjacency: str, longest: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.choice([-9.0, 0.0, 0.3, 1.0, 9.0], (300, 4)) * RANGES[1]
    x[rng.random(x.shape) < 0.1] = np.nan
    asked = question(adjacency)
    alone = np.array([answer(asked, x[[n]]) for n in range(300)])
    person = [answer(asked, x[n : n + 7], np.full(7, "one")) for n in range(200)]
    party = [answer(question(adjacency, per_party=True), x[: n + 1]) for n in range(200)]
    assert (answer(asked, x) == alone.sum(axis=0)).all(), "a record's part hangs on the others"
    assert np.linalg.norm(alone[:, None, :] - alone[None, ::10, :], axis=2).max() <= 2.0 * longest
    lengths = np.linalg.norm(np.concatenate([alone, person]), axis=1)
    assert lengths.max() <= longest < 1.001 * lengths.max()  # met: less would fail
    assert np.linalg.norm(party, axis=1).max() <= 0.5**0.5


def test_a_column_beyond_its_range_is_longer_where_it_is_not_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug, for records that are encoded by software of another kind."""
    monkeypatch.setattr("regression.party.signed", lambda x: 2.0 * x - 1.0)
    with pytest.raises(AssertionError):
        test_no_record_or_person_moves_the_sum_further_than_is_charged("add-remove", 1.0)
