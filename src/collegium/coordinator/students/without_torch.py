"""Students that need no network: the forest of issued labels, and the classifier that class sums hold."""

from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from collegium.coordinator.students import LearningProblem, register
from collegium.data.task import ImageInputs
from collegium.errors import ConfigurationError
from collegium.extras import optional_import
from collegium.models.forests import Forest
from collegium.models.kernel_student import KernelStudent
from collegium.settings import Frozen


@register
class RandomForest(Frozen):
    """scikit-learn's random forest with its defaults, as in PATE (Papernot et al. 2017, Appendix C).

    Inputs are flattened; the pool is not looked at.
    """

    name: ClassVar[str] = "random-forest"

    trees: int = Field(default=100, ge=1, le=10_000)
    max_depth: int = Field(default=0, ge=0, le=1000)
    """Levels of a tree; 0 lets them grow."""

    def fit(self, problem: LearningProblem) -> Forest:
        x, settings = problem.pool[problem.indices], self.model_dump()
        forest = Forest.grown(x, problem.labels, problem.task, seed=problem.seed, **settings)
        problem.progress(1, 1)
        return forest


@register
class Kernel(Frozen):
    """The classifier that the class sums hold, see `models.kernel_student`.

    Of images it has two networks beside it, unless the sums say that the records' classes agree less with these; so
    they did where there was a round under weights in place of a sum under the networks' features.
    """

    name: ClassVar[str] = "kernel"

    steps: int = Field(default=1200, ge=0)
    """In which each of two networks learns the labels of a pool of images, at most; 0 for no network."""

    def fit(self, problem: LearningProblem) -> KernelStudent:
        if problem.sums is None:
            raise ConfigurationError("the student 'kernel' is made of class sums: use the mechanism class-sums with it")
        found = problem.sums.of_pool(problem.pool, problem.task, problem.device)
        if isinstance(problem.task.inputs, ImageInputs) and self.steps and not problem.sums.residual:
            with optional_import("the network of the student 'kernel' (options.steps = 0 leaves it out)"):
                from collegium.coordinator.students.networks import networks_beside
            return replace(found.student, network=networks_beside(problem, found, self.steps))
        problem.progress(1, 1)
        return found.student
