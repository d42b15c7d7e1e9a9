"""Ensembles are fitted once, by one process or several, and their votes kept."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from collegium_reproduction.experiments import ensembles
from collegium_reproduction.experiments.base import Setting
from collegium_reproduction.experiments.ensembles import Ensemble, load_or_compute_votes
from unit.experiments.conftest import silent

from collegium.data import DataSource, default_task

DIGITS = Ensemble(
    default_task("digits"),
    private=DataSource(source="digits", shuffle_seed=0, stop=600),
    queries=DataSource(source="digits", shuffle_seed=0, start=1500),
    parties=2,
    kind="random-forest",
    seed=0,
)


def at(folder: Path, workers: int) -> Setting:
    return silent(folder, ensembles=folder, workers=workers)


def test_every_teacher_votes_once_and_nobody_is_fitted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = load_or_compute_votes(DIGITS, at(tmp_path, 1))
    assert (fitted.votes.sum(axis=1) == 2).all() and len(fitted.teachers) == 2
    assert fitted.teachers.min() > 0.8
    plurality = (fitted.votes[np.arange(len(fitted.truth)), fitted.truth] > 0).mean()
    assert plurality >= fitted.teachers.max()

    def nobody(*arguments: object, **options: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(ensembles, "TeacherEnsemble", nobody)
    again = load_or_compute_votes(DIGITS, at(tmp_path, 1))
    assert (again.votes == fitted.votes).all() and (again.teachers == fitted.teachers).all()
    with pytest.raises(AssertionError, match="fitted again"):
        load_or_compute_votes(dataclasses.replace(DIGITS, seed=1), at(tmp_path, 1))


def test_processes_give_the_votes_that_one_process_gives(tmp_path: Path) -> None:
    alone = load_or_compute_votes(DIGITS, at(tmp_path / "alone", 1))
    shared = load_or_compute_votes(DIGITS, at(tmp_path / "shared", 2))
    assert (alone.votes == shared.votes).all()
