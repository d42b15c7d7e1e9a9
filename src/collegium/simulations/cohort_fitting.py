"""On a GPU, the teachers of a whole cohort train as one program, before its virtual parties are asked for them.

Each is kept in its own party's folder under the name that the party will look for, so the parties find
them fitted. Nobody could do this with real parties: it needs every party's records in one process.
"""

from __future__ import annotations

from collegium.coordinator.run.progress import Progress
from collegium.data import load
from collegium.parties.teachers.fitting import fit_teachers, on_cuda
from collegium.parties.teachers.kinds import BUILT_IN
from collegium.parties.teachers.specs import TeacherFactory, TeacherStore, specs_of
from collegium.parties.teachers.splits import load_or_create_key, simulated_key
from collegium.simulations.prepared import OnProgress, PreparedRun


def fit_cohort(run: PreparedRun, on_progress: OnProgress | None = None) -> int:
    """Fit and keep every missing teacher of a run's parties, if the run's device is a GPU; how many were fitted.

    Elsewhere, and for kinds that no GPU helps, nothing is done: the parties fit their own.
    """
    config = run.config
    if config.neighbours is not None or config.teachers.kind not in BUILT_IN:
        return 0
    factory = TeacherFactory(config.teachers.kind, config.teachers.options, config.task, ())
    if not on_cuda(factory, config.engine.device):
        return 0
    missing = []
    for member in run.cohort.members:
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
