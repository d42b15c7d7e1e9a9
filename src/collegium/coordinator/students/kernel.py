"""The student of class sums: the noisy sums themselves, filtered into a classifier; see `models.kernel_student`."""

from typing import ClassVar

from collegium.coordinator.students import LearningProblem, register
from collegium.errors import ConfigurationError
from collegium.models.kernel_student import KernelStudent
from collegium.settings import Frozen


@register
class Kernel(Frozen):
    """The classifier that the class sums hold; it learns nothing beyond them."""

    name: ClassVar[str] = "kernel"

    def fit(self, problem: LearningProblem) -> KernelStudent:
        if problem.sums is None:
            raise ConfigurationError("the student 'kernel' is made of class sums: use the mechanism class-sums with it")
        student = problem.sums.classifier(problem.pool, problem.task, problem.device)
        problem.progress(1, 1)
        return student
