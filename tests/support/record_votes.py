"""Records on a plane, one class each, so that the transcript of a run shows who voted on what, and how much."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from collegium.data import Examples, PoolStore
from collegium.data.task import NumberColumn, TableInputs, Task
from collegium.data.values import ArraySpec
from collegium.models.features import Features
from collegium.parties.party import Party, unrestricted
from collegium.parties.teachers.splits import simulated_key
from collegium.protocol.kinds.near_records import CastNeighbours
from collegium.protocol.messages import Request
from collegium.protocol.question import PoolRange, Question, QuestionTerms
from collegium.protocol.requests import Ask

RECORDS = 40
TASK = Task(
    classes=tuple(f"record-{number}" for number in range(RECORDS)),
    inputs=TableInputs(columns=tuple(NumberColumn(name=name, low=0.0, high=1.0) for name in "ab")),
)
KEY = simulated_key(3, "clinic")
NEAR = 200**2
"""A squared radius that holds a few of the records."""


def plane(count: int, seed: int) -> np.ndarray:
    points = np.zeros((count, 4), dtype=np.float32)
    points[:, [0, 2]] = np.random.default_rng(seed).random((count, 2))
    return points


def records() -> Examples:
    return Examples(plane(RECORDS, 1), np.arange(RECORDS, dtype=np.int64))


class Clinic:
    """A party on the plane and its pool; `restart` is what a crash leaves: its folder."""

    def __init__(self, folder: Path | None, **options: Any) -> None:
        self.folder = folder
        self.options = options
        self.pools = PoolStore(None)
        self.pool: ArraySpec = self.pools.put(plane(60, 2))
        self._ids = itertools.count()
        self.restart()

    def restart(self, examples: Examples | None = None) -> None:
        given = {"split_key": KEY, "record_rho": 1.0, "policy": unrestricted} | self.options
        self.party = Party("clinic", examples or records(), TASK, folder=self.folder, pools=self.pools, **given)

    def ask(self, body: Any, *, run: str = "run", request_id: str | None = None, round_id: str = "round") -> Any:
        body = Ask(round_id, body) if isinstance(body, Question) else body
        return self.party.handle(Request(request_id or f"request-{next(self._ids)}", run, body)).body

    def question(
        self,
        positions: tuple[int, ...],
        *,
        sigma: float = 10.0,
        participations: int = 2,
        levels: int = 1,
        kernel: str = "flat",
        radius_squared: int = NEAR,
        mode: str = "clear",
        ledger_id: str = "ledger",
        features: Features | None = None,
        mechanism: str = "individual-knn",
        adjacency: str = "add-remove",
        classes: int = RECORDS,
        per_party: bool = False,
    ) -> CastNeighbours:
        """A question; ``sigma`` is the noise on an entry of the sum, in units of a weight."""
        parameters = {"sigma": sigma / levels, "participations": participations, "levels": levels}
        stage, honest = ("release", 1) if mode == "masked+noised" else ("", 0)
        return CastNeighbours(
            QuestionTerms(mechanism, parameters, adjacency, mode, stage, honest),
            ledger_id,
            features or Features("raw"),
            PoolRange(self.pool.sha256, positions),
            classes,
            (radius_squared,) * len(positions),
            kernel,
            per_party,
        )
