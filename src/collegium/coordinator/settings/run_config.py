"""What a run is asked to do: the part of a configuration file that every way of running shares; its public data."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    Field,
    SerializeAsAny,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from collegium.coordinator.settings.kinds import count_kinds, installed_kind, run_kind
from collegium.data import DataSource, Examples, array_spec, load
from collegium.data.drawn_pool import drawn_pool, input_entries
from collegium.data.task import Task, TeacherSettings
from collegium.data.values import ArraySpec
from collegium.errors import DataError
from collegium.limits import MAX_COUNTS_PER_ANSWER, MAX_LANDMARKS, MAX_RECORDS_PER_PARTY, MAX_SUM_LENGTH
from collegium.protocol.question import about_all_records
from collegium.settings import Frozen, nearest
from collegium.whole_files import read_whole
from collegium_accounting.mechanisms import Mechanism, SumMode, known_names, mechanism_named
from collegium_accounting.mechanisms.class_sums import MOST_ROUNDS
from collegium_accounting.mechanisms.parameters import fields_of


class VotesConfig(Frozen):
    """How votes are gathered."""

    mode: SumMode = SumMode.MASKED
    """What the coordinator sees: every party's votes, their exact sum alone, or their sum with noise in it."""
    dropout: float = Field(default=0.3, ge=0, lt=1)
    """Fraction of the roster that may drop out in the middle of a masked sum."""
    collusion: float = Field(default=0.1, ge=0, lt=1)
    """Fraction of the roster that may collude with the coordinator; at least one party."""
    quorum: float = Field(default=0.8, gt=0, le=1)
    """Fraction of the roster that must answer a round."""
    groups: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    """How many groups of parties sums over all records and counts are taken by, so that no institution decides the
    result: 1, or 3 and more. Where it is ``auto``, public facts decide (docs/threat-model.md)."""
    deadline_s: float = Field(default=300.0, gt=0)
    fit_deadline_s: float = Field(default=3600.0, gt=0)


AUTO: Final = "auto"
"""In place of a mechanism's or a student's name: `RunConfig` puts in what public structure alone decides."""


