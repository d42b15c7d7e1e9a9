"""A rehearsal: the run of a configuration over records that are no person's, each of which came in by a coin.

The configuration is the user's own: its pool, task, mechanism, budget, counts and number of parties. Only the records
are others. Canaries are inputs of the pool with classes drawn at random, which are dealt to the parties as any records
are, and pass through all that records pass through. Noise is from the operating system.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.rounds.rounds import OnReply, Parties
from collegium.coordinator.run.surroundings import OnProgress, Progress
from collegium.coordinator.settings.consortium import public_root, read_consortium
from collegium.coordinator.settings.run_config import load_public
from collegium.data import Examples, load
from collegium.errors import ConfigurationError
from collegium.protocol.question import Question, about_all_records
from collegium.protocol.replies import ReplyBody
from collegium.protocol.requests import Ask, RequestBody
from collegium.settings import read_config, read_toml, validate_config
from collegium.simulations.cohort import PreparedRun, prepare_run, virtual_party
from collegium.simulations.config import SimulationConfig
from collegium.simulations.launcher import launch
from collegium.simulations.local import InProcessParties
from collegium.simulations.partitions import partition
from collegium.simulations.simulate import coordinator_of

_LEFT_OUT = ("consortium", "holdout", "baseline", "seed")
_RECORDS = "canaries.npz"


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What was run, and what was asked.

    Parameters
    ----------
    canaries : all of them, with their classes.
    present : which of them were in, ``[canaries]``.
    questions : that the parties were asked, in their order.
    """

    run: PreparedRun
    canaries: Examples
    present: NDArray[np.bool_]
    questions: tuple[Question, ...]


class Overheard:
    """`Parties`, and the questions that were put to them."""

    def __init__(self, parties: Parties) -> None:
        self._parties = parties
        self.questions: dict[str, Question] = {}

    def names(self) -> list[str]:
        """See `Parties.names`."""
        return self._parties.names()

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        """See `Parties.ask`."""
        asked = [body.question for body in requests.values() if isinstance(body, Ask)]
        self.questions |= {question.name: question for question in asked}
        return self._parties.ask(requests, timeout_s=timeout_s, on_reply=on_reply)


def rehearse(
    path: Path,
    folder: Path,
    canaries: int,
    *,
    processes: bool,
    data_root: Path | None,
    on_progress: OnProgress = lambda step: None,
) -> Rehearsal:
    """Run the configuration at ``path``, of a simulation or a consortium, over ``canaries`` records.

    Parameters
    ----------
    folder : where the run is kept.
    processes : whether each party is a process of its own, reached over TLS; else all are in this process.

    Raises
    ------
    ConfigurationError
        If the file is no configuration, its parties do not hold so many records, or nothing of it is audited.
    """
    values, parties, root = _settings(path, data_root)
    config = validate_config(values | _dealt(folder, parties), SimulationConfig, str(path))
    if config.budget.unit != "record" or config.task.multilabel:
        raise ConfigurationError("--run audits one record of one class: not the unit party, nor a multi-label task")
    counted = config.evaluation or config.pool_check or config.counts
    if not counted and not about_all_records(config.mechanism.kind):
        raise ConfigurationError(
            "--run audits sums and counts of all records, of which this run has none: audit --mechanism "
            f"{config.mechanism.name} for its labels"
        )
    if canaries < 2 * parties or canaries > parties * config.budget.most_records:
        most = parties * config.budget.most_records
        raise ConfigurationError(f"{parties} parties rehearse with {2 * parties} to {most} canaries; got {canaries}")
    random = np.random.default_rng()
    pool = load_public(config, root).pool.x
    chosen = np.concatenate([random.permutation(len(pool)) for _ in range(-(-canaries // len(pool)))])[:canaries]
    classes = random.integers(len(config.task.classes), size=canaries)
    present = random.integers(2, size=canaries).astype(bool)
    drawn = Examples(pool[chosen], classes)
    np.savez(folder / _RECORDS, x=drawn.x[present], y=classes[present])
    on_progress(Progress("canaries dealt", canaries, canaries))
    run = prepare_run(config, folder, data_root=root)
    if processes:
        heard: list[Overheard] = []

        def over(reached: Parties) -> Overheard:
            heard.append(Overheard(reached))
            return heard[0]

        launch(run, on_progress, over=over)
        return Rehearsal(run, drawn, present, tuple(heard[0].questions.values()))
    here = InProcessParties([virtual_party(run.folder, number) for number in range(parties)], config.name)
    overheard = Overheard(here)
    coordinator = coordinator_of(run, overheard, on_progress)
    coordinator.label()
    if config.evaluation is not None:
        coordinator.evaluate()
    return Rehearsal(run, drawn, present, tuple(overheard.questions.values()))


def _settings(path: Path, data_root: Path | None) -> tuple[dict[str, Any], int, Path | None]:
    """What the file says of a run, the number of its parties, and where its public data lie."""
    values, _ = read_toml(path)
    if "consortium" in values:
        consortium = read_consortium(path)
        parties, root = len(consortium.consortium.parties), public_root(consortium, data_root)
    else:
        simulation, root = read_config(path, SimulationConfig), data_root
        dealt, parties = simulation.partition, simulation.partition.parties or 0
        if not parties:
            parties = len(partition(load(simulation.private, simulation.task, data_root=root), dealt))
    return {name: value for name, value in values.items() if name not in _LEFT_OUT}, parties, root


def _dealt(folder: Path, parties: int) -> dict[str, Any]:
    return {"private": {"source": str(folder / _RECORDS)}, "partition": {"kind": "iid", "parties": parties}}
