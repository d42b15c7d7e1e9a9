"""What a run is asked to do: the part of a configuration file that every way of running shares."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from collegium.protocol.errors import ConfigurationError, StorageError
from collegium.protocol.inputs import DataSource
from collegium.protocol.renyi import Conversion
from collegium.protocol.task import Frozen, Task, TeacherSettings


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
    student: StudentConfig = StudentConfig()


Config = TypeVar("Config", bound=Frozen)


def read_config(path: Path, kind: type[Config]) -> Config:
    """Read a TOML file into ``kind``.

    Raises StorageError when it cannot be read, ConfigurationError with the place of every mistake.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    try:
        values: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    return validate_config(values, kind, str(path))


def validate_config(values: dict[str, Any], kind: type[Config], origin: str) -> Config:
    """``values`` as ``kind``; ConfigurationError names each wrong key as ``section.key``."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        mistakes = "; ".join(f"{'.'.join(str(x) for x in item['loc'])}: {item['msg']}" for item in error.errors())
        raise ConfigurationError(f"{origin}: {mistakes}") from error
