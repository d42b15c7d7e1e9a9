"""Students: they learn from the issued labels and the public pool, and are what a consortium publishes."""

from collegium.coordinator.students.base import (
    METHODS,
    NetworkStudent,
    Problem,
    Student,
    StudentMethod,
    chosen_method,
    fit_student,
    register,
)
from collegium.coordinator.students.consistency import Consistency
from collegium.coordinator.students.contrastive import Contrastive
from collegium.coordinator.students.distillation import Distillation, require_soft_targets
from collegium.coordinator.students.forest import ForestStudent, RandomForest
from collegium.coordinator.students.gan import Gan
from collegium.coordinator.students.patches import Patches
from collegium.coordinator.students.pretraining import Encoder, Pretraining, network_features, pretrained
from collegium.coordinator.students.published import load_student
from collegium.coordinator.students.supervised import Supervised
from collegium.coordinator.students.vat import Vat

__all__ = [
    "METHODS",
    "Consistency",
    "Contrastive",
    "Distillation",
    "Encoder",
    "ForestStudent",
    "Gan",
    "NetworkStudent",
    "Patches",
    "Pretraining",
    "Problem",
    "RandomForest",
    "Student",
    "StudentMethod",
    "Supervised",
    "Vat",
    "chosen_method",
    "fit_student",
    "load_student",
    "network_features",
    "pretrained",
    "register",
    "require_soft_targets",
]
