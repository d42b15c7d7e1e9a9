"""The features by which records near a query are found: from the settings, or from the student of the labels so far."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from collegium.coordinator.selection.pool_geometry import fit_features
from collegium.coordinator.settings.run_config import NeighboursConfig
from collegium.data.feature_spec import Features
from collegium.data.features import dimensions
from collegium.data.task import Inputs
from collegium.errors import ConfigurationError, DataError, StorageError

if TYPE_CHECKING:
    from collegium.coordinator.students import Student

PRETRAINED = "pretrained"
"""Features that a network learned from the pool without labels."""

STUDENT = "student"
"""Features of the student of the labels so far; Private-kNN's iterations (Zhu et al. 2020, section 3)."""


def features_of(
    settings: NeighboursConfig,
    pool: NDArray[Any],
    inputs: Inputs,
    pretrained: Callable[[], bytes],
    student: Student | None = None,
) -> Features:
    """What ``settings`` ask for, made from the pool; before there is a student, what the inputs give without one.

    Parameters
    ----------
    pretrained : makes the network that learned from the pool without labels, as a file; called where it is asked for.

    Raises
    ------
    ConfigurationError
        If the student is no network, or too few principal components exist.
    """
    name, network = settings.features, settings.network_bytes()
    if name == PRETRAINED:
        name, network = "network", pretrained()
    if name == STUDENT:
        name = "hog" if inputs.kind == "image" else "standard"
        if student is not None:
            name, network = "network", _network_of(student, inputs)
    kept = settings.dimensions
    if kept is not None and student is not None:
        # Another network may have fewer features than the components that were asked for.
        kept = min(kept, dimensions(Features(name, network=network), inputs), len(pool) - 1)
    return fit_features(name, kept, pool, inputs, network)


def _network_of(student: Student, inputs: Inputs) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "student.safetensors"
        student.save(path)
        network = path.read_bytes()
    try:
        dimensions(Features("network", network=network), inputs)
    except (DataError, StorageError) as error:
        raise ConfigurationError(
            f"neighbours.features = 'student' needs a student that is a network ending in a linear layer: {error}"
        ) from error
    return network
