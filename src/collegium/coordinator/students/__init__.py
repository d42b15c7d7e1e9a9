"""Students: they learn from the issued labels and the public pool, and are what a consortium publishes."""

from collegium.coordinator.students.base import (
    METHODS,
    NetworkStudent,
    Problem,
    StudentMethod,
    chosen_method,
    fit_student,
    load_student,
    register,
)
from collegium.coordinator.students.consistency import Consistency
from collegium.coordinator.students.contrastive import Contrastive
from collegium.coordinator.students.pretraining import Encoder, Pretraining, network_features, pretrained
from collegium.coordinator.students.supervised import Supervised

__all__ = [
    "METHODS",
    "Consistency",
    "Contrastive",
    "Encoder",
    "NetworkStudent",
    "Pretraining",
    "Problem",
    "StudentMethod",
    "Supervised",
    "chosen_method",
    "fit_student",
    "load_student",
    "network_features",
    "pretrained",
    "register",
]
