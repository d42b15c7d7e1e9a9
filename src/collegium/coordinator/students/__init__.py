"""Students: they learn from the issued labels and the public pool, and are what a consortium publishes."""

from collegium.coordinator.students.base import (
    METHODS,
    LearningProblem,
    NetworkStudent,
    Student,
    StudentMethod,
    chosen_method,
    fit_student,
    needs_soft_targets,
    register,
    require_soft_targets,
)
from collegium.coordinator.students.consistency import Consistency
from collegium.coordinator.students.contrastive import Contrastive
from collegium.coordinator.students.forest import ForestStudent, RandomForest
from collegium.coordinator.students.patches import Patches
from collegium.coordinator.students.pretraining import Encoder, Pretraining, network_features, pretrained
from collegium.coordinator.students.published import load_student
from collegium.coordinator.students.supervised import Supervised
from collegium.coordinator.students.vat import Vat

__all__ = [
    "METHODS",
    "Consistency",
    "Contrastive",
    "Encoder",
    "ForestStudent",
    "LearningProblem",
    "NetworkStudent",
    "Patches",
    "Pretraining",
    "RandomForest",
    "Student",
    "StudentMethod",
    "Supervised",
    "Vat",
    "chosen_method",
    "fit_student",
    "load_student",
    "needs_soft_targets",
    "network_features",
    "pretrained",
    "register",
    "require_soft_targets",
]
