"""The state of a run: typed values, whose JSON is run.json. No file, no clock and no party is touched here."""

import json
import platform
from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, JsonValue

import collegium_accounting
from collegium.coordinator.rounds.readiness import READY, PartyStatus
from collegium.coordinator.rounds.rounds import ANSWERED, RoundResult
from collegium.coordinator.run.label_set import UNASKED, Quality, prediction_quality
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data.several_labels import held_in
from collegium.data.task import Task
from collegium.data.values import ArraySpec
from collegium.errors import ConfigurationError
from collegium.privacy.analysis.evaluation import Measures
from collegium.privacy.analysis.ledger_report import LedgerReport
from collegium.privacy.analysis.pool_fit import PoolFit
from collegium.protocol.rehearsals import is_rehearsal
from collegium.version import __version__
from collegium_accounting.mechanisms import ABSTAIN, IntArray

RUN_FORMAT: Final = 9
"""Version of the record: raised with every change of its fields."""

NOT_PRIVATE = "The noise of this run came from a seed: whoever knows it can remove it. Not private; do not publish."

SAME_AGAIN = (
    "another study asked the same sums before: labels and student are those of that study, nobody was asked, and "
    "nothing was paid"
)
"""What run.json, the report and the last line say of a study that is no new one."""

FEW_RECORDS = (
    "the sums count about {:,} records, and noise decides with up to {:,}: spend more ε, or take in more institutions"
)
"""What run.json, the report and the last line say where labels follow from noise."""

UNBOUNDED = (
    "One institution that sends what no records of its own give may have decided the student and its figures: there "
    "were no groups, and no cap (budget.records_per_party)."
)
"""What report and model card say where that is so."""

REHEARSAL = "A rehearsal: this student has learned from invented records, and its predictions mean nothing."

_FIXED = ("task", "pool", "teachers", "mechanism", "neighbours", "seed")
_FIXED_IN_BUDGET = ("unit", "bound")
_PACKAGES = ("numpy", "opendp", "torch", "scikit-learn")


class Record(BaseModel):
    """A part of the state. It may change while the run is open; what is assigned is checked."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class PoolRecord(Record):
    """The public pool: its name and its number of inputs."""

    sha256: str
    inputs: int


class PartyFailure(Record):
    """What went wrong with a party, and when: ``preparation`` or ``round N``."""

    when: str
    outcome: str


class PartyRecord(Record):
    """One party of the run."""

    status: str = "unreachable"
    """``ready``, or what went wrong when it was last prepared."""
    teachers: int = 0
    software: str = ""
    teacher_kind: str = ""
    persons: bool = False
    """Whether its institution said that what counts as one record is a person."""
    rounds_asked: int = 0
    rounds_answered: int = 0
    failures: list[PartyFailure] = []


class RoundRecord(Record):
    """One batch of queries that was put to the parties."""

    round: int
    round_id: str
    queries: int
    asked: int
    """Parties asked."""
    answered: int
    """Parties whose answers are in the sum."""
    teachers: int
    failed: dict[str, str]
    """The outcome of each party that is not in the sum."""
    seconds: float


class ChosenQueries(Record):
    """The queries of a run, with a digest of everything that the choice followed from."""

    origin: str
    choice: str
    indices: list[int]


class ClassCount(Record):
    """How many labels of one class were issued."""

    class_name: str
    labels: int


class LabelsRecord(Record):
    """How many queries got a label, and why not all of them did."""

    asked: int
    answered: int
    abstained: int
    left_out: int
    stopped: str | None
    """Why the run asked no more queries, or did without a second sum; None where nothing is missing."""
    per_class: list[ClassCount]
    quality: Quality | None = None
    """Against the pool's own public labels, where it has any."""


class StudentRecord(Record):
    """The published student."""

    method: str
    fitted_from: str
    """A digest of the labels and settings from which it was fitted."""
    quality: Quality | None = None
    """On the holdout, where there is one."""


class CountsRecord(Record):
    """How the parties counted their own records, and what was charged for it."""

    sum_mode: str
    sigma: float
    """Standard deviation of the noise on each count that is charged, in records."""
    parts: int
    """How many counts one record adds to."""
    paid: bool = False
    """Whether the budget took them. What is still to be had for it, the ledger alone says."""
    asked: bool = False
    """Whether the parties were asked."""
    why_not: str | None = None
    """Why there are no figures."""


