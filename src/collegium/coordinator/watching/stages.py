"""The stages of a study in their order, and how much of all of them is done: one bar for the whole."""

from collections.abc import Mapping
from typing import Any

from collegium.coordinator.settings.kinds import round_names
from collegium.coordinator.settings.run_config import RunConfig
from collegium.protocol.question import about_all_records

_FINISHED = "finished"
_LABELS = ("votes", "labels", "pretraining", "networks")


def asked_of(config: RunConfig) -> dict[str, Any]:
    """What decides the stages: how many sums over all records, whether teachers are fitted, and what is counted."""
    counts = [name for name in ("pool_check", "evaluation") if getattr(config, name) is not None]
    return {
        "sums": config.class_sums if about_all_records(config.mechanism.kind) else 0,
        "teachers": config.teachers is not None,
        "counts": [*counts, *(name for kind, own in config.counts.items() for name in round_names(kind, own))],
    }


def stages_of(asks: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    """Each stage, and the steps of a run that it is made of."""
    before = tuple(name for name in asks["counts"] if name != "evaluation")
    stages: list[tuple[str, tuple[str, ...]]] = [
        ("Parties connect", ("waiting", "describe")),
        ("They get the pool", ("hold_pool",)),
    ]
    if asks["teachers"]:
        stages.append(("They fit teachers", ("fit",)))
    if before:
        stages.append(("They count records", before))
    stages.append(("Sums and labels" if asks["sums"] else "Labels", _LABELS))
    stages.append(("Student", ("student", "baseline")))
    if "evaluation" in asks["counts"]:
        stages.append(("They measure it", ("evaluation",)))
    return [*stages, ("Report", ("report", _FINISHED))]


def here(asks: Mapping[str, Any], step: str) -> int | None:
    """The number of the stage that a step belongs to, from 0 on; None where it belongs to none."""
    return next((number for number, (_, steps) in enumerate(stages_of(asks)) if step in steps), None)


def share_done(asks: Mapping[str, Any], phase: Mapping[str, Any], rounds: int) -> float:
    """How much of a study is done, from 0 to 1; every stage counts alike."""
    stage = here(asks, phase["step"])
    if phase["step"] == _FINISHED:
        return 1.0
    if stage is None:
        return 0.0
    within = phase["done"] / phase["total"] if phase["total"] else 0.0
    if asks["sums"] and phase["step"] in _LABELS:
        within = (rounds + (within if phase["step"] == "votes" else 0.0)) / asks["sums"]
    return (stage + min(1.0, within)) / len(stages_of(asks))
