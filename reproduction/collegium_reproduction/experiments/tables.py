"""Tables as PATE's Appendix C has them: a number for every category, and random forests of 100 trees."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from collegium.data import Examples
from collegium.data.task import TableInputs
from collegium.simulations.partitions import PartitionConfig, partition
from collegium_accounting.mechanisms import IntArray
from collegium_reproduction.experiments.base import Setting
from collegium_reproduction.experiments.ensembles import keep_arrays

TREES = 100


@dataclass(frozen=True, eq=False)
class Table:
    """Rows ``[n, columns]`` with classes ``[n]``, and who belongs together."""

    x: NDArray[np.float32]
    y: IntArray
    groups: NDArray[np.str_] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: IntArray) -> Table:
        return Table(self.x[rows], self.y[rows], None if self.groups is None else self.groups[rows])


def numbered(examples: Examples, inputs: TableInputs, columns: Sequence[str] | None = None) -> Table:
    """One number per column: the value of a number, the position of a category in the task's list."""
    kept, start = [], 0
    for column in inputs.columns:
        part = examples.x[:, start : start + column.width]
        start += column.width
        if columns is None or column.name in columns:
            kept.append(part[:, 0] if column.kind == "number" else part.argmax(axis=1).astype(np.float32))
    return Table(np.stack(kept, axis=1), examples.labels(), examples.groups)


def forest(rows: Table, seed: int, *, leaf: int = 1, features: float | str = "sqrt") -> RandomForestClassifier:
    """scikit-learn's random forest, its defaults but for the number of trees (and what is given)."""
    kind = RandomForestClassifier(
        n_estimators=TREES, min_samples_leaf=leaf, max_features=features, random_state=seed, n_jobs=1
    )
    return kind.fit(rows.x, rows.y)


def forest_votes(train: Table, queries: Table, parties: int, seed: int, setting: Setting) -> IntArray:
    """Votes ``[queries, 2]`` of one forest per party, trained on equal shares at random; groups stay together.

    Kept among the ensembles by the contents of both tables.
    """
    path = setting.ensembles / f"forests-{parties}-seed-{seed}-{_digest(train, queries)}.npz"
    if path.is_file():
        with np.load(path, allow_pickle=False) as kept:
            return np.asarray(kept["votes"], dtype=np.int64)
    shares = partition(Examples(train.x, train.y, train.groups), PartitionConfig(parties=parties, seed=seed))
    votes = np.zeros((len(queries), 2), dtype=np.int64)
    for number, share in enumerate(shares):
        labels = forest(train.take(share), seed * parties + number).predict(queries.x).astype(np.int64)
        votes[np.arange(len(labels)), labels] += 1
    keep_arrays(path, votes=votes)
    return votes


def _digest(*tables: Table) -> str:
    digest = hashlib.sha256()
    for table in tables:
        groups = np.zeros(0, dtype="S1") if table.groups is None else table.groups.astype("S")
        for array in (table.x, table.y, groups):
            digest.update(f"\0{array.dtype.str}{array.shape}\0".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def agreement(votes: IntArray) -> float:
    """Mean gap between the two counts, as a share of the teachers."""
    return float((np.abs(votes[:, 0] - votes[:, 1]) / votes.sum(axis=1)).mean())