class Table(Record):
    """What counts came to, for people."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]


class OtherCountsRecord(CountsRecord):
    """Counts of a kind from another package."""

    found: Table | None = None


class EvaluationRecord(CountsRecord):
    """How the parties measured the student on their own records."""

    fitted_from: str = ""
    """Of the student that was measured; empty before."""
    measures: Measures | None = None
    set_aside: str | None = None
    """Why the figures are not of all groups of parties."""


class PoolCheckRecord(CountsRecord):
    """How well the pool covers the parties' records."""

    found: PoolFit | None = None

    def __str__(self) -> str:
        if self.found is not None:
            return str(self.found)
        return f"The parties did not compare their records with the pool: {self.why_not or 'not asked yet'}"


class BaselineRecord(Record):
    """A model trained without privacy on the pooled records of a simulation."""

    method: str
    records: int
    accuracy: float | None


class GroupsRecord(Record):
    """How the parties were summed by groups."""

    members: list[list[str]]
    """The parties of each group; one group of all where they were summed together."""
    left_out: int | None = None
    """The number of the group that spoils the result, from 0 on; None where all are in it."""
    why: str | None = None


class LedgerRecord(Record):
    """The last entry of the ledger when the labels were counted."""

    head: str
    signed: bool


class RunRecord(Record):
    """Everything that is known of a run. What is not known yet is None or empty."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, ignored_types=(cached_property,))

    format: Literal[9] = RUN_FORMAT
    name: str
    state: str = "labelling"
    """``labelling``, ``labelled``, ``finished`` or ``stopped: why``."""
    refused: str | None = None
    """Why nothing of the run is published: numbers that were released contradict each other."""
    asked: dict[str, JsonValue]
    """The whole configuration, as it was given."""
    versions: dict[str, str]
    private: bool
    """Whether what is published of the run is private: false where its noise came from a seed."""
    cautions: list[str]
    pool: PoolRecord
    sum_mode: str
    privacy: LedgerReport | None = None
    """What the ledger's entries came to when the labels were counted."""
    parties: dict[str, PartyRecord] = {}
    rounds: list[RoundRecord] = []
    chosen: ChosenQueries | None = None
    labels: LabelsRecord | None = None
    student: StudentRecord | None = None
    pool_check: PoolCheckRecord | None = None
    counts: dict[str, OtherCountsRecord] = Field(default_factory=dict)
    evaluation: EvaluationRecord | None = None
    groups: GroupsRecord | None = None
    baseline: BaselineRecord | None = None
    ledger: LedgerRecord | None = None
    timings_s: dict[str, float] = {}

    @cached_property
    def config(self) -> RunConfig:
        """What was asked, without what only a simulation or a consortium adds to it.

        A section that the version did not know which began the run was not asked for.
        """
        return RunConfig.model_validate(
            {name: self.asked[name] for name in RunConfig.model_fields if name in self.asked}
        )

    @property
    def charged(self) -> LedgerReport | None:
        """What the ledger's entries came to; None where nothing was charged."""
        return self.privacy if self.privacy is not None and self.privacy.from_utc is not None else None

    @property
    def label_accuracy(self) -> float | None:
        """Fraction of the issued labels that agree with the pool's own; None where it is not known."""
        return self.labels.quality.accuracy if self.labels is not None and self.labels.quality is not None else None

    @property
    def student_accuracy(self) -> float | None:
        """Fraction of the holdout that the student predicts right; None where it is not known."""
        return self.student.quality.accuracy if self.student is not None and self.student.quality is not None else None

    @property
    def measured(self) -> Measures | None:
        """What the parties measured of the student on their own records; None where they did not."""
        return None if self.evaluation is None else self.evaluation.measures

    @property
    def verdict(self) -> str | None:
        """How good the student is, from "right for …" on: by the holdout, else by the institutions' own records."""
        held_out = None if self.student is None or self.student.quality is None else self.student.quality.verdict
        return held_out or (None if self.measured is None else self.measured.verdict)

    @property
    def taught(self) -> int:
        """How many institutions' answers the labels follow from, also where an earlier study asked for them."""
        answered = sum(party.rounds_answered > 0 for party in self.parties.values())
        if answered or self.groups is None:
            return answered or len(self.parties)
        return sum(len(one) for number, one in enumerate(self.groups.members) if number != self.groups.left_out)

    @property
    def unbounded(self) -> str | None:
        """What people are told where one institution may weigh as much as it likes: without groups and a cap."""
        groups, budget = self.groups, self.config.budget
        capped = budget.records_per_party is not None or budget.unit != "record"
        return None if groups is None or len(groups.members) > 1 or capped else UNBOUNDED

    @property
    def record_is(self) -> str:
        """What one record is: a person where every party said so, else a row."""
        return "person" if self.parties and all(party.persons for party in self.parties.values()) else "row"

    def note_statuses(self, statuses: Mapping[str, PartyStatus]) -> None:
        """Note whether each party is ready for a round."""
        for name, status in statuses.items():
            party = self.parties.setdefault(name, PartyRecord())
            party.status, party.teachers = status.outcome, status.teachers
            party.software, party.teacher_kind = status.software, status.teacher_kind
            if status.software:  # it has described itself
                party.persons = status.persons
            known = any(failure.outcome == status.outcome for failure in party.failures)
            if status.outcome != READY and not known:
                party.failures.append(PartyFailure(when="preparation", outcome=status.outcome))

    def note_round(self, round_id: str, queries: int, result: RoundResult, seconds: float) -> None:
        """Note a round, and which parties failed in it and how."""
        number = len(self.rounds) + 1
        self.rounds.append(
            RoundRecord(
                round=number,
                round_id=round_id,
                queries=queries,
                asked=len(result.outcomes),
                answered=len(result.answered),
                teachers=result.teachers,
                failed={party: outcome for party, outcome in result.outcomes.items() if outcome != ANSWERED},
                seconds=seconds,
            )
        )
        for name, outcome in result.outcomes.items():
            party = self.parties[name]
            party.rounds_asked += 1
            if outcome == ANSWERED:
                party.rounds_answered += 1
            else:
                party.failures.append(PartyFailure(when=f"round {number}", outcome=outcome))


