"""Students: they learn from the issued labels and the public pool, and are what a consortium publishes.

A method is imported when it is chosen, so that a student that is a forest needs no torch.
"""

from collegium.coordinator.students.base import (
    METHODS,
    LearningProblem,
    Student,
    StudentMethod,
    chosen_method,
    find_method,
    fit_student,
    method_names,
    needs_soft_targets,
    register,
    require_soft_targets,
)
from collegium.coordinator.students.published import load_student

__all__ = [
    "METHODS",
    "LearningProblem",
    "Student",
    "StudentMethod",
    "chosen_method",
    "find_method",
    "fit_student",
    "load_student",
    "method_names",
    "needs_soft_targets",
    "register",
    "require_soft_targets",
]
