"""Forests of decision trees as plain arrays: teachers are made of them, and so is a published student of tables.

scikit-learn grows the trees; their nodes are then five arrays that this module walks itself, so that a
kept forest needs no pickle and outlives an update of scikit-learn.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from collegium.data.task import Task
from collegium.errors import StorageError
from collegium.models.arrays import load_arrays, save_arrays
from collegium_accounting.units import IntArray

FOREST_FORMAT = "collegium-forest-1"

_DTYPES: dict[str, type[np.generic]] = {
    "roots": np.int64,
    "children": np.int64,
    "feature": np.int64,
    "threshold": np.float64,
    "share": np.float64,
}
_BLOCK_ROWS = 1024
_DEEPEST = 1000
"""Steps from a root to a leaf; every row takes as many as the deepest leaf needs."""


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees that label inputs of their task: all trees' nodes behind one another.

    Parameters
    ----------
    roots : shape ``[trees]``, each tree's first node.
    children : shape ``[nodes, 2]``, where at most and above the threshold lead; a leaf is its own child.
    feature, threshold : shape ``[nodes]``, the value that a node compares, and with what.
    share : shape ``[nodes, classes]``, the class frequencies at a node.
    """

    task: Task
    roots: NDArray[np.int64]
    children: NDArray[np.int64]
    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    share: NDArray[np.float64]

    def __repr__(self) -> str:
        return f"Forest of {len(self.roots)} trees"

    @classmethod
    def grown(cls, x: NDArray[Any], y: IntArray, task: Task, *, trees: int, max_depth: int, seed: int) -> "Forest":
        """scikit-learn's random forest of inputs ``[n, …]`` and class numbers ``[n]``; depth 0 lets the trees grow."""
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(
            n_estimators=trees, max_depth=max_depth or _DEEPEST, random_state=seed % 2**32, n_jobs=1
        )
        forest.fit(flat(x), y)
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
            full = np.zeros((tree.node_count, len(task.classes)))
            full[:, forest.classes_] = counts / counts.sum(axis=1, keepdims=True)
            share.append(full)
        return cls(
            task,
            roots,
            np.concatenate(children).astype(np.int64),
            np.concatenate(feature).astype(np.int64),
            np.concatenate(threshold).astype(np.float64),
            np.concatenate(share),
        )

    @cached_property
    def depth(self) -> int:
        """Steps after which every walk stands at a leaf; children stand behind their parents."""
        steps = [0] * len(self.threshold)
        for node, children in enumerate(self.children.tolist()):
            for child in children:
                if child != node:
                    steps[child] = max(steps[child], steps[node] + 1)
        return max(steps)

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Mean class frequencies of the leaves reached, shape ``[n, classes]``, for inputs ``[n, …]``."""
        return self._sums(x) / len(self.roots)

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """The class with the largest of them, shape ``[n]``."""
        return np.asarray(self._sums(x).argmax(axis=1), dtype=np.int64)

    def _sums(self, x: NDArray[Any]) -> NDArray[np.float64]:
        rows = [np.empty((0, self.share.shape[1]))]
        for start in range(0, len(x), _BLOCK_ROWS):
            leaves = self._leaves(flat(x[start : start + _BLOCK_ROWS]))
            shares = np.zeros((len(leaves), self.share.shape[1]))
            for column in leaves.T:
                shares += self.share[column]
            rows.append(shares)
        return np.concatenate(rows)

    def _leaves(self, rows: NDArray[np.float32]) -> NDArray[np.int64]:
        """The leaf that each row reaches in each tree, shape ``[rows, trees]``.

        The number of steps follows from the forest alone: a walk that ended with its rows would tell, by its time,
        which of the nodes somebody's records reach.
        """
        here = np.tile(self.roots, (len(rows), 1))
        numbers = np.arange(len(rows))[:, None]
        for _ in range(self.depth):
            right = rows[numbers, self.feature[here]] > self.threshold[here]
            here = self.children[here, right.astype(np.int64)]
        return here

    def save(self, path: Path) -> None:
        """Write the trees' arrays and the task; StorageError if that fails."""
        arrays = {name: getattr(self, name) for name in _DTYPES}
        save_arrays(path, FOREST_FORMAT, arrays, task=self.task.model_dump(mode="json"))


def flat(x: NDArray[Any]) -> NDArray[np.float32]:
    """Inputs ``[n, …]`` as rows ``[n, features]`` of the type that scikit-learn's trees compare."""
    return np.ascontiguousarray(x.reshape(len(x), -1), dtype=np.float32)


def read_student(path: Path, *, device: str) -> Forest:
    """What `Forest.save` wrote; forests stay on the CPU.

    Raises
    ------
    StorageError
        If the file is missing, damaged or no forest, or a walk through it could leave the arrays, never end, or take
        more than 1,000 steps.
    """
    arrays, about = load_arrays(path, FOREST_FORMAT, _DTYPES)
    try:
        forest = Forest(Task.model_validate(about["task"]), **arrays)
    except (KeyError, TypeError, ValidationError) as error:
        raise StorageError(f"{path.name} does not name the task of a forest: {error}") from error
    count = len(forest.threshold)
    shapes_fit = (
        forest.roots.ndim == 1
        and forest.children.shape == (count, 2)
        and forest.feature.shape == forest.threshold.shape == (count,)
        and forest.share.shape == (count, len(forest.task.classes))
    )
    if not shapes_fit or count == 0 or len(forest.roots) == 0:
        raise StorageError(f"{path.name} holds a forest for other settings")
    here = np.arange(count)[:, None]
    # Children stand behind their parents, so that every walk ends.
    ends = bool(((forest.children >= here) & (forest.children < count)).all())
    features_fit = bool(((forest.feature >= 0) & (forest.feature < np.prod(forest.task.inputs.shape))).all())
    roots_fit = bool(((forest.roots >= 0) & (forest.roots < count)).all())
    shares_fit = bool((np.isfinite(forest.share) & (forest.share >= 0)).all())
    if not (ends and features_fit and roots_fit and shares_fit):
        raise StorageError(f"{path.name} holds a damaged forest")
    if forest.depth > _DEEPEST:
        raise StorageError(f"{path.name} holds a forest with a tree deeper than {_DEEPEST} nodes")
    return forest
