"""A random forest for tables, as in PATE (Papernot et al. 2017, Appendix C): fitted to the issued labels alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from collegium.coordinator.students import LearningProblem, register
from collegium.data.task import Task
from collegium.models.forests import Forest, flat, load_forest, save_forest
from collegium.settings import Frozen

if TYPE_CHECKING:
    from collegium.coordinator.students.onnx_export import OnnxGraph


@dataclass(frozen=True, eq=False)
class ForestStudent:
    """Trees that label inputs of their task."""

    forest: Forest
    task: Task

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Mean class frequencies of the leaves reached, shape ``[n, classes]``."""
        return self.forest.probabilities(x)

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Class numbers, shape ``[n]``."""
        return self.forest.predict(x)

    def to_onnx(self, graph: OnnxGraph, x: str) -> str:
        """Add the trees to an ONNX graph; returns the name of the probabilities."""
        forest, nodes = self.forest, np.arange(len(self.forest.threshold))
        tree = np.searchsorted(forest.roots, nodes, side="right") - 1
        own = nodes - forest.roots[tree]  # a node's number within its tree
        inner = forest.children[:, 0] != nodes
        # An input is a 32-bit float: it is at most the threshold if it is at most the threshold rounded down to one.
        near = forest.threshold.astype(np.float32)
        below = np.where(near > forest.threshold, np.nextafter(near, np.float32(-np.inf)), near)
        leaves, classes = np.nonzero((forest.share > 0) & ~inner[:, None])
        return graph.trees(
            graph.flat(x),
            aggregate_function="AVERAGE",
            n_targets=forest.share.shape[1],
            nodes_treeids=tree.tolist(),
            nodes_nodeids=own.tolist(),
            nodes_featureids=forest.feature.tolist(),
            nodes_modes=np.where(inner, "BRANCH_LEQ", "LEAF").tolist(),
            nodes_values=below.tolist(),
            nodes_truenodeids=np.where(inner, forest.children[:, 0] - forest.roots[tree], 0).tolist(),
            nodes_falsenodeids=np.where(inner, forest.children[:, 1] - forest.roots[tree], 0).tolist(),
            target_treeids=tree[leaves].tolist(),
            target_nodeids=own[leaves].tolist(),
            target_ids=classes.tolist(),
            target_weights=forest.share[leaves, classes].tolist(),
        )

    def save(self, path: Path) -> None:
        """Write the trees' arrays as safetensors, with the task."""
        save_forest(path, self.forest, self.task)


def read_student(path: Path, *, device: str) -> ForestStudent:
    """What `ForestStudent.save` wrote; forests stay on the CPU. Raises StorageError or DataError."""
    return ForestStudent(*load_forest(path))


@register
class RandomForest(Frozen):
    """scikit-learn's random forest with its defaults; inputs are flattened, the pool is not looked at."""

    name: ClassVar[str] = "random-forest"

    trees: int = Field(default=100, ge=1, le=10_000)
    max_depth: int = Field(default=0, ge=0, le=1000)
    """Levels of a tree; 0 lets them grow."""

    def fit(self, problem: LearningProblem) -> ForestStudent:
        from sklearn.ensemble import RandomForestClassifier

        trees = RandomForestClassifier(
            n_estimators=self.trees, max_depth=self.max_depth or None, random_state=problem.seed % 2**32, n_jobs=1
        )
        trees.fit(flat(problem.pool[problem.indices]), problem.labels)
        problem.progress(1, 1)
        return ForestStudent(Forest.of_trees(trees, len(problem.task.classes)), problem.task)
