"""A rehearsal: the run of a configuration over records that are no person's, each of which came in by a coin.

The configuration is the user's own: its pool, task, mechanism, budget, counts and number of parties. Only the records
are others. Canaries are inputs of the pool with classes drawn at random, which are dealt to the parties as any records
are, and pass through all that records pass through. Noise is from the operating system.

Votes tell of noise where counts are apart by about as much as the noise. Teachers are therefore `Ballots`, which vote
by a draw; where records near an input vote, their classes follow from where they lie, so that neighbours agree.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.rounds.rounds import OnReply, Parties
from collegium.coordinator.run.factories import configured_mechanism
from collegium.coordinator.run.surroundings import OnProgress, Progress
from collegium.coordinator.selection.queries import query_key
from collegium.coordinator.settings.consortium import public_root, read_consortium
from collegium.coordinator.settings.kinds import run_kind
from collegium.coordinator.settings.run_config import load_public
from collegium.data import Examples, load
from collegium.data.task import Task
from collegium.errors import ConfigurationError
from collegium.parties.teachers.specs import teacher_seed
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
from collegium_accounting.analysis.one_run import outcomes_of
from collegium_accounting.errors import UnsupportedAccounting
from collegium_accounting.mechanisms.labels import LabelMechanism
from collegium_accounting.units import IntArray

_LEFT_OUT = ("consortium", "holdout", "baseline", "seed")
_RECORDS, _BALLOTS = "canaries.npz", "ballots.npz"
_TELLING = 0.87
"""How often the first class is to win: the noise shows best there, and half of it shows too."""


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
    """`Parties`, and the questions that were put to them; reached once `around` them."""

    def __init__(self) -> None:
        self.questions: dict[str, Question] = {}

    def around(self, parties: Parties) -> Self:
        """This one, over ``parties``."""
        self._parties = parties
        return self

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


class Ballots:
    """A teacher that votes by a draw: so many teachers vote for each class of an input.

    Parameters
    ----------
    file : of all ballots; see `_draw_ballots`.
    """

    version, kept, uses_device = "1", False, False

    def __init__(self, task: Task, *, file: str) -> None:
        self._file, self._number = file, 0

    def fit(self, examples: Examples, *, seed: int, device: str) -> None:
        """Find its own number by its seed, which no other teacher has."""
        self._number = int(np.flatnonzero(_read_ballots(self._file)[0] == seed)[0])

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """See `Teacher.predict`."""
        upto = _upto(self._file, x.tobytes(), x.dtype.str, x.shape)
        return np.asarray((upto <= self._number).sum(axis=1), dtype=np.int64)

    def save(self, path: Path) -> None:
        """Ballots are not kept."""
        raise AssertionError("ballots are not kept")

    load = save


@lru_cache(maxsize=1)
def _read_ballots(file: str) -> tuple[NDArray[np.int64], dict[str, int], IntArray]:
    with np.load(file) as held:
        return held["seeds"], {key: row for row, key in enumerate(held["keys"].tolist())}, held["counts"]


@lru_cache(maxsize=2)
def _upto(file: str, content: bytes, kind: str, shape: tuple[int, ...]) -> IntArray:
    """How many teachers vote for each class of these inputs or for one before it: every teacher is asked in turn."""
    _, rows, counts = _read_ballots(file)
    x = np.frombuffer(content, dtype=kind).reshape(shape)
    return np.cumsum(counts[[rows[query_key(one)] for one in x]], axis=1)


def _draw_ballots(run: PreparedRun, random: np.random.Generator) -> None:
    """Write how many teachers vote for each class of each input of the pool, and the teachers' seeds in their order.

    One class wins with a probability of `_TELLING` under the stated noise, or as nearly as there are teachers, and a
    second one has all other votes. Where few votes get no label, two thirds of the inputs have all votes for one
    class, or as many for each. Which class is which is drawn for each input.
    """
    teachers, mechanism, pool = run.config.teachers, configured_mechanism(run.config), run.public.pool.x
    assert teachers is not None and isinstance(mechanism, LabelMechanism)  # teachers vote for labels
    seeds = [teacher_seed(teachers.seed, one.name, own) for one in run.cohort for own in range(teachers.per_party)]
    votes, classes = len(seeds), len(run.config.task.classes)
    tried = np.zeros((101, classes), dtype=np.int64)
    tried[:, 0] = np.linspace((votes + 1) // 2, votes, len(tried)).astype(np.int64)
    tried[:, 1] = votes - tried[:, 0]
    wins, passes = mechanism.expected_agreement(tried)
    telling = tried[[np.abs(wins - _TELLING).argmin()]]
    if passes.min() < 1.0:
        even = np.full(classes, votes // classes) + (np.arange(classes) < votes % classes)
        telling = np.stack([telling[0], tried[-1], even])
    counts = random.permuted(telling[random.integers(len(telling), size=len(pool))], axis=1)
    np.savez(run.folder / _BALLOTS, seeds=seeds, keys=[query_key(one) for one in pool], counts=counts)


def _by_place(x: NDArray[Any], classes: int, random: np.random.Generator) -> NDArray[np.int64]:
    """A class for each input of ``x``: which of as many inputs, drawn at random, is the nearest."""
    rows = x.reshape(len(x), -1).astype(np.float32)
    drawn = rows[random.permutation(len(rows))[:classes]]
    return np.asarray(np.stack([((rows - one) ** 2).sum(axis=1) for one in drawn]).argmin(axis=0), dtype=np.int64)


def votes_are_audited(config: SimulationConfig) -> bool:
    """Whether an audit can know the counts before noise, and the law of the outcomes.

    It cannot where sums are not the votes themselves, or where a record's answer follows from a draw of its own.
    """
    mechanism, kind = configured_mechanism(config), run_kind(config.mechanism.kind)
    votes = kind.entries(config) == len(config.task.classes) and not kind.question.per_stage
    if not isinstance(mechanism, LabelMechanism) or not votes:
        return False
    with suppress(UnsupportedAccounting):
        return all(outcomes_of(mechanism, stage) for stage in mechanism.stages)
    return False


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
    dealt = {"private": {"source": str(folder / _RECORDS)}, "partition": {"kind": "iid", "parties": parties}}
    config = validate_config(values | dealt, SimulationConfig, str(path))
    if config.budget.unit != "record" or config.task.multilabel:
        raise ConfigurationError("--run audits one record of one class: not the unit party, nor a multi-label task")
    counted = config.evaluation or config.pool_check or config.counts or about_all_records(config.mechanism.kind)
    votes = votes_are_audited(config)
    if not (counted or votes):
        raise ConfigurationError(
            "--run audits sums, counts and votes on inputs with noise of a known law, of which this run has none: "
            f"audit --mechanism {config.mechanism.name} for its labels"
        )
    if votes and config.teachers is not None:
        own = {"kind": f"{__name__}:{Ballots.__name__}", "options": {"file": str(folder / _BALLOTS)}}
        config = config.model_copy(update={"teachers": config.teachers.model_copy(update=own)})
    if canaries < 2 * parties or canaries > parties * config.budget.most_records:
        most = parties * config.budget.most_records
        raise ConfigurationError(
            f"{parties} parties rehearse with {2 * parties} to {most} canaries (--canaries); got {canaries}"
        )
    random = np.random.default_rng()
    pool = load_public(config, root).pool.x
    chosen = np.concatenate([random.permutation(len(pool)) for _ in range(-(-canaries // len(pool)))])[:canaries]
    classes = random.integers(len(config.task.classes), size=canaries)
    if votes and config.neighbours is not None:
        classes = _by_place(pool[chosen], len(config.task.classes), random)
    present = random.integers(2, size=canaries).astype(bool)
    drawn = Examples(pool[chosen], classes)
    np.savez(folder / _RECORDS, x=drawn.x[present], y=classes[present])
    on_progress(Progress("canaries dealt", canaries, canaries))
    run = prepare_run(config, folder, data_root=root)
    if votes and config.teachers is not None:
        _draw_ballots(run, random)
    overheard = Overheard()
    if processes:
        launch(run, on_progress, over=overheard.around)
    else:
        here = InProcessParties([virtual_party(run.folder, number) for number in range(parties)], config.name)
        coordinator = coordinator_of(run, overheard.around(here), on_progress)
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
