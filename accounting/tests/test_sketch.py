"""Most cells of a round are left out after a shorter product: none of them could have changed a bit of the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from collegium_accounting.game import front
from collegium_accounting.game.recursion import play_through
from collegium_accounting.game.winner import RoundLaw
from collegium_accounting.units import Adjacency

POINTS = np.array([0, 6, 10, 12, 13, 14, 15, 16, 17, 18, 20, 24, 30])

Case = tuple["front._Part", "front._Sketch", np.ndarray, np.ndarray]


def _cases() -> Iterator[Case]:
    """Curves that bend between the points, in units that differ along the grid, and windows with many gaps."""
    rng, grid = np.random.default_rng(8), np.arange(POINTS[-1] + 1)
    for corners, cells in ((40, 60), (300, 200), (3, 1)) * 4:
        peak, slope = rng.uniform(2.0, 28.0, (corners + cells, 1)), rng.uniform(0.1, 0.4, (corners + cells, 1))
        curves = np.maximum(0.0, rng.uniform(0.6, 1.0, (corners + cells, 1)) - slope * np.abs(grid - peak))
        by_corners = rng.random(cells) < 0.8
        curves[corners:][by_corners] *= 0.02
        exponent = np.frexp(curves.max(axis=0) + 1e-6)[1]
        columns = np.ceil(curves * np.ldexp(1.0, 20 - exponent)).astype(np.float32)
        corner_of = rng.integers(corners, size=(cells, 4))
        corner_of.ravel()[:corners] = np.arange(min(corners, corner_of.size))  # each corner is one of a cell
        part = front._Part(np.arange(cells), columns, np.arange(corners), corner_of, by_corners)
        rows = rng.random((80, len(grid))) ** 3 * (rng.random((80, len(grid))) < 0.5)
        rows[:2] = 0.0
        whole = np.floor(rows * 2.0**20)
        likely = rng.integers(cells, size=3) if cells < 100 else part.best(whole[::16])
        yield part, front._Sketch.of(part, np.ldexp(1.0, exponent), POINTS), whole, likely


def _dropped_that_matter(case: Case) -> int:
    """Cells left out although they have the largest bound of a row, or a bound or corner above the best corner."""
    part, sketch, whole, likely = case
    values = part.columns.astype(np.int64) @ whole.astype(np.int64).T
    corner, bound = values[: len(part.corners)], values[len(part.corners) :]
    bound = bound + part.by_corners[:, None] * corner[part.corner_of].max(axis=1)
    highest = corner.max(axis=0)
    count = 0
    for searched in (False, True):
        dropped = np.ones(len(bound), dtype=bool)
        dropped[sketch.mattering(whole, likely, searched).cells] = False
        gains = bound.max(axis=0) > 0
        top = ((bound == bound.max(axis=0)) & gains).any(axis=1)
        over = ((bound > highest) & (highest > 0)).any(axis=1)
        best = ((corner == highest) & (highest > 0)).any(axis=1)[part.corner_of].any(axis=1)
        count += int((dropped & (top | over | best if searched else top)).sum())
    return count


@pytest.mark.parametrize("few", [0.0, 1.1], ids=["each row", "rows together"])
def test_no_cell_is_left_out_that_could_be_largest_or_loose_or_have_the_best_corner(
    few: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "_FEW", few)
    assert [_dropped_that_matter(case) for case in _cases()] == [0] * 12


def test_most_cells_are_left_out() -> None:
    part, sketch, whole, likely = list(_cases())[1]
    assert 2 * len(sketch.mattering(whole[4:5], likely, False).cells) < len(part.cells)


def test_planted_chords_that_are_not_raised_leave_out_cells_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "pad", lambda array, width: np.zeros((len(array), array.shape[1] + 2)))
    assert sum(map(_dropped_that_matter, _cases())) > 0


def _large_reserves() -> Iterator[Case]:
    """Corners of nearly the same gain, so that the curves added to them decide which cell is largest."""
    rng, grid = np.random.default_rng(9), np.arange(POINTS[-1] + 1)
    for corners, cells in ((40, 60), (300, 200)):
        gain = 1000.0 - 20.0 * np.abs(grid - 15.0) + rng.integers(2, size=(corners, 1))
        curve = np.repeat(rng.integers(500, size=(cells, 1)), len(grid), axis=1)
        columns = np.concatenate([gain, curve]).astype(np.float32)
        corner_of = rng.integers(corners, size=(cells, 4))
        corner_of.ravel()[:corners] = np.arange(min(corners, corner_of.size))
        part = front._Part(np.arange(cells), columns, np.arange(corners), corner_of, np.ones(cells, dtype=bool))
        whole = np.floor(rng.random((80, len(grid))) * 2.0**20)
        yield part, front._Sketch.of(part, np.ones(len(grid)), POINTS), whole, np.array([int(curve[:, 0].argmax())])


def _without_reserve(case: Case) -> Case:
    """A sketch of corners alone: what a position between them may gain more is forgotten."""
    part, _, whole, likely = case
    columns = part.columns.copy()
    columns[len(part.corners) :][part.by_corners] = 0.0
    units = np.ones(columns.shape[1])
    return part, replace(front._Sketch.of(replace(part, columns=columns), units, POINTS), part=part), whole, likely


def test_planted_corners_without_their_reserve_leave_out_cells_that_matter() -> None:
    cases = list(_large_reserves())
    assert sum(map(_dropped_that_matter, cases)) == 0
    assert sum(_dropped_that_matter(_without_reserve(case)) for case in cases) > 0


@pytest.mark.bits
@pytest.mark.parametrize(
    ("law", "rounds"),
    [
        (RoundLaw("discrete-gaussian", 3.0), 1),
        (RoundLaw("discrete-gaussian", 8.0, Adjacency.ADD_REMOVE), 40),
        (RoundLaw("discrete-gaussian", 6.0, Adjacency.ADD_REMOVE, sampling_rate=0.1), 6),
        (RoundLaw("discrete-laplace", 3.0), 3),
        (RoundLaw("gumbel", 6.0), 30),
    ],
    ids=lambda value: str(value)[:60],
)
def test_all_cells_give_the_same_bits(law: RoundLaw, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "_FEWEST_SKETCHED", 0)

    def bits() -> list[bytes]:
        played = [values for game in law.games() for values in play_through(game, rounds)]
        return [array.tobytes() for v in played for array in (v.upper, v.alpha, v.beta)]

    found = bits()
    monkeypatch.setattr(front._Sketch, "mattering", lambda sketch, whole, likely, searched: sketch.part)
    assert bits() == found
