"""What a run is asked to do: the part of a configuration file that every way of running shares."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from collegium.protocol.inputs import DataSource
from collegium.protocol.renyi import Conversion
from collegium.protocol.task import Frozen, Task, TeacherSettings

INDIVIDUAL_KNN = "individual-knn"
"""The mechanism that asks records instead of teachers."""

DISTILLATION = "distillation"
"""The student method that learns votes without noise: for simulations alone, and never private."""


class VotesConfig(Frozen):
    """How votes are gathered."""

    mode: Literal["clear", "masked", "masked+noised"] = "masked"
    """What the coordinator sees: every party's votes, their exact sum alone, or their sum with noise in it."""
    dropout: float = Field(default=0.3, ge=0, lt=1)
    """Fraction of the roster that may drop out in the middle of a masked sum."""
    collusion: float = Field(default=0.1, ge=0, lt=1)
    """Fraction of the roster that may collude with the coordinator; at least one party."""
    quorum: float = Field(default=0.8, gt=0, le=1)
    """Fraction of the roster that must answer a round."""
    deadline_s: float = Field(default=300.0, gt=0)
    fit_deadline_s: float = Field(default=3600.0, gt=0)


class MechanismConfig(Frozen):
    """The mechanism's registered name and its parameters."""

    name: str = "gnmax"
    parameters: dict[str, float] = Field(default_factory=dict)
    noise: Literal["discrete", "continuous"] = "discrete"
    """``discrete`` samples exactly from the system's randomness; ``continuous`` only reproduces papers."""


class BudgetConfig(Frozen):
    """The hard stop: no label is released once (ε, δ) would be passed."""

    epsilon: float = Field(gt=0)
    delta: float = Field(default=1e-5, gt=0, lt=1)
    orders: Literal["wide", "paper"] = "wide"
    conversion: Conversion = Conversion.IMPROVED
    unit: Literal["record", "party"] = "record"
    bound: Literal["argmax", "classic"] = "argmax"


class QueriesConfig(Frozen):
    """Which inputs of the pool are asked."""

    count: int = Field(default=100, ge=1)
    batch: int = Field(default=1000, ge=1)
    """Queries per round."""


class NeighboursConfig(Frozen):
    """How records near a query are found: for the mechanism ``individual-knn``. Everything comes from public data."""

    features: Literal["hog", "raw"] = "hog"
    """Gradient histograms of images, or the inputs themselves (columns scaled by the public schema)."""
    dimensions: int | None = Field(default=64, ge=1)
    """Principal components of the pool's features that are kept; 0 keeps the features as they are."""
    share: float = Field(gt=0, lt=1)
    """Fraction of the pool that lies within a query's radius; of the private records about as many will."""
    kernel: Literal["flat", "quadratic"] = "flat"
    """Weight 1 within the radius, or 1 − d²/r² in units of 1/levels (a parameter of the mechanism)."""
    choice: Literal["k-means", "farthest-first", "random"] = "k-means"
    """How queries are chosen among the pool."""

    @model_validator(mode="before")
    @classmethod
    def _all_dimensions(cls, values: Any) -> Any:
        """TOML has no null: 0 keeps the features as they are."""
        if isinstance(values, dict) and values.get("dimensions") == 0:
            return {**values, "dimensions": None}
        return values


class StudentConfig(Frozen):
    """Which student learns from the labels."""

    method: str = "consistency"
    options: dict[str, float | int | str | bool] = Field(default_factory=dict)


class RunConfig(Frozen):
    """One run of the coordinator."""

    name: str = Field(pattern=r"[a-z0-9][a-z0-9-]*")
    task: Task
    pool: DataSource
    """Public unlabelled inputs."""
    holdout: DataSource | None = None
    """Public labelled inputs on which the student is measured."""
    seed: int | None = None
    """Fixes every random choice, the noise included: to reproduce a run, never to publish one."""
    teachers: TeacherSettings = TeacherSettings()
    votes: VotesConfig = VotesConfig()
    mechanism: MechanismConfig = MechanismConfig()
    budget: BudgetConfig
    queries: QueriesConfig = QueriesConfig()
    neighbours: NeighboursConfig | None = None
    student: StudentConfig = StudentConfig()

    @model_validator(mode="after")
    def _neighbours_fit(self) -> RunConfig:
        wanted = self.mechanism.name == INDIVIDUAL_KNN
        if wanted != (self.neighbours is not None):
            raise ValueError(f"the section neighbours and the mechanism {INDIVIDUAL_KNN} belong together")
        if self.neighbours is None:
            return self
        if self.budget.unit != "record":
            raise ValueError(f"{INDIVIDUAL_KNN} protects records: budget.unit must be 'record'")
        fine = self.mechanism.parameters.get("levels", 1) > 1
        if fine != (self.neighbours.kernel != "flat"):
            raise ValueError(
                "the kernel 'flat' has one level; another kernel needs mechanism.parameters.levels above 1"
            )
        return self
