"""A small table task with a public pool, and parties of it that sum under masks."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from collegium.coordinator.rounds.masked_sum import MaskedSum, MaskedTotal
from collegium.coordinator.rounds.rounds import ClearSum, VoteRound
from collegium.data import Examples
from collegium.data.task import NumberColumn, TableInputs, Task
from collegium.models.features import Features
from collegium.models.kernels import KernelSpec
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.question import QuestionTerms
from collegium.protocol.secure_sum import plan_graph
from collegium.simulations.local import InProcessParties
from collegium_accounting.mechanisms.class_sums import ClassSums

COLUMNS = 3
TASK = Task(
    classes=("a", "b", "c"),
    inputs=TableInputs(columns=tuple(NumberColumn(name=f"c{number}", low=0, high=1) for number in range(COLUMNS))),
)
POOL = np.random.default_rng(0).random((60, 2 * COLUMNS)).astype(np.float32)
SPEC = KernelSpec(Features("raw"), tuple(range(0, 60, 5)), 600**2)
LENGTH = 3 * SPEC.dimensions + 1
NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")


@contextmanager
def dies_opening(number: int) -> Iterator[None]:
    """A run in here dies as it opens its sum of this number, from 1 on, of which everything else is kept."""
    opened, honest = list[MaskedTotal](), MaskedTotal.open

    def open_or_die(total: MaskedTotal) -> Any:
        opened.append(total)
        if len(opened) == number:
            raise KeyboardInterrupt
        return honest(total)

    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(MaskedTotal, "open", open_or_die)
        yield


def records(seed: int, count: int, **fields: Any) -> Examples:
    generator = np.random.default_rng(seed)
    x = generator.random((count, 2 * COLUMNS)).astype(np.float32)
    return Examples(x, generator.integers(0, 3, count), **fields)


def squared(vector: np.ndarray) -> int:
    """Its length, squared and exact, by whole numbers of any size."""
    return sum(int(entry) ** 2 for entry in vector)


def lengths_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: vectors of features stay as long as they come."""
    monkeypatch.setattr("collegium.models.kernels.of_length", lambda vectors, most_squared: vectors)


@dataclass
class Consortium:
    """Five parties in this process; ``asks`` sums their records in one of the three modes."""

    parties: InProcessParties
    examples: dict[str, Examples]
    pool_sha256: str
    roster: dict[str, bytes]

    def request(self, mode: str, *, sigma: float = 5.0, per_party: bool = False, **fields: Any) -> SumClasses:
        stage, honest = ("sums", self.plan.honest_survivors) if mode == "masked+noised" else ("", 0)
        terms = QuestionTerms.of(ClassSums(sigma, 3), mode, stage, honest)
        asked = {"ledger_id": "ledger", "kernel": SPEC, "pool_sha256": self.pool_sha256}
        return SumClasses(**({"terms": terms, "per_party": per_party} | asked | fields))

    @property
    def plan(self) -> Any:
        return plan_graph(len(NAMES), 0.2, 0.1)

    def asks(self, request: SumClasses) -> np.ndarray:
        mode = request.terms.sum_mode
        added = (
            ClearSum(self.parties)
            if mode == "clear"
            else MaskedSum(self.parties, "trial", self.roster, self.plan, mode == "masked+noised")
        )
        round_ = VoteRound(request, dict.fromkeys(NAMES, 0), 30.0, len(NAMES))
        return added.sum_votes(round_).counts[0]
