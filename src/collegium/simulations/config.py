"""What `simulate`, `launch` and `demo` read: a run, and where its virtual institutions get their records."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from collegium.coordinator.config import RunConfig
from collegium.protocol.inputs import DataSource
from collegium.protocol.task import Frozen
from collegium.simulations.partitions import PartitionConfig


class EngineConfig(Frozen):
    """How the virtual parties are computed."""

    workers: int = Field(default=2, ge=1)
    """Processes that share the work of the virtual parties."""
    threads: int = Field(default=1, ge=1)
    """Torch threads of each of them."""
    device: str = "auto"


class BaselineConfig(Frozen):
    """The model that could be trained if the parties pooled their records: the yardstick, without privacy."""

    method: str = "supervised"
    options: dict[str, float | int | str | bool] = Field(default_factory=dict)


class SimulationConfig(RunConfig):
    """A run together with the records that its parties hold."""

    private: DataSource
    """Labelled records, dealt to the parties by `partition`."""
    partition: PartitionConfig
    engine: EngineConfig = EngineConfig()
    baseline: BaselineConfig | None = None
    research: Literal[True, False] = True
    """Also record what only a simulation may know: true labels, gaps, data-dependent ε."""
