"""The mechanisms: frozen descriptions that turn vote histograms into labels and state what that costs."""

from __future__ import annotations

from collegium.coordinator.mechanisms.base import (
    ABSTAIN,
    NEXT_STAGE,
    Adjacency,
    IntArray,
    Mechanism,
    Noise,
    Stage,
    Unit,
)
from collegium.coordinator.mechanisms.noise import SeededNoise, SystemNoise
from collegium.coordinator.mechanisms.registry import create, known_names, mechanism_named, register

__all__ = [
    "ABSTAIN",
    "NEXT_STAGE",
    "Adjacency",
    "IntArray",
    "Mechanism",
    "Noise",
    "SeededNoise",
    "Stage",
    "SystemNoise",
    "Unit",
    "create",
    "known_names",
    "mechanism_named",
    "register",
]
