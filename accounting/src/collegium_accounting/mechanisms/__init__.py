"""The mechanisms: frozen descriptions that turn vote histograms into labels and state what that costs."""

from collegium_accounting.mechanisms.base import (
    ABSTAIN,
    NEXT_STAGE,
    AnsweredBy,
    Mechanism,
    Noise,
    RecordBudget,
    Stage,
    SumMode,
)
from collegium_accounting.mechanisms.registry import create, default_names, known_names, mechanism_named, register
from collegium_accounting.noise.sources import SeededNoise, SystemNoise
from collegium_accounting.units import Adjacency, IntArray, Unit

__all__ = [
    "ABSTAIN",
    "NEXT_STAGE",
    "Adjacency",
    "AnsweredBy",
    "IntArray",
    "Mechanism",
    "Noise",
    "RecordBudget",
    "SeededNoise",
    "Stage",
    "SumMode",
    "SystemNoise",
    "Unit",
    "create",
    "default_names",
    "known_names",
    "mechanism_named",
    "register",
]
