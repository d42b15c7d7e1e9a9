"""Random forests (scikit-learn) for tables, kept as plain arrays.

scikit-learn grows the trees; their nodes are then five arrays that this module walks itself, so that a
kept forest needs no pickle and outlives an update of scikit-learn.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.parties.teachers.arrays import load_arrays, save_arrays
from collegium.protocol.errors import ConfigurationError, StorageError
from collegium.protocol.task import Task

if TYPE_CHECKING:
    from collegium.protocol.inputs import Examples

_DTYPES: dict[str, type[np.generic]] = {
    "roots": np.int64,
    "children": np.int64,
    "feature": np.int64,
    "threshold": np.float64,
    "share": np.float64,
}
_MAX_TREES = 10_000
_BLOCK_ROWS = 1024


class RandomForestTeacher:
    """``trees`` trees (100) of at most ``max_depth`` levels (0: as deep as they grow), on flattened inputs."""

    version: ClassVar[str] = "1"

    def __init__(self, task: Task, *, trees: int = 100, max_depth: int = 0) -> None:
        if type(trees) is not int or type(max_depth) is not int:
            raise ConfigurationError("random-forest: trees and max_depth are whole numbers")
        if not 1 <= trees <= _MAX_TREES or not 0 <= max_depth <= 1000:
            raise ConfigurationError(f"random-forest: trees from 1 to {_MAX_TREES}, max_depth from 0 to 1,000")
        self._trees = trees
        self._max_depth = max_depth
        self._classes = len(task.classes)
        self._features = int(np.prod(task.inputs.shape))
        self._nodes: dict[str, NDArray[Any]] = {}

    def fit(self, examples: Examples, *, seed: int, device: str) -> None:
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(
            n_estimators=self._trees, max_depth=self._max_depth or None, random_state=seed % 2**32, n_jobs=1
        )
        forest.fit(_flat(examples.x), examples.y)
        sizes = [tree.tree_.node_count for tree in forest.estimators_]
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        children, feature, threshold, share = [], [], [], []
        for root, estimator in zip(roots, forest.estimators_, strict=True):
            tree = estimator.tree_
            inner = tree.children_left >= 0
            here = root + np.arange(tree.node_count)
            # A leaf is its own child on both sides: walking on from it stays there.
            both = np.stack([tree.children_left, tree.children_right], axis=1) + root
            children.append(np.where(inner[:, None], both, here[:, None]))
            feature.append(np.where(inner, tree.feature, 0))
            threshold.append(tree.threshold)
            counts = tree.value[:, 0, :]
            full = np.zeros((tree.node_count, self._classes))
            full[:, forest.classes_] = counts / counts.sum(axis=1, keepdims=True)
            share.append(full)
        self._nodes = {
            "roots": roots,
            "children": np.concatenate(children).astype(np.int64),
            "feature": np.concatenate(feature).astype(np.int64),
            "threshold": np.concatenate(threshold).astype(np.float64),
            "share": np.concatenate(share),
        }

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        labels = [np.empty(0, dtype=np.int64)]
        for start in range(0, len(x), _BLOCK_ROWS):
            leaves = self._leaves(_flat(x[start : start + _BLOCK_ROWS]))
            shares = np.zeros((len(leaves), self._classes))
            for column in leaves.T:
                shares += self._nodes["share"][column]
            labels.append(shares.argmax(axis=1).astype(np.int64))
        return np.concatenate(labels)

    def _leaves(self, rows: NDArray[np.float32]) -> NDArray[np.int64]:
        """The leaf that each row reaches in each tree, shape ``[rows, trees]``."""
        children, feature, threshold = (self._nodes[name] for name in ("children", "feature", "threshold"))
        here = np.tile(self._nodes["roots"], (len(rows), 1))
        numbers = np.arange(len(rows))[:, None]
        while True:
            right = rows[numbers, feature[here]] > threshold[here]
            following = children[here, right.astype(np.int64)]
            if np.array_equal(following, here):
                return here
            here = following

    def save(self, path: Path) -> None:
        save_arrays(path, "random-forest", self._nodes)

    def load(self, path: Path, *, device: str) -> None:
        nodes = load_arrays(path, "random-forest", _DTYPES)
        count = len(nodes["threshold"])
        shapes_fit = (
            nodes["roots"].shape == (self._trees,)
            and nodes["children"].shape == (count, 2)
            and nodes["feature"].shape == nodes["threshold"].shape == (count,)
            and nodes["share"].shape == (count, self._classes)
        )
        if not shapes_fit or count == 0:
            raise StorageError(f"{path.name} holds a forest for other settings")
        children, here = nodes["children"], np.arange(count)[:, None]
        # Children stand behind their parents, so that every walk ends.
        ends = ((children > here) | (children == here)).all() and bool((children < count).all())
        features_fit = bool(((nodes["feature"] >= 0) & (nodes["feature"] < self._features)).all())
        roots_fit = bool(((nodes["roots"] >= 0) & (nodes["roots"] < count)).all())
        if not (ends and features_fit and roots_fit):
            raise StorageError(f"{path.name} holds no sound forest")
        self._nodes = nodes


def _flat(x: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(x.reshape(len(x), -1), dtype=np.float32)