class MechanismConfig(Frozen):
    """A mechanism's name or `AUTO`, and its parameters; without sigma the budget decides the noise of class sums."""

    name: str = "class-sums"
    parameters: dict[str, float] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name not in known_names():
            raise ValueError(f"no mechanism is called {name!r}{nearest(name, known_names())}")
        return name

    @field_validator("parameters")
    @classmethod
    def _are_its_own(cls, parameters: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        if "name" in info.data:
            fields = list(fields_of(mechanism_named(info.data["name"])))
            for unknown in [name for name in parameters if name not in fields]:
                raise ValueError(f"{info.data['name']} has no parameter {unknown!r}{nearest(unknown, fields)}")
        return parameters

    @property
    def kind(self) -> type[Mechanism]:
        """The mechanism's class."""
        return mechanism_named(self.name)


class BudgetConfig(Frozen):
    """The hard stop: no label is released once (ε, δ) would be passed."""

    epsilon: float = Field(gt=0)
    """Of everything that is ever asked of the same records, over all studies."""
    study: float | None = Field(default=None, gt=0)
    """The part of it for this study: noise that is not set follows from it. All of it where it is left out."""
    delta: float = Field(default=1e-5, gt=0, lt=1)
    unit: Literal["record", "party"] = "record"
    records_per_party: int | None = Field(default=None, ge=1, le=MAX_RECORDS_PER_PARTY)
    """The most records that any party answers for; public. No party weighs more. Where it is left out, see `limits`."""
    bound: Literal["exact", "classic"] = "exact"
    """The exact accountant, or the Rényi bounds of published accountants."""

    @property
    def most_records(self) -> int:
        """The cap on the records of one party."""
        return self.records_per_party or MAX_RECORDS_PER_PARTY

    @property
    def own(self) -> float:
        """The ε from which this study's noise follows."""
        return min(self.study or self.epsilon, self.epsilon)


class QueriesConfig(Frozen):
    """Which inputs of the pool are asked, and when. Chosen from public data alone: it costs nothing."""

    count: int = Field(default=100, ge=1)
    batch: int = Field(default=1000, ge=1)
    """Queries that parties answer at a time."""
    choice: Literal["random", "representative"] = "random"
    features: Literal["hog", "raw", "pretrained"] | None = None
    """What representative inputs are compared by: gradient histograms or pixels and columns, both by their principal
    components, or a network pretrained on the pool. Where it is left out: hog for images, raw for tables."""


class NeighboursConfig(Frozen):
    """How records near a query are found, by public data alone; kinds of questions may add settings of their own."""

    features: Literal["hog", "raw", "standard", "network", "pretrained"] = "hog"
    """Gradient histograms of images; the inputs themselves (columns scaled by the public schema); columns scaled by
    the pool's means and deviations; what the last layer of ``network`` takes in, or of a network pretrained on the
    pool without labels (as for queries)."""
    network: Path | None = None
    """Safetensors file of a named network: a student, or one trained on the pool without labels."""
    dimensions: int | None = Field(default=64, ge=1)
    """Principal components of the pool's features that are kept; 0 keeps the features as they are."""
    share: float = Field(gt=0, lt=1)
    """Fraction of the pool that lies within a query's radius; of the private records about as many will."""
    kernel: Literal["flat", "quadratic"] = "flat"
    """Weight 1 within the radius, or 1 − d²/r² in units of 1/levels (a parameter of the mechanism)."""

    @field_validator("dimensions", mode="before", json_schema_input_type=int)
    @classmethod
    def _all_dimensions(cls, value: Any) -> Any:
        """TOML has no null: 0 keeps the features as they are."""
        return None if value == 0 else value

    @model_validator(mode="after")
    def _network_fits(self) -> "NeighboursConfig":
        if (self.features == "network") != (self.network is not None):
            raise ValueError("the features 'network' need the setting network, and no other features take it")
        return self

    def network_bytes(self) -> bytes | None:
        """The network's file, None where there is none; StorageError where it cannot be read."""
        return None if self.network is None else read_whole(self.network)


class SumsConfig(Frozen):
    """What class sums (``class-sums``) are taken under: a public kernel, made from the pool alone."""

    features: Literal["hog", "pyramid", "raw", "unit", "standard", "ranks"] | None = None
    """Gradient histograms of images; these at two scales and a thumbnail's pixels; the inputs themselves; inputs at
    length 1; columns scaled by the pool's means and deviations; columns ranked among the pool's values. Where it is
    left out, see `usual_for`."""
    dimensions: int = Field(default=128, ge=1)
    """Of images: principal components of the pool's features that are kept."""
    landmarks: int = Field(default=1000, ge=2, le=MAX_LANDMARKS)
    """Inputs of the pool that stand for all inputs; fewer where the pool is smaller or the classes are many."""
    bandwidth: float | None = Field(default=None, gt=0, le=100)
    """Of the Gaussian kernel, in units of the median distance of inputs from landmarks; see `usual_for`."""
    rounds: Literal["auto", 1, 2, 3, 4, 5, 6, 7, 8] = AUTO
    """How many sums share the budget. Each after the first asks by how much the classifier of those before misses the
    records' classes; of images, where there are two, the second is taken under features that the student of the first
    learned. ``auto`` follows from public facts (docs/class-sums.md)."""

    def usual_for(self, kind: str) -> tuple[str, float]:
        """Features and bandwidth for inputs of that kind, where they are left out as the kind decides."""
        features, bandwidth = {"image": ("pyramid", 0.4), "vector": ("raw", 0.4)}.get(kind, ("ranks", 0.6))
        return self.features or features, self.bandwidth or bandwidth


class CountsConfig(Frozen):
    """Counts that the parties take of their own records, which are charged to the same budget."""

    share: float = Field(default=0.1, gt=0, lt=1)
    """The part of ``budget.epsilon`` that the counts may cost; their noise follows from that."""
    sigma: float | None = Field(default=None, gt=0)
    """The noise on each count, in records, in place of the share."""
    mode: Literal[SumMode.CLEAR, SumMode.MASKED_AND_NOISED] | None = None
    """How counts are summed: ``masked+noised`` where it is left out, and in the clear where votes are."""


class PoolCheckConfig(CountsConfig):
    """Whether the pool covers the parties' records, which is counted before labels are bought."""

    stop: bool = False
    """Whether nothing more is asked where the pool surely does not fit."""


class StudentConfig(Frozen):
    """Which student learns from the labels."""

    method: str = "consistency"
    options: dict[str, float | int | str | bool] = Field(default_factory=dict)


# More than 15 methods: each decides what a file leaves out, or refuses what does not fit together.
class RunConfig(Frozen):
    """One run of the coordinator."""

    name: str = Field(pattern=r"[a-z0-9][a-z0-9-]*")
    task: Task
    pool: DataSource | None = None
    """Public unlabelled inputs. Without them inputs are drawn from the task, for class sums of tables and vectors."""
    holdout: DataSource | None = None
    """Public labelled inputs on which the student is measured."""
    seed: int | None = None
    """Fixes every random choice, the noise of parties on this machine included: to reproduce a run, never to publish
    one."""
    teachers: TeacherSettings | None = None
    """What every party fits; None where the mechanism asks no teachers."""
    votes: VotesConfig = VotesConfig()
    mechanism: MechanismConfig = MechanismConfig()
    budget: BudgetConfig
    queries: QueriesConfig = QueriesConfig()
    neighbours: SerializeAsAny[NeighboursConfig] | None = None
    question: SerializeAsAny[Frozen] | None = None
    """What another package's kind of question is asked with, where the mechanism needs one that has settings."""
    sums: SumsConfig = SumsConfig()
    student: StudentConfig = StudentConfig()
    evaluation: CountsConfig | None = None
    """Measure the student on the parties' own records: who has no public holdout still gets an honest report."""
    pool_check: PoolCheckConfig | None = None
    """Before labels are bought, find out whether the pool covers the parties' records."""
    counts: dict[str, SerializeAsAny[CountsConfig]] = Field(default_factory=dict)
    """Further counts of the parties' records, by kind; kinds come from other installed packages."""

    @field_validator("counts", mode="wrap")
    @classmethod
    def _of_known_kinds(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        """Each section as its kind has it."""
        known = count_kinds()
        for unknown in [name for name in value if name not in known] if isinstance(value, dict) else []:
            raise ValueError(f"no installed package counts {unknown!r}{nearest(unknown, list(known))}")
        return handler({name: known[name].settings.model_validate(given) for name, given in dict(value).items()})

    @field_validator("neighbours", "question", mode="wrap")
    @classmethod
    def _of_the_kind(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """The section as the kind of question has it that the mechanism needs."""
        mechanism = info.data.get("mechanism")
        kind = None if mechanism is None or value is None else installed_kind(mechanism.kind)
        own = None if kind is None or kind.section != info.field_name else kind.settings
        if mechanism is not None and value is not None and own is None and info.field_name == "question":
            raise ValueError(f"{mechanism.name} asks for nothing that is configured here: leave this section out")
        return handler(value) if own is None else own.model_validate(value)

    @model_validator(mode="before")
    @classmethod
    def _usual(cls, values: Any) -> Any:
        """What is left out, or `AUTO`: class sums, unless teachers or neighbours are named, then ``gnmax``.

        Class sums are noised by the parties, as the whole noisy vector is charged in any case, and hold their student.
        The names are put in here, so that parties, records and reports only ever see what was chosen.
        """
        if not isinstance(values, dict):
            return values
        mechanism = values.get("mechanism", {})
        if not isinstance(mechanism, dict):
            return values
        votes_asked = any(values.get(section) is not None for section in ("teachers", "neighbours"))
        name = mechanism.get("name", AUTO)
        if name == AUTO:
            name = "gnmax" if votes_asked else "class-sums"
        usual: dict[str, dict[str, Any]] = {"mechanism": {"name": name}, "student": {"method": "consistency"}}
        kind = installed_kind(mechanism_named(name)) if name in known_names() and _configurable(name) else None
        if kind is not None:
            usual |= {section: dict(own) for section, own in kind.usual.items()}
            # Teachers that the mechanism does not ask are no part of the run.
            values = values | {"teachers": (values.get("teachers") or {}) if kind.section == "teachers" else None}
        given = {section: values.get(section, {}) for section in usual}
        filled = {
            section: usual[section] | {key: value for key, value in own.items() if value != AUTO}
            for section, own in given.items()
            if isinstance(own, dict)
        }
        return values | filled

    @property
    def choice(self) -> str:
        """What labels and student come from, and why, in a sentence for people."""
        mechanism, student, kind = self.mechanism.name, self.student.method, self.task.inputs.kind
        if not about_all_records(self.mechanism.kind):
            return f"{mechanism} and the student {student}, as teachers, neighbours or a mechanism are configured"
        features, bandwidth = self.kernel.usual_for(kind)
        own = (self.sums.features, self.sums.bandwidth) != (None, None)
        why = "as configured" if own else f"as inputs are {_SEVERAL[kind]}"
        sums = "one sum" if self.class_sums == 1 else f"{self.class_sums} rounds of sums"
        if self.networks_learn:
            sums = "two sums, the second under features that networks learned where these are as good,"
        if self.drawn:
            why += " and no public pool is named: the map is drawn from the schema"
            if self.input_entries:
                why += ", and anew by what the first sum says of the inputs"
        return (
            f"{mechanism} and the student {student}: {sums} over all records, as neither teachers nor neighbours are "
            f"configured; features {features}, bandwidth {bandwidth:g}, {why}. What no setting says, "
            "public facts alone decide, at no ε"
        )

    @property
    def drawn(self) -> bool:
        """Whether the pool is drawn from the public schema, as none is named."""
        return self.pool is None

    @property
    def kernel(self) -> SumsConfig:
        """What class sums are taken under.

        Where the pool is drawn, the kernel is wide, and vectors have length 1, as no public input says their own.
        """
        if not self.drawn:
            return self.sums
        usual = {"bandwidth": DRAWN_BANDWIDTH} | ({"features": "unit"} if self.task.inputs.kind == "vector" else {})
        asked = {name: value for name in usual if (value := getattr(self.sums, name)) is not None}
        return self.sums.model_copy(update=usual | asked)

    @property
    def class_sums(self) -> int:
        """How many class sums there are: those configured or, where that is `AUTO`, as public facts decide.

        Where records are protected, there are two of images if the student has networks, and else eight rounds. Where
        the noise is configured, each sum has it, and there is one, unless the pool is drawn.
        """
        rounds = self.mechanism.parameters.get("rounds", self.sums.rounds)
        if rounds != AUTO:
            return int(rounds)
        if self.budget.unit != "record":
            return 1
        if self._networks:
            return 2
        return 1 if "sigma" in self.mechanism.parameters and not self.drawn else MOST_ROUNDS

    @property
    def networks_learn(self) -> bool:
        """Whether networks learn from the first of two sums, under whose features the second may be taken."""
        return self._networks and self.class_sums == 2

    @property
    def sums_in_mean(self) -> int:
        """How many sums are averaged, so that the noise of one counts for less by the root of that."""
        return 1 if self.networks_learn else self.class_sums - (self.input_entries > 0)

    @property
    def input_entries(self) -> int:
        """How many numbers the first of several class sums has for each class, if it is of the inputs themselves.

        Where the pool is drawn, it says how records lie, and the rounds to come are under a map of inputs that are
        drawn so. With fewer than four sums, or too many numbers, there is none (0): the schema decides what is drawn.
        """
        if not self.drawn or self.class_sums < FEWEST_ROUNDS:
            return 0
        entries = input_entries(self.task.inputs)
        return entries if len(self.task.classes) * (entries + 1) < MAX_SUM_LENGTH else 0

    @property
    def _networks(self) -> bool:
        """Whether the student may have networks, whose features a second sum may be taken under."""
        learned = self.student.method == "kernel" and self.student.options.get("steps") != 0
        return learned and self.task.inputs.kind == "image"

    @model_validator(mode="after")
    def _needs_no_pool(self) -> "RunConfig":
        if not self.drawn:
            return self
        kind, name = self.task.inputs.kind, self.mechanism.name
        asked = [section for section in ("pool_check", "neighbours", "teachers") if getattr(self, section) is not None]
        why = {
            "images need a public pool": kind == "image",
            f"{' and '.join(asked)}: there must be a public pool": bool(asked),
            f"{name} labels a public pool": not about_all_records(self.mechanism.kind),
            f"the student {self.student.method} learns from a public pool": self.student.method != "kernel",
            "budget.unit = 'party' needs a public pool": self.budget.unit != "record",
        }
        for one in (one for one, applies in why.items() if applies):
            raise ValueError(f"{one}: name unlabelled public inputs in the section pool")
        return self

    @model_validator(mode="after")
    def _rounds_fit(self) -> "RunConfig":
        rounds = self.mechanism.parameters.get("rounds", self.sums.rounds)
        if self.sums.rounds not in (AUTO, rounds) or rounds not in (AUTO, *range(1, MOST_ROUNDS + 1)):
            raise ValueError(
                f"sums.rounds is a number from 1 to {MOST_ROUNDS}, and mechanism.parameters.rounds the same or left out"
            )
        if self.budget.unit == "party" and rounds not in (AUTO, 1) and not self.networks_learn:
            raise ValueError("a party that is protected as a whole sends one vector: set sums.rounds = 1")
        return self

    @model_validator(mode="after")
    def _mechanism_fits(self) -> "RunConfig":
        name, kind, mode = self.mechanism.name, self.mechanism.kind, self.votes.mode
        asking = installed_kind(kind)
        if asking is None:
            raise ValueError(f"no installed package asks for what {name} makes labels of: name another mechanism")
        if mode not in kind.sum_modes:
            others = [one for one in _with_section(asking.section) if mode in mechanism_named(one).sum_modes]
            instead = f"; mechanisms for it are {' and '.join(others)}" if others else ""
            modes = " or ".join(repr(one.value) for one in kind.sum_modes) or "none"
            raise ValueError(f"votes.mode = {mode.value!r} does not suit {name}, which works with {modes}{instead}")
        if self.task.multilabel != kind.several_labels:
            several = [one for one in known_names() if _configurable(one) and mechanism_named(one).several_labels]
            raise ValueError(f"task.multilabel and the mechanism {' or '.join(several)} belong together")
        if self.task.multilabel and self.evaluation is not None:
            raise ValueError("the section evaluation is for tasks with one class a record")
        return self

    @model_validator(mode="after")
    def _counts_fit(self) -> "RunConfig":
        asked = [one for one in (self.evaluation, self.pool_check, *self.counts.values()) if one is not None]
        if sum(one.share for one in asked if one.sigma is None) >= 1.0:
            raise ValueError("evaluation.share, pool_check.share and those of counts leave no budget for labels")
        for name, settings in self.counts.items():
            count_kinds()[name].parts_and_cells(self, settings)
        return self

    @model_validator(mode="after")
    def _kind_fits(self) -> "RunConfig":
        kind = run_kind(self.mechanism.kind)
        for section in ("teachers", "neighbours", "question"):
            if (getattr(self, section) is not None) != (kind.section == section):
                raise ValueError(
                    f"the section {section} and the mechanism {' or '.join(_with_section(section))} belong together"
                )
        kind.check(self)
        most = MAX_COUNTS_PER_ANSWER // kind.entries(self)
        if min(self.queries.batch, self.queries.count) > most:
            raise ValueError(f"queries.batch is more than an answer holds: set it to at most {most}")
        return self


DRAWN_BANDWIDTH = 2.0
"""Of the kernel where the pool is drawn from the schema, in units of the median distance: nearly linear."""
FEWEST_ROUNDS = 4
"""So many class sums there are at least where the first is of the inputs themselves."""


_SEVERAL = {"image": "images", "table": "rows of a table", "vector": "vectors"}


def _configurable(name: str) -> bool:
    """Whether a configuration may name the mechanism: an installed package asks for what it makes labels of."""
    return installed_kind(mechanism_named(name)) is not None and bool(mechanism_named(name).sum_modes)


def _with_section(section: str) -> list[str]:
    """The mechanisms that a configuration may name, and whose questions this section is about."""
    kinds = {one: installed_kind(mechanism_named(one)) for one in known_names() if _configurable(one)}
    return [one for one, kind in kinds.items() if kind is not None and kind.section == section]


@dataclass(frozen=True)
class PublicData:
    """The pool, with labels only where its source has them (research), and the holdout, if any.

    A pool that no configuration names is drawn from the task.
    """

    pool: Examples
    holdout: Examples | None = None

    @cached_property
    def spec(self) -> ArraySpec:
        """The name of the pool: the digest of its content, its form and its kind of numbers."""
        return array_spec(self.pool.x)


def load_public(config: RunConfig, data_root: Path | None) -> PublicData:
    """Read both; DataError when the holdout has no labels."""
    if config.pool is None:
        pool = Examples(drawn_pool(config.task.inputs))
    else:
        pool = load(config.pool, config.task, data_root=data_root)
    holdout = None if config.holdout is None else load(config.holdout, config.task, data_root=data_root)
    if holdout is not None and holdout.y is None:
        raise DataError("the holdout has no labels; name its label column in holdout.label, or leave holdout out")
    return PublicData(pool, holdout)
