"""Two persons with equal rows and different labels, whom no group tells apart: what removing one of them changes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from support.record_votes import TASK, Clinic, plane

from collegium.data import Examples, load
from collegium.data.loading.sources import DataSource
from collegium.data.task import CategoryColumn, TableInputs
from collegium.parties.kinds.near_records import agreeing

EVERYWHERE = 2**24
"""A squared radius that holds all records of the plane."""


def answers(examples: Examples, kernel: str) -> np.ndarray:
    """All that a clinic with these records says in a run, ``[queries, classes]``, in units of a weight."""
    clinic = Clinic(None)
    clinic.restart(examples)
    levels = 16 if kernel == "quadratic" else 1
    asked = clinic.question(
        tuple(range(20)), participations=6, sigma=40.0, kernel=kernel, levels=levels, radius_squared=EVERYWHERE
    )
    return np.asarray(clinic.ask(asked).counts) / levels


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["flat", "quadratic"])
def test_a_row_that_comes_or_goes_changes_one_entry_by_one_vote_whatever_its_equals_are_labelled(kernel: str) -> None:
    points = plane(4, 1)
    for labels in itertools.product((0, 1, 2), repeat=3):
        x = np.concatenate([points[[0, 0, 0]], points])
        y = np.array([*labels, 7, 8, 9, 10])
        whole = answers(Examples(x, y), kernel)
        for removed in range(3):
            rest = np.delete(np.arange(len(x)), removed)
            change = whole - answers(Examples(x[rest], y[rest]), kernel)
            changed = (change != 0).sum(axis=1)
            assert changed.max() <= 1, f"labels {labels} without the one at {removed}: a vote moves"
            assert (change**2).sum() <= 6 + 1e-9, "at most what six participations pay for"


def test_rows_of_a_file_that_differ_in_the_label_alone_do_not_vote_and_a_group_tells_them_apart(tmp_path: Path) -> None:
    text = "a,b,who,y\n0.5,0.5,ash,record-1\n0.5,0.5,ash,record-2\n0.1,0.1,oak,record-3\n0.1,0.1,elm,record-3\n"
    (tmp_path / "records.csv").write_text(text)
    source = DataSource(source=str(tmp_path / "records.csv"))
    voted = {
        group: np.flatnonzero(answers(load(source.model_copy(update=given), TASK, data_root=None), "flat").sum(axis=0))
        for group, given in (("none", {}), ("who", {"group": "who"}))
    }
    assert voted["none"].tolist() == [3] and voted["who"].tolist() == [1, 3], "a person with two labels votes once"


def test_rows_that_are_spelt_alike_and_lie_apart_do_not_vote(tmp_path: Path) -> None:
    """They share a budget: by turns, the one with and the other without a row, they would spend it twice."""
    task = TASK.model_copy(
        update={"inputs": TableInputs(columns=(CategoryColumn(name="a", categories=("1.5", "1.50", "2")),))}
    )
    (tmp_path / "records.csv").write_text("a,y\n1.5,record-1\n1.50,record-1\n2,record-3\n2,record-3\n")
    examples = load(DataSource(source=str(tmp_path / "records.csv")), task, data_root=None)
    person = np.unique(np.array(list(examples.lasting_identities("")[0]), dtype="V32"), return_inverse=True)[1]
    assert agreeing(person, examples.labels(), examples.x).tolist() == [False, False, True, True]
