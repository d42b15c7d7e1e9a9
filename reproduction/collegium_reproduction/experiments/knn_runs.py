"""Runs of Private-kNN over one party with all records: label, learn, label again by what was learned (Tables 1, 2)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from collegium.coordinator.run.coordinator import Compute, CoordinatorRun, Reach, Storage, Watch
from collegium.coordinator.run.label_set import LabelSet
from collegium.coordinator.run.run_folder import read_labels
from collegium.coordinator.run.run_record import reached
from collegium.coordinator.run.student_trainer import StudentTrainer
from collegium.coordinator.settings.run_config import PublicData, RunConfig, load_public
from collegium.data import DataSource, Examples, PoolStore, default_task
from collegium.data.task import Task
from collegium.models.features import Features, dimensions
from collegium.models.students import Student, read_student
from collegium.parties.party import Party, unrestricted
from collegium.parties.policy import DEFAULT_RECORD_RHO
from collegium.parties.teachers.splits import simulated_key
from collegium.settings import validate_config
from collegium.simulations.local import InProcessParties
from collegium.whole_files import make_folder
from collegium_accounting.analysis.epsilons import planned_charges, published_curve
from collegium_accounting.mechanisms import ABSTAIN
from collegium_accounting.mechanisms.individual_knn import IndividualKNN
from collegium_accounting.renyi import WIDE_ORDERS, Conversion
from collegium_reproduction.experiments.base import Setting, kept_or_measured, percent
from collegium_reproduction.experiments.epsilons import DELTA, independent_epsilons, participation_epsilons
from collegium_reproduction.nearest.knn import PrivateKNN
from collegium_reproduction.screening import private_knn_curve

_ONLY = "all-records"

MNIST_TASK = default_task("mnist")
MNIST: Mapping[str, Any] = {
    "task": MNIST_TASK.model_dump(),
    "pool": {"source": "mnist", "split": "test", "stop": 5000},
    "holdout": {"source": "mnist", "split": "test", "start": 5000},
    "student": {"method": "contrastive"},
}
"""The paper's split: half of the test set is public, half is for testing."""
MNIST_PRIVATE = DataSource(source="mnist", split="train")


@dataclass(frozen=True)
class NearestPlan:
    """Queries put to the k nearest of a sample of the records or to those in a radius, in one iteration or several.

    Parameters
    ----------
    key : names its rows and folders.
    data : the sections task, pool, holdout and student of a run's configuration.
    sizes : queries of each iteration.
    budget : ε that no iteration may pass, at δ = 1e-5.
    choice : how they are chosen, and by which features.
    features : by which records are found in the first iteration; later ones take those of the student so far.
    dimensions : principal components of the features in which distances are taken; 0 takes them as they are.
    within : of individual neighbours, how many records the radius is to hold.
    """

    key: str
    title: str
    data: Mapping[str, Any]
    mechanism: PrivateKNN | IndividualKNN
    sizes: tuple[int, ...]
    budget: float
    choice: str = "random"
    choice_features: str | None = None
    features: str = "hog"
    dimensions: int = 64
    within: int | None = None

    def config(self, records: int, seed: int, iterations: int, taught: Path | None = None) -> RunConfig:
        """The iteration of that number, which asks about the inputs of those before it too, for nothing.

        Of all, ``records`` are private; ``taught`` is the student of the iterations before.
        """
        mechanism, sizes = self.mechanism, self.sizes[:iterations]
        near: dict[str, Any] = {"share": (self.within or 0) / records}
        if isinstance(mechanism, PrivateKNN):
            share = mechanism.k / (mechanism.sampling_rate * records)
            near = {"k": mechanism.k, "share": share, "records_at_least": records}
        found: dict[str, Any] = {"features": self.features, "dimensions": self.dimensions}
        if taught is not None:
            inputs = Task.model_validate(self.data["task"]).inputs
            known = dimensions(Features("network", network=taught.read_bytes()), inputs)
            found = {"features": "network", "network": taught, "dimensions": min(self.dimensions, known)}
        parameters = {name: value for name, value in mechanism.parameters().items() if name not in ("k", "classes")}
        return validate_config(
            {
                **self.data,
                "name": "private-knn",
                "seed": seed,
                "votes": {"mode": "clear"},
                "mechanism": {"name": mechanism.name, "parameters": parameters},
                "budget": {"epsilon": self.budget},
                "queries": {
                    "count": sum(sizes),
                    "choice": self.choice,
                    "features": self.choice_features,
                },
                "neighbours": {**found, **near},
            },
            RunConfig,
            "private-knn",
        )


