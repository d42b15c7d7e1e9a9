"""The mechanisms: frozen descriptions that turn vote histograms into labels and state what that costs."""

from collegium_accounting.mechanisms.base import Mechanism, Noise, RecordBudget, Stage, SumMode
from collegium_accounting.mechanisms.labels import ABSTAIN, NEXT_STAGE, LabelMechanism, LabelStage
from collegium_accounting.mechanisms.registry import create, default_names, known_names, mechanism_named, register
from collegium_accounting.mechanisms.votes import VoteMechanism
from collegium_accounting.noise.distributed import COORDINATOR, AddedBy
from collegium_accounting.noise.sources import SeededNoise, SystemNoise
from collegium_accounting.units import Adjacency, IntArray, Unit

__all__ = [
    "ABSTAIN",
    "COORDINATOR",
    "NEXT_STAGE",
    "AddedBy",
    "Adjacency",
    "IntArray",
    "LabelMechanism",
    "LabelStage",
    "Mechanism",
    "Noise",
    "RecordBudget",
    "SeededNoise",
    "Stage",
    "SumMode",
    "SystemNoise",
    "Unit",
    "VoteMechanism",
    "create",
    "default_names",
    "known_names",
    "mechanism_named",
    "register",
]
