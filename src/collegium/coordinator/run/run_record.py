"""What run.json says, built piece by piece from values: no file, no clock, no party is touched here."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from collegium.coordinator.rounds.readiness import READY, PartyStatus
from collegium.coordinator.rounds.rounds import ANSWERED, RoundResult
from collegium.coordinator.run.evaluation import label_quality, prediction_quality
from collegium.coordinator.run.label_set import UNASKED
from collegium.coordinator.run.run_folder import RUN_FORMAT
from collegium.coordinator.settings.public_data import PublicData
from collegium.coordinator.settings.run_config import DISTILLATION, RunConfig, StudentConfig
from collegium.data import Examples
from collegium.data.task import Task
from collegium.errors import ConfigurationError
from collegium.privacy.mechanisms import ABSTAIN, IntArray, Mechanism
from collegium.privacy.multilabel import held_in
from collegium.protocol.messages import ArraySpec

Record = dict[str, Any]

NOT_PRIVATE = "The noise of this run came from a seed: whoever knows it can remove it. Not private; do not publish."

LEARNED_VOTES = "The student learned the teachers' votes without noise. Not private, whatever ε says; do not publish."

_FIXED = ("task", "pool", "teachers", "mechanism", "neighbours", "seed")
_FIXED_IN_BUDGET = ("unit", "bound")
_PACKAGES = ("collegium", "numpy", "opendp", "dp-accounting", "torch", "scikit-learn")


def check_same_run(run: Mapping[str, Any], config: RunConfig, folder: Path) -> None:
    """ConfigurationError when the folder's run was about other data, by other means or in another privacy unit."""
    if not run:
        return
    asked, now = run["asked"], config.model_dump(mode="json")
    differing = [key for key in _FIXED if asked.get(key) != now[key]]
    differing += [f"budget.{key}" for key in _FIXED_IN_BUDGET if asked["budget"].get(key) != now["budget"][key]]
    if differing:
        raise ConfigurationError(
            f"{folder} holds a run with another {', '.join(differing)}; choose another run folder, "
            "or put the setting back to resume that run"
        )


def begin(run: Record, config: RunConfig, mechanism: Mechanism, sum_mode: str, private: bool, pool: ArraySpec) -> None:
    """Fill in what is known before anything is asked; ConfigurationError when the pool is another one than before."""
    if run.get("pool", {}).get("sha256", pool.sha256) != pool.sha256:
        raise ConfigurationError("the pool's content is not what this run began with; restore it or use a new folder")
    learned_votes = config.student.method == DISTILLATION
    run |= {
        "format": RUN_FORMAT,
        "name": config.name,
        "state": "labelling",
        "asked": config.model_dump(mode="json"),
        "versions": _versions(),
        "private": private and not learned_votes,
        "cautions": ([] if private else [NOT_PRIVATE]) + ([LEARNED_VOTES] if learned_votes else []),
        "pool": {"sha256": pool.sha256, "inputs": pool.shape[0]},
        "sum_mode": sum_mode,
    }
    run["privacy"] = {
        "mechanism": mechanism.name,
        "parameters": mechanism.parameters(),
        "source": mechanism.source,
        "noise": config.mechanism.noise,
        "unit": config.budget.unit,
        "budget": config.budget.epsilon,
    }
    run.setdefault("parties", {})
    run.setdefault("rounds", [])


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def readiness(run: Record, statuses: Mapping[str, PartyStatus]) -> None:
    """Note how each party stands before a round."""
    for name, status in statuses.items():
        party = run["parties"].setdefault(name, {"rounds_asked": 0, "rounds_answered": 0, "failures": []})
        party |= {
            "standing": status.outcome,
            "teachers": status.teachers,
            "software": status.software,
            "teacher_kind": status.teacher_kind,
        }
        failed_before = any(failure["outcome"] == status.outcome for failure in party["failures"])
        if status.outcome != READY and not failed_before:
            party["failures"].append({"when": "preparation", "outcome": status.outcome})


def round_done(run: Record, round_id: str, queries: int, result: RoundResult, seconds: float) -> None:
    """Note a round and who failed in it, and how."""
    number = len(run["rounds"]) + 1
    failed = {party: outcome for party, outcome in result.outcomes.items() if outcome != ANSWERED}
    run["rounds"].append(
        {
            "round": number,
            "round_id": round_id,
            "queries": queries,
            "asked": len(result.outcomes),
            "answered": len(result.answered),
            "teachers": result.teachers,
            "failed": failed,
            "seconds": seconds,
        }
    )
    for name, outcome in result.outcomes.items():
        party = run["parties"][name]
        party["rounds_asked"] += 1
        if outcome == ANSWERED:
            party["rounds_answered"] += 1
        else:
            party["failures"].append({"when": f"round {number}", "outcome": outcome})


def chosen(run: Record, number: int, origin: str, choice: str, indices: IntArray) -> None:
    """Note the queries of round ``number``, so that a resumed run asks the same; of later rounds nothing remains."""
    entry = {"origin": origin, "choice": choice, "indices": indices.tolist()}
    run["chosen"] = [*run.get("chosen", ())[:number], entry]


def labels(
    issued: IntArray, indices: IntArray, unchosen: int, data: PublicData, task: Task, stopped: str | None
) -> Record:
    """What was issued; its quality too where the pool's own labels are public.

    ``unchosen`` queries were never chosen because the run stopped before their round.
    """
    given = issued[issued >= 0]
    record: Record = {
        "asked": len(issued) + unchosen,
        "answered": len(given),
        "abstained": int((issued == ABSTAIN).sum()),
        "left_out": int((issued == UNASKED).sum()) + unchosen,
        "stopped": stopped,
        "per_class": [
            {"class": name, "labels": count}
            for name, count in zip(task.classes, _given_of_class(given, task), strict=True)
        ],
    }
    if data.pool.y is not None:
        record["quality"] = label_quality(issued, data.pool.y[indices], task)
    return record


def _given_of_class(given: IntArray, task: Task) -> list[int]:
    classes = len(task.classes)
    counts = held_in(given, classes).sum(axis=0) if task.multilabel else np.bincount(given, minlength=classes)
    return [int(count) for count in counts]


def student_origin(indices: IntArray, issued: IntArray, student: StudentConfig, seed: int, pool: ArraySpec) -> str:
    """A digest of everything that a student is fitted from."""
    text = json.dumps([indices.tolist(), issued.tolist(), student.model_dump(mode="json"), seed, pool.sha256])
    return hashlib.sha256(text.encode()).hexdigest()


def student_quality(predict: Callable[[Any], IntArray], holdout: Examples | None, task: Task) -> Record:
    """Accuracy on the holdout, empty where there is none."""
    if holdout is None or holdout.y is None:
        return {}
    return prediction_quality(predict(holdout.x), holdout.y, task)
