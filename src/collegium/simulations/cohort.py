"""The institutions of a simulation: who they are, their records, a run with them, and the parties that play them."""

import functools
import hashlib
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collegium.coordinator.run.surroundings import OnProgress, Progress
from collegium.coordinator.settings.run_config import PublicData, load_public
from collegium.data import DataSource, Examples, PoolStore, load
from collegium.data.several_labels import held_in
from collegium.data.task import Task
from collegium.data.teacher_kinds import BUILT_IN, installed_kinds
from collegium.errors import ConfigurationError
from collegium.parties.party import Party, unrestricted
from collegium.parties.summing import Membership
from collegium.parties.teachers.fitting import fit_teachers, on_cuda
from collegium.parties.teachers.kinds import find_kind
from collegium.parties.teachers.specs import TeacherFactory, TeacherStore, specs_of
from collegium.parties.teachers.splits import load_or_create_key, simulated_key
from collegium.protocol.identities import create_identity, read_signing_key
from collegium.protocol.roster import Roster
from collegium.simulations.config import SimulationConfig
from collegium.simulations.partitions import partition
from collegium.whole_files import read_whole, replacing, storing

RECORDS = "records.npz"
GROUP = "group"
ROSTER = "roster.json"
COORDINATOR = "coordinator"
"""The folder of the coordinator's identity in a run over real processes."""


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
        If there is no such kind of teacher, a party would get no record, or the records have no labels.
    StorageError
        If a file cannot be written.
    """
    for kind in own_kinds(config):  # a mistake in its name is told here, and not by every party
        try:
            find_kind(kind, allowed_imports=(kind,))
        except ConfigurationError as error:
            raise ConfigurationError(f"teachers.kind: {error}") from error
    private = load(config.private, config.task, data_root=data_root)
    if private.y is None:
        raise ConfigurationError(f"private.source {config.private.source!r} has no labels to teach from")
    base = folder / "parties"
    chosen = config.model_dump_json(include={"private", "partition", "task", "seed"})
    digest = hashlib.sha256(chosen.encode()).hexdigest()
    stamp = base / "cohort.json"
    if not (stamp.is_file() and json.loads(stamp.read_text())["settings"] == digest):
        names = _deal(config, private, base)
        grouped = private.groups is not None
        stamp.write_text(json.dumps({"settings": digest, "grouped": grouped, "names": names}, indent=1))
    cohort = find(folder)
    _enrol(cohort, config.name).save(folder / ROSTER)
    return cohort, private


def own_kinds(config: SimulationConfig) -> tuple[str, ...]:
    """The kind of teacher, if the run has one that is not built in: whoever wrote the file plays the parties too."""
    return () if config.teachers is None or config.teachers.kind in BUILT_IN else (config.teachers.kind,)


def find(folder: Path) -> Cohort:
    """The cohort that `prepare` left in ``folder``."""
    stamp = folder / "parties" / "cohort.json"
    dealt = json.loads(read_whole(stamp, "; prepare the run first"))
    return tuple(CohortMember(name, folder / "parties" / name, dealt["grouped"]) for name in dealt["names"])


def _enrol(cohort: Cohort, consortium: str) -> Roster:
    """Give each party the keys of an identity, once, and put it on the roster."""
    keys = {}
    for member in cohort:
        create_identity(member.credentials, member.name, "party")
        keys[member.name] = read_signing_key(member.credentials).public_key().public_bytes_raw()
    return Roster.of(consortium, keys)


def _deal(config: SimulationConfig, private: Examples, base: Path) -> list[str]:
    parts = partition(private, config.partition)
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
    with replacing(folder / RECORDS, "write") as beside:
        folder.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)


SETTINGS = "simulation.json"


def write_settings(config: SimulationConfig, folder: Path, data_root: Path | None) -> None:
    """Leave the settings where virtual parties, in whatever process, find them."""
    root = None if data_root is None else str(data_root.resolve())
    settings = {"data_root": root, "simulation": config.model_dump(mode="json")}
    (folder / SETTINGS).write_text(json.dumps(settings, indent=1))


@functools.lru_cache(maxsize=4)
def read_settings(folder: Path) -> tuple[SimulationConfig, Path | None]:
    """The settings that `write_settings` wrote, and where the run finds its data files."""
    advice = f"; {folder} holds no prepared run: collegium simulate CONFIG --run {folder} --prepare-only"
    held = json.loads(read_whole(folder / SETTINGS, advice))
    root = held["data_root"]
    return SimulationConfig.model_validate(held["simulation"]), None if root is None else Path(root)


@functools.lru_cache(maxsize=4)
def _members(folder: Path) -> tuple[Cohort, Roster]:
    """All parties of the run, read once for all those that a process plays."""
    return find(folder), Roster.load(folder / ROSTER)


@functools.lru_cache(maxsize=1024)
def virtual_party(folder: Path, index: int) -> Party:
    """Party number ``index`` of the run in ``folder``, kept for the life of this process."""
    config, _ = read_settings(folder)
    cohort, roster = _members(folder)
    if not 0 <= index < len(cohort):
        raise ConfigurationError(f"party {index} of {len(cohort)}: the engine has too many nodes")
    member = cohort[index]
    return Party(
        member.name,
        load(member.source, config.task, data_root=None),
        config.task,
        folder=member.folder,
        pools=PoolStore(folder / "pools"),
        device=config.engine.device,
        threads=config.engine.threads,
        allowed_imports=own_kinds(config),
        record_rho=math.inf,  # a simulation asks what a run would give; the run's own budget per record holds
        split_key=None if config.seed is None else simulated_key(config.seed, member.name),
        membership=_membership(roster, member, config),
        policy=unrestricted,
    )


def _membership(roster: Roster, member: CohortMember, config: SimulationConfig) -> Membership:
    """The virtual party among the others.

    Its secrets of a round follow from its key and the round's id, so that whichever process plays the
    party next has the same ones. A real party draws them from the operating system and keeps them to itself.
    """
    key = read_signing_key(member.credentials)
    secret = key.private_bytes_raw()

    def random_bytes(round_id: str) -> Callable[[int], bytes]:
        counter = itertools.count()

        def draw(size: int) -> bytes:
            text = b"collegium simulated round\0" + round_id.encode() + next(counter).to_bytes(8, "big")
            return hashlib.shake_256(secret + text).digest(size)

        return draw

    return Membership(
        roster.consortium,
        roster.signing_keys(),
        key.sign,
        config.votes.collusion,
        random_bytes=random_bytes,
        noise_seed=config.seed,
    )


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
    with storing(f"write the run folder {folder}", "; choose another"):
        folder.mkdir(parents=True, exist_ok=True)
        write_settings(config, folder, data_root)
    cohort, private = prepare(config, folder, data_root=data_root)
    PoolStore(folder / "pools").put(public.pool.x)
    return PreparedRun(config, folder, cohort, private, public)


def fit_cohort(run: PreparedRun, on_progress: OnProgress | None = None) -> int:
    """Fit every missing teacher of all parties as one program, if the device is a GPU; return how many were fitted.

    Each teacher is kept in its own party's folder under the name that the party looks for, so that the party finds it
    fitted. Real parties cannot do this: it needs the records of all parties in one process. On other devices, and for
    kinds that no GPU helps, nothing is done, and the parties fit their own.
    """
    config, teachers = run.config, run.config.teachers
    if teachers is None or teachers.kind not in {*BUILT_IN, *installed_kinds()}:
        return 0
    factory = TeacherFactory(teachers, config.task, own_kinds(config))
    if not on_cuda(factory, config.engine.device):
        return 0
    missing = []
    for member in run.cohort:
        records = load(member.source, config.task, data_root=None)
        key = load_or_create_key(member.folder) if config.seed is None else simulated_key(config.seed, member.name)
        store = TeacherStore(member.folder / "teachers")
        for spec in specs_of(member.name, records, factory, key=key, store=store):
            if not store.load_into(spec.unfitted(), spec.name, device="cpu"):
                missing.append(spec)
    for done, _ in enumerate(fit_teachers(missing, device=config.engine.device, threads=1), start=1):
        if on_progress is not None:
            on_progress(Progress("fit", done, len(missing)))
    return len(missing)
