"""What `simulate`, `launch` and `demo` read: a run, and where its virtual institutions get their records."""

from pydantic import Field

from collegium.coordinator.settings.run_config import QueriesConfig, RunConfig
from collegium.data import DataSource
from collegium.settings import Frozen, validate_config
from collegium.simulations.partitions import PartitionConfig


class EngineConfig(Frozen):
    """How the virtual parties are computed."""

    workers: int = Field(default=2, ge=1)
    """Processes that share the work of the virtual parties."""
    threads: int = Field(default=1, ge=1)
    """Torch threads of each of them."""
    device: str = "auto"
    ray: str = "local"
    """``local`` starts Ray with ``workers`` processes, which end with the run; ``HOST:PORT``, or ``auto`` for the one
    that runs on this machine, is a cluster to join: it computes the parties with all of its cores."""


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


def with_budget(config: SimulationConfig, epsilon: float) -> SimulationConfig:
    """The configuration with another ε, from which the noise of class sums follows."""
    values = config.model_dump(exclude_unset=True)
    values["budget"] = {**values.get("budget", {}), "epsilon": epsilon}
    return validate_config(values, SimulationConfig, "--epsilon")


def with_changes(config: SimulationConfig, *, queries: int | None, seed: int | None) -> SimulationConfig:
    """The configuration with what the command line says instead."""
    if queries is not None:
        changed = config.queries.model_dump() | {"count": queries}
        config = config.model_copy(update={"queries": validate_config(changed, QueriesConfig, "--queries")})
    if seed is not None:
        seeded = {"partition": config.partition.model_copy(update={"seed": seed})}
        teachers = config.teachers and config.teachers.model_copy(update={"seed": seed})
        config = config.model_copy(update={"seed": seed, "teachers": teachers, **seeded})
    return config
