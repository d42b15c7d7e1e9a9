"""Named sources: the sets that scikit-learn brings (tasks in ``tasks/NAME.toml``) and those of installed packages."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import resources
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd

from collegium.data.loading.sources import ENTRY_POINT_GROUP, NAMED_SETS, DataSource, Records, named_sources
from collegium.data.task import Task
from collegium.errors import ConfigurationError, DataError
from collegium.extras import load_plugin


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
    """A public set with a reader of its own; its task is ``tasks/NAME.toml`` in the package ``package``."""

    name: str
    reader: Callable[[str, Path | None], Records]
    package: str = "collegium.data"

    @cached_property
    def task(self) -> Task:
        text = resources.files(self.package).joinpath("tasks", f"{self.name}.toml").read_text(encoding="utf-8")
        return Task.model_validate(tomllib.loads(text))

    def read(self, split: str, root: Path | None) -> Records:
        return self.reader(split, root)


def without_test_split(name: str, split: str) -> None:
    """Raise DataError where the test split of a set that has none is wanted."""
    if split == "test":
        raise DataError(f"{name} has no test split: choose records with shuffle_seed, start and stop")


def _read_digits(split: str, root: Path | None) -> Records:
    """scikit-learn's 1,797 digits of 8×8 pixels, their values 0 to 16 scaled to 0 to 255."""
    from sklearn.datasets import load_digits

    without_test_split("digits", split)
    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    return Records("digits", pd.DataFrame({"y": bunch.target.astype(str)}), lambda chosen: images[chosen])


def _read_table(name: str, split: str, root: Path | None) -> Records:
    """One of scikit-learn's tables: 569 breast cancers (Wisconsin, diagnostic), 150 irises, 178 wines."""
    from sklearn import datasets

    without_test_split(name, split)
    bunch = getattr(datasets, f"load_{name.replace('-', '_')}")()
    frame = pd.DataFrame(bunch.data, columns=[str(column) for column in bunch.feature_names])
    frame["y"] = np.asarray(bunch.target_names)[bunch.target].astype(str)
    return Records(name, frame, sorted_by_class=name in ("iris", "wine"))


def source_named(name: str) -> NamedSource:
    """The source called ``name``; ConfigurationError where there is none, or where its package is broken."""
    if name in NAMED_SETS:
        return PublicSet(name, _read_digits if name == "digits" else partial(_read_table, name))
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