def measure(plan: NearestPlan, seed: int, private: Examples, setting: Setting) -> list[dict[str, Any]]:
    """A row for every iteration: its labels, ε up to there, and the student of all labels so far.

    What an interrupted run has measured already is found in the setting's folder.
    """
    folder = setting.folder / f"{plan.key}-seed-{seed}"
    parties: InProcessParties | None = None
    learned = [_cache(setting) / f"student-{plan.key}-{seed}-{number}" for number in range(1, len(plan.sizes) + 1)]
    rows = []

    def iteration(number: int) -> dict[str, Any]:
        nonlocal parties
        setting.say(f"seed {seed}, {plan.title}: iteration {number}, {plan.sizes[number - 1]:,} queries")
        config = plan.config(len(private), seed, number, learned[number - 2] if number > 1 else None)
        # One connection for all iterations: a party takes no request's number twice.
        parties = parties or _parties(plan, config, private, folder, seed, setting)
        row = {"row": plan.key, "seed": seed, "iteration": number}
        return row | _iteration(plan, number, config, parties, learned[number - 1], setting)

    for number in range(1, len(plan.sizes) + 1):
        rows.append(kept_or_measured(folder / f"iteration-{number}.json", partial(iteration, number)))
        setting.say(
            f"seed {seed}: {rows[-1]['answered']} of {rows[-1]['screened']} answered, labels "
            f"{percent(rows[-1]['labels'])}, ε {rows[-1]['epsilon']:.3f}, student {percent(rows[-1]['student'])}"
        )
    return rows


def _parties(
    plan: NearestPlan, config: RunConfig, private: Examples, folder: Path, seed: int, setting: Setting
) -> InProcessParties:
    told = plan.mechanism
    budget = told.record_budget()
    agreed = DEFAULT_RECORD_RHO if budget is None else budget.participations * budget.rho_of_one_participation
    party = Party(
        _ONLY,
        private,
        config.task,
        folder=folder / "party",
        pools=PoolStore(None),
        split_key=simulated_key(seed, _ONLY),
        device=setting.device,
        record_rho=agreed,
        policy=unrestricted,
    )
    return InProcessParties([party], config.name)


def _iteration(
    plan: NearestPlan, number: int, config: RunConfig, parties: InProcessParties, learned: Path, setting: Setting
) -> dict[str, Any]:
    """A run of its own, paid from the ledger of all; ``learned`` is the file of its student."""
    folder = setting.folder / f"{plan.key}-seed-{config.seed}"
    own, before = folder / f"run-{number}", sum(plan.sizes[: number - 1])
    began_s = time.process_time()
    public = load_public(config, setting.data_root)
    run = CoordinatorRun(
        config,
        Reach(parties),
        Storage(own, folder / "ledger.sqlite", cache=_cache(setting)),
        public=public,
        compute=Compute(setting.device, setting.workers),
        watch=Watch(setting.progress),
    ).label()
    issued = _label_set(own)
    labels_s = time.process_time() - began_s
    if not learned.exists():  # the next iteration finds neighbours by it
        make_folder(learned.parent)
        learning_of(config, public, setting).fit(issued).save(learned)
    counts = reached(run.labels)
    given, screened = issued.labels >= 0, counts.answered + counts.abstained
    right = (issued.labels == public.pool.labels()[issued.indices])[before:][given[before:]]
    return {
        "screened": screened,
        "answered": int(given.sum()),
        "answered_here": len(right),
        "labels": float(right.mean()),
        "epsilon": reached(run.privacy).units["record"],
        "epsilon_classic": _classic(plan.mechanism, screened, int(given.sum()), config.budget.delta),
        "student": accuracy(read_student(learned, device=setting.device), public),
        "labels_cpu_s": round(labels_s, 1),
        "cpu_s": round(time.process_time() - began_s, 1),
    }


def recounted(plans: Sequence[NearestPlan], results: Mapping[str, Any]) -> dict[str, Any]:
    """The ε of rows that were measured, from how many queries were screened and answered."""
    mechanisms = {plan.key: plan.mechanism for plan in plans}
    rows = []
    for row in results["rows"]:
        mechanism, screened, answered = mechanisms[row["row"]], row["screened"], row["answered"]
        if isinstance(mechanism, IndividualKNN):
            improved = participation_epsilons(mechanism.sigma, mechanism.participations)["epsilon"]
        else:
            improved = independent_epsilons(mechanism, screened, answered=answered)["independent"]
        rows.append({"epsilon": improved, "epsilon_classic": _classic(mechanism, screened, answered, DELTA)})
    return {"rows": rows}


def learning_of(config: RunConfig, public: PublicData, setting: Setting) -> StudentTrainer:
    """What a run of ``config`` learns, kept where its iterations find it."""
    compute = Compute(setting.device, setting.workers)
    return StudentTrainer(config, public, _cache(setting), compute, lambda step, done, total: None)


def accuracy(student: Student, public: PublicData) -> float:
    """Of ``student`` on the holdout."""
    assert public.holdout is not None
    return float((student.predict(public.holdout.x) == public.holdout.labels()).mean())


def _cache(setting: Setting) -> Path:
    return setting.folder / "learned"


def _label_set(folder: Path) -> LabelSet:
    """What was asked, in the order in which it was chosen, and what came of it."""
    rows = read_labels(folder / "labels.csv")
    indices = np.array([index for index, _ in rows], dtype=np.int64)
    return LabelSet(indices, np.array([ABSTAIN if label is None else label for _, label in rows], dtype=np.int64))


def _classic(mechanism: PrivateKNN | IndividualKNN, screened: int, answered: int, delta: float) -> float:
    """ε by the classic conversion; of sampled neighbours by Theorem 7 and the sampled Gaussian, as in the paper."""
    if isinstance(mechanism, PrivateKNN):
        curve = private_knn_curve(mechanism, WIDE_ORDERS, screened, answered)
    else:
        curve = published_curve(planned_charges(mechanism, mechanism.unit(), screened, answered))
    return curve.to_epsilon(delta, Conversion.CLASSIC).epsilon
