"""Named public sets: who reads each, and the task that each is usually used for (``tasks/NAME.toml``)."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from collegium.data.loading import named_images, named_tables
from collegium.data.loading.records import Records
from collegium.data.loading.sources import NAMED_SETS, DataSource
from collegium.data.task import Task
from collegium.errors import ConfigurationError

READERS: dict[str, Callable[[str, Path | None], Records]] = {
    "adult": named_tables.read_adult,
    "breast-cancer": named_tables.read_breast_cancer,
    "celeba": named_images.read_celeba,
    "cifar10": named_images.read_cifar10,
    "diabetes": named_tables.read_diabetes,
    "digits": named_tables.read_digits,
    "fashion-mnist": named_images.read_fashion_mnist,
    "heart": named_tables.read_heart,
    "iris": named_tables.read_iris,
    "mnist": named_images.read_mnist,
    "school": named_tables.read_school,
    "svhn": named_images.read_svhn,
    "wine": named_tables.read_wine,
}


def read_named(name: str, split: str, root: Path | None) -> Records:
    """The records of one split of a named set."""
    return READERS[name](split, root)


def default_task(source: DataSource | str) -> Task:
    """The task that a named set is usually used for: its classes and public ranges.

    Raises ConfigurationError for anything but a named set.
    """
    name = source if isinstance(source, str) else source.source
    if name not in NAMED_SETS:
        raise ConfigurationError(
            f"{name} is no named set ({', '.join(NAMED_SETS)}): write its task in the configuration"
        )
    text = resources.files("collegium.data").joinpath("tasks", f"{name}.toml").read_text(encoding="utf-8")
    return Task.model_validate(tomllib.loads(text))
