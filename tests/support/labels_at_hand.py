"""Labels whose votes lie in a table, so that a test needs no parties: what is charged, drawn and released."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from collegium.coordinator.asking import RunQuestion
from collegium.coordinator.journal import Journal
from collegium.coordinator.kinds.labels import Labels
from collegium.coordinator.noise import CoordinatorNoise
from collegium.coordinator.release import Releases
from collegium.coordinator.statement import Statement
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium_accounting.mechanisms import COORDINATOR, IntArray, Mechanism, Unit

Counts = Callable[[Sequence[str]], IntArray]
"""The counts ``[queries, classes]`` of some queries, by their keys."""


class _Table:
    """In place of `Asking`."""

    def __init__(self, folder: Path) -> None:
        self.counts: Counts = lambda _: np.zeros((0, 2), dtype=np.int64)
        self.journal = Journal(folder)

    def ready(self) -> dict[str, int]:
        return {"everybody": 1}

    def together(self, queries: Sequence[str], sums: Any) -> list[tuple[str, ...]]:
        return [()] * len(queries)

    def total(
        self, question: RunQuestion, parties: Mapping[str, int], charge: int | None = None, begun: Any = None
    ) -> Any:
        return SimpleNamespace(counts=self.counts(question.names), answered=tuple(parties))


class LabelsAtHand:
    """The labels of one run: ``statement`` pays, ``label`` releases."""

    def __init__(
        self, ledger: Ledger, mechanism: Mechanism, unit: Unit, noise: CoordinatorNoise, **stated: Any
    ) -> None:
        self.statement, self._table = Statement(ledger, mechanism, unit, **stated), _Table(ledger.path.parent)
        setup: Any = SimpleNamespace(
            mechanism=mechanism,
            vote_sum=SimpleNamespace(mode="clear", added=COORDINATOR),
            storage=SimpleNamespace(study=None),
            public=SimpleNamespace(spec=SimpleNamespace(sha256="0" * 64)),
            config=SimpleNamespace(task=SimpleNamespace(classes="ab")),
        )
        table: Any = self._table
        self.labels = Labels(setup, Releases(self.statement, table, noise, "run"), ledger)

    def label(self, queries: Sequence[str], counts: IntArray | Counts) -> bool:
        """Release labels for as many of ``queries`` as the budget allows; False where it stopped that."""
        rows = {query: row for row, query in enumerate(queries)}
        self._table.counts = counts if callable(counts) else lambda asked: counts[[rows[query] for query in asked]]
        kind: Any = SimpleNamespace(
            ask=lambda terms, *_: SimpleNamespace(terms=terms, whole_vector=False), votes=None, question=CastVotes
        )
        return self.labels.ask(kind, {query: row for row, query in enumerate(queries)})
