"""The institutions of a simulation: who they are and which records each holds.

Each party's records are written to a file of its own in the run's folder. Virtual parties and real party processes
read the same files, under the same names, with the same keys.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collegium.data import DataSource, Examples, load
from collegium.data.task import Task
from collegium.errors import ConfigurationError, StorageError
from collegium.privacy.multilabel import held_in
from collegium.protocol.identities import create_identity, read_signing_key
from collegium.protocol.roster import Roster
from collegium.simulations.config import SimulationConfig
from collegium.simulations.partitions import partition

RECORDS = "records.npz"
GROUP = "group"
ROSTER = "roster.json"


@dataclass(frozen=True)
class CohortMember:
    """One institution of the cohort and its own folder."""

    name: str
    folder: Path
    grouped: bool

    @property
    def credentials(self) -> Path:
        """Folder of its identity."""
        return self.folder / "credentials"

    @property
    def source(self) -> DataSource:
        """Its records, for whoever plays this party."""
        return DataSource(source=str(self.folder / RECORDS), group=GROUP if self.grouped else None)


Cohort = tuple[CohortMember, ...]
"""All institutions of a run."""


def prepare(config: SimulationConfig, folder: Path, *, data_root: Path | None) -> tuple[Cohort, Examples]:
    """Divide the private records among the parties, below ``folder/parties``, unless equal settings did it before.

    Returns
    -------
    The cohort, and all private records, from which a pooled baseline would learn.

    Raises
    ------
    ConfigurationError
        If a party would get no record, or the records have no labels.
    StorageError
        If a file cannot be written.
    """
    private = load(config.private, config.task, data_root=data_root)
    if private.y is None:
        raise ConfigurationError(f"private.source {config.private.source!r} has no labels to teach from")
    base = folder / "parties"
    digest = _settings_digest(config)
    stamp = base / "cohort.json"
    if not (stamp.is_file() and json.loads(stamp.read_text())["settings"] == digest):
        names = _deal(config, private, base)
        grouped = private.groups is not None
        stamp.write_text(json.dumps({"settings": digest, "grouped": grouped, "names": names}, indent=1))
    cohort = find(folder)
    _enrol(cohort, config.name).save(folder / ROSTER)
    return cohort, private


def find(folder: Path) -> Cohort:
    """The cohort that `prepare` left in ``folder``."""
    stamp = folder / "parties" / "cohort.json"
    try:
        dealt = json.loads(stamp.read_text())
    except OSError as error:
        raise StorageError(f"cannot read {stamp}: {error.strerror}; prepare the run first") from error
    return tuple(CohortMember(name, folder / "parties" / name, dealt["grouped"]) for name in dealt["names"])


def _enrol(cohort: Cohort, consortium: str) -> Roster:
    """Give each party the keys of an identity, once, and put it on the roster."""
    keys = {}
    for member in cohort:
        create_identity(member.credentials, member.name, "party")
        keys[member.name] = read_signing_key(member.credentials).public_key().public_bytes_raw()
    return Roster.of(consortium, keys)


def _settings_digest(config: SimulationConfig) -> str:
    chosen = config.model_dump_json(include={"private", "partition", "task", "seed"})
    return hashlib.sha256(chosen.encode()).hexdigest()


def _deal(config: SimulationConfig, private: Examples, base: Path) -> list[str]:
    parts = partition(private, **config.partition.model_dump())
    width = len(str(len(parts) - 1))
    names = []
    for index, part in enumerate(parts):
        name = f"party-{index:0{width}d}"
        if len(part) == 0:
            raise ConfigurationError(f"{name} would have no record: use fewer parties or a weaker skew")
        names.append(name)
        _write(private.take(part), config.task, base / name)
    return names


def _write(examples: Examples, task: Task, folder: Path) -> None:
    labels = held_in(examples.labels(), len(task.classes)) if task.multilabel else examples.labels()
    arrays = {"x": examples.x, "y": labels}
    if examples.groups is not None:
        arrays[GROUP] = examples.groups
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / "records.unfinished.npz"
        np.savez(unfinished, allow_pickle=False, **arrays)
        unfinished.replace(folder / RECORDS)
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror}") from error
