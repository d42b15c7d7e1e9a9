"""Named sources: the public sets with their tasks (``tasks/NAME.toml``), and those of installed packages."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from collegium.data.loading import named_images, named_tables
from collegium.data.loading.sources import ENTRY_POINT_GROUP, DataSource, Records, named_sources
from collegium.data.task import Task
from collegium.errors import ConfigurationError
from collegium.extras import load_plugin

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


class NamedSource(Protocol):
    """A data source that a configuration names. The records of one split are the same at every read."""

    @property
    def task(self) -> Task:
        """What the data are usually used for: classes, and inputs with public ranges."""

    def read(self, split: str, root: Path | None) -> Records:
        """The records of the split ``train``, ``test`` or ``all``.

        Parameters
        ----------
        root : the folder that holds the user's data files; None where none was given.

        Raises
        ------
        DataError
            If there is no such split or a file is missing or damaged.
        """


@dataclass(frozen=True)
class PublicSet:
    """One of the public sets."""

    name: str

    @cached_property
    def task(self) -> Task:
        text = resources.files("collegium.data").joinpath("tasks", f"{self.name}.toml").read_text(encoding="utf-8")
        return Task.model_validate(tomllib.loads(text))

    def read(self, split: str, root: Path | None) -> Records:
        return READERS[self.name](split, root)


def source_named(name: str) -> NamedSource:
    """The source called ``name``; ConfigurationError where there is none, or where its package is broken."""
    if name in READERS:
        return PublicSet(name)
    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        source: NamedSource = load_plugin(point, f"the data source {name!r}")
        return source
    raise ConfigurationError(
        f"{name} is no named set ({', '.join(named_sources())}): write its task in the configuration"
    )


def default_task(source: DataSource | str) -> Task:
    """The task that a named source is usually used for: its classes and public ranges.

    Raises ConfigurationError for anything but a named source.
    """
    return source_named(source if isinstance(source, str) else source.source).task