Part = TypeVar("Part")


def reached(part: Part | None) -> Part:
    """A part of the record that is there once the run has come so far; ConfigurationError where it has not."""
    if part is None:
        raise ConfigurationError("the run has not reached this step yet: start it again, and it goes on")
    return part


def check_same_run(record: RunRecord, config: RunConfig, pool: ArraySpec, folder: Path) -> None:
    """Raise ConfigurationError when ``config`` has other data, another mechanism or another privacy unit.

    Parameters
    ----------
    record : what the folder holds.
    pool : names the pool as it was loaded now.
    """
    now = config.model_dump(mode="json")
    asked = json.loads(record.config.model_dump_json())
    differing = [key for key in _FIXED if asked[key] != now[key]]
    differing += [f"budget.{key}" for key in _FIXED_IN_BUDGET if asked["budget"][key] != now["budget"][key]]
    if differing:
        raise ConfigurationError(
            f"{folder} holds a run with another {', '.join(differing)}: put the setting back to go on with it, or "
            "begin anew in another folder (in a consortium, a study of its own: collegium study new)"
        )
    if record.pool.sha256 != pool.sha256:
        raise ConfigurationError("the pool's content is not what this run began with; restore it or use a new folder")


def begun(
    held: RunRecord | None,
    config: RunConfig,
    *,
    sum_mode: str,
    pool: ArraySpec,
) -> RunRecord:
    """The record of a run that starts or goes on now.

    Parameters
    ----------
    held : the record of an earlier start of this run, None where there is none. What it says of parties, rounds,
        choices, student and times stays.
    """
    private = config.seed is None
    record = RunRecord(
        name=config.name,
        asked=config.model_dump(mode="json"),
        versions=_versions(),
        private=private,
        cautions=[*([] if private else [NOT_PRIVATE]), *([REHEARSAL] if is_rehearsal(config.name) else [])],
        pool=PoolRecord(sha256=pool.sha256, inputs=pool.shape[0]),
        sum_mode=sum_mode,
    )
    if held is None:
        return record
    kept = RunRecord.model_fields.keys() - record.model_fields_set - {"format", "state", "privacy"}
    return record.model_copy(update={name: getattr(held, name) for name in kept})


def _versions() -> dict[str, str]:
    found = {
        "python": platform.python_version(),
        "collegium": __version__,
        "collegium-accounting": collegium_accounting.__version__,
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def labels_record(
    labels: IntArray, indices: IntArray, public: PublicData, task: Task, stopped: str | None
) -> LabelsRecord:
    """Count what was issued, and compare it with the pool's own labels where those are public.

    Parameters
    ----------
    labels : a class, ABSTAIN or UNASKED for each query, shape ``[queries]``.
    indices : the queries' positions in the pool, shape ``[queries]``.
    """
    issued, truth = labels >= 0, public.pool.y
    given = labels[issued]
    return LabelsRecord(
        asked=len(labels),
        answered=len(given),
        abstained=int((labels == ABSTAIN).sum()),
        left_out=int((labels == UNASKED).sum()),
        stopped=stopped,
        per_class=[
            ClassCount(class_name=name, labels=count)
            for name, count in zip(task.classes, _labels_per_class(given, task), strict=True)
        ],
        quality=None if truth is None else prediction_quality(given, truth[indices[issued]], task),
    )


def _labels_per_class(given: IntArray, task: Task) -> list[int]:
    classes = len(task.classes)
    counts = held_in(given, classes).sum(axis=0) if task.multilabel else np.bincount(given, minlength=classes)
    return [int(count) for count in counts]
