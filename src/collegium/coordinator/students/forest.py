"""A random forest for tables, as in PATE (Papernot et al. 2017, Appendix C): fitted to the issued labels alone."""

from typing import ClassVar

from pydantic import Field

from collegium.coordinator.students import LearningProblem, register
from collegium.models.forests import Forest, flat
from collegium.settings import Frozen


@register
class RandomForest(Frozen):
    """scikit-learn's random forest with its defaults; inputs are flattened, the pool is not looked at."""

    name: ClassVar[str] = "random-forest"

    trees: int = Field(default=100, ge=1, le=10_000)
    max_depth: int = Field(default=0, ge=0, le=1000)
    """Levels of a tree; 0 lets them grow."""

    def fit(self, problem: LearningProblem) -> Forest:
        from sklearn.ensemble import RandomForestClassifier

        trees = RandomForestClassifier(
            n_estimators=self.trees, max_depth=self.max_depth or None, random_state=problem.seed % 2**32, n_jobs=1
        )
        trees.fit(flat(problem.pool[problem.indices]), problem.labels)
        problem.progress(1, 1)
        return Forest.of_trees(trees, problem.task)
