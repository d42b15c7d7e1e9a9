"""A run with its cohort and its data, before any party is started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from collegium.coordinator.run.progress import Progress
from collegium.coordinator.settings.public_data import PublicData, load_public
from collegium.data import Examples, PoolStore
from collegium.errors import StorageError
from collegium.simulations.cohort import Cohort, prepare
from collegium.simulations.config import SimulationConfig
from collegium.simulations.virtual import write_settings

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class PreparedRun:
    """Everything that a run needs before its parties are there."""

    config: SimulationConfig
    folder: Path
    cohort: Cohort
    private: Examples
    public: PublicData


def prepare_run(config: SimulationConfig, folder: Path, *, data_root: Path | None) -> PreparedRun:
    """Load the data, deal the records to the parties and leave the settings in ``folder``; twice is once.

    Raises StorageError when the folder cannot be written, and whatever loading and dealing raise.
    """
    folder = folder.resolve()
    public = load_public(config, data_root)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_settings(config, folder, data_root)
    except OSError as error:
        raise StorageError(f"cannot write the run folder {folder}: {error.strerror}; choose another") from error
    cohort, private = prepare(config, folder, data_root=data_root)
    PoolStore(folder / "pools").put(public.pool.x)
    return PreparedRun(config, folder, cohort, private, public)
