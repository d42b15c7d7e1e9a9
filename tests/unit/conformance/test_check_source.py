"""`check_source` passes Collegium's public sets and names the promise that a planted bug breaks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from collegium.data.loading.sources import Indices, Records
from collegium.data.task import ImageInputs, NumberColumn, TableInputs, Task
from collegium.errors import DataError
from collegium_conformance import check_source

ONE = TableInputs(columns=(NumberColumn(name="a", low=0, high=1), NumberColumn(name="b", low=0, high=1)))
TABLE = Task(classes=("no", "yes"), inputs=ONE)
LEAKY = Task(classes=("no", "yes"), inputs=TableInputs(columns=(*ONE.columns, NumberColumn(name="y", low=0, high=1))))
PIXELS = Task(classes=("no", "yes"), inputs=ImageInputs(height=4, width=4))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "iris", "wine", "breast-cancer"])
def test_collegiums_sets_keep_their_promises(name: str) -> None:
    check_source(name)


@dataclass(frozen=True)
class Planted:
    """A table of 60 records with one bug by name."""

    bug: str = ""
    task: Task = TABLE

    def read(self, split: str, root: Path | None) -> Records:
        if split != "all" or self.bug == "nothing":
            raise DataError("only the split 'all'")
        drawn = np.random if self.bug == "unseeded" else np.random.default_rng(0)
        y = np.arange(60) % 2
        if self.bug == "sorted":
            y = np.sort(y)
        values = drawn.uniform(size=(60, 2)).round(3)
        frame = pd.DataFrame({"a": values[:, 0], "b": values[:, 1], "y": np.where(y, "yes", "no")}).astype(str)
        if self.bug == "copy":
            frame["b"] = np.where(y, "0.75", "0.25")
        if self.bug == "unknown class":
            frame.loc[3, "y"] = "perhaps"
        return Records("planted", frame)


@dataclass(frozen=True)
class PlantedImages:
    """Sixty images with one bug by name."""

    bug: str = ""
    task: Task = PIXELS

    def read(self, split: str, root: Path | None) -> Records:
        y = np.arange(60) % 2
        images = np.random.default_rng(0).integers(0, 256, (60, 4, 4)).astype(np.uint8)
        if self.bug == "pixel":
            images[:, 0, 0] = 200 * y

        def inputs(chosen: Indices) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
            return images[np.sort(chosen)] if self.bug == "order" else images[chosen]

        return Records("planted", pd.DataFrame({"y": np.where(y, "yes", "no")}), inputs)


def test_sources_without_a_bug_pass() -> None:
    check_source(Planted())
    check_source(PlantedImages())


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (Planted("unseeded"), "two reads give other records"),
        (Planted("nothing"), "none of the splits"),
        (Planted("sorted"), "sorted by class"),
        (Planted("copy"), "leaks the label"),
        (Planted("unknown class"), "do not fit the task"),
        (Planted(task=LEAKY), "one of the task's inputs|do not fit"),
        (PlantedImages("pixel"), "leaks the label"),
        (PlantedImages("order"), "inputs at some positions differ"),
    ],
)
def test_a_planted_bug_is_caught_by_name(source: Planted | PlantedImages, named: str) -> None:
    with pytest.raises(AssertionError, match=named):
        check_source(source)


def test_a_source_that_is_not_installed_is_named() -> None:
    with pytest.raises(AssertionError, match="no source no-such-source is installed"):
        check_source("no-such-source")
