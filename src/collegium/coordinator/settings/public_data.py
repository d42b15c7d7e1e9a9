"""What the coordinator holds: the public pool and the labelled inputs that the student is measured on."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from collegium.coordinator.settings.run_config import RunConfig
from collegium.data import Examples, array_spec, load
from collegium.errors import DataError
from collegium.protocol.messages import ArraySpec


@dataclass(frozen=True)
class PublicData:
    """The pool, with labels only where its source has them (research), and the holdout, if any."""

    pool: Examples
    holdout: Examples | None = None

    @cached_property
    def spec(self) -> ArraySpec:
        """The name of the pool: the digest of its content, its form and its kind of numbers."""
        return array_spec(self.pool.x)


def load_public(config: RunConfig, data_root: Path | None) -> PublicData:
    """Read both; DataError when the holdout has no labels."""
    pool = load(config.pool, config.task, data_root=data_root)
    holdout = None if config.holdout is None else load(config.holdout, config.task, data_root=data_root)
    if holdout is not None and holdout.y is None:
        raise DataError("the holdout has no labels; name its label column in holdout.label, or leave holdout out")
    return PublicData(pool, holdout)
