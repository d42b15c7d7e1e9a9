"""A run with its cohort and its data, before any party is started; on a GPU also with the teachers of all parties."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from collegium.coordinator.run.surroundings import Progress
from collegium.coordinator.settings.run_config import PublicData, load_public
from collegium.data import Examples, PoolStore, load
from collegium.data.teacher_kinds import BUILT_IN, installed_kinds
from collegium.parties.teachers.fitting import fit_teachers, on_cuda
from collegium.parties.teachers.specs import TeacherFactory, TeacherStore, specs_of
from collegium.parties.teachers.splits import load_or_create_key, simulated_key
from collegium.simulations.cohort import Cohort, prepare, write_settings
from collegium.simulations.config import SimulationConfig
from collegium.whole_files import storing

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
    config = run.config
    if config.neighbours is not None or config.teachers.kind not in {*BUILT_IN, *installed_kinds()}:
        return 0
    factory = TeacherFactory(config.teachers.kind, config.teachers.options, config.task, (config.teachers.kind,))
    if not on_cuda(factory, config.engine.device):
        return 0
    missing = []
    for member in run.cohort:
        records = load(member.source, config.task, data_root=None)
        key = load_or_create_key(member.folder) if config.seed is None else simulated_key(config.seed, member.name)
        store = TeacherStore(member.folder / "teachers")
        for spec in specs_of(member.name, records, factory, config.teachers, key=key, store=store):
            if not store.load_into(spec.unfitted(factory), spec.name, device="cpu"):
                missing.append(spec)
    for done, _ in enumerate(fit_teachers(factory, missing, device=config.engine.device, threads=1), start=1):
        if on_progress is not None:
            on_progress(Progress("fit", done, len(missing)))
    return len(missing)
