"""The rows that are computed from an ensemble's votes: each runs, survives JSON, and says what it must."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collegium_reproduction.experiments import ensembles
from collegium_reproduction.experiments.base import Drawn, Setting
from collegium_reproduction.experiments.ensembles import Ensemble, EnsembleVotes
from collegium_reproduction.experiments.exams import Options
from collegium_reproduction.experiments.figures import save_figure
from collegium_reproduction.experiments.gnmax_mnist import GnmaxMnist, as_published
from collegium_reproduction.experiments.nzc_figure_2 import NzcFigure2
from collegium_reproduction.experiments.nzc_table_1 import NzcTable1
from collegium_reproduction.experiments.nzc_table_2 import NzcTable2
from collegium_reproduction.experiments.nzc_votes import claimed_and_honest, propose_test_release
from collegium_reproduction.experiments.pate_appendix_b2 import PateAppendixB2
from collegium_reproduction.experiments.pate_figure_2 import GAMMAS, PateFigure2
from collegium_reproduction.experiments.pate_figure_3 import PateFigure3
from collegium_reproduction.experiments.pate_figure_5 import PateFigure5
from collegium_reproduction.experiments.pate_noisy_labels import PateNoisyLabels
from unit.experiments.conftest import silent

from collegium.data import DataSource, default_task
from collegium_accounting.mechanisms import create

TINY = Ensemble(
    default_task("digits"),
    private=DataSource(source="digits", shuffle_seed=0, stop=1200),
    queries=DataSource(source="digits", shuffle_seed=0, start=1200, stop=1300),
    parties=40,
    kind="small-cnn",
    seed=0,
)
PARTIES = (5, 10, 40)
QUICK: Options = {"network": "small-cnn", "steps": 5, "batch": 8}


@pytest.fixture
def setting(tmp_path: Path, without_games: None) -> Setting:
    """Votes of three ensembles, made here and found as if they had been fitted; the flat bound for the certified one.

    The search for the certified bound takes seconds per noise scale and has tests of its own.
    """
    setting = silent(tmp_path, ensembles=tmp_path / "ensembles")
    for parties in PARTIES:
        keep(made_votes(parties), TINY.of(parties=parties, seed=0), setting)
    return setting


@cache
def made_votes(parties: int) -> EnsembleVotes:
    """Teachers that are right with probability 0.9, each by itself; one query has nearly a tie."""
    rng = np.random.default_rng(parties)
    truth = ensembles._examples(TINY, None)[1].labels()
    wrong = rng.integers(0, 10, (parties, len(truth)))
    said = np.where(rng.random((parties, len(truth))) < 0.9, truth, wrong)
    votes = np.stack([np.bincount(said[:, query], minlength=10) for query in range(len(truth))])
    votes[0] = np.bincount([0] * (parties // 2) + [1] * (parties - parties // 2), minlength=10)
    return EnsembleVotes(votes, truth, (said == truth).mean(axis=1), 1.0)


def keep(said: EnsembleVotes, ensemble: Ensemble, setting: Setting) -> None:
    name = ensembles._name(ensemble, *ensembles._examples(ensemble, None))
    ensembles._save(setting.ensembles / f"{name}.npz", said)


ROWS = [
    PateNoisyLabels(TINY),
    PateFigure2(TINY, PARTIES),
    PateFigure3(TINY, PARTIES),
    NzcTable1(TINY, (20, 60)),
    NzcTable2(TINY),
    NzcFigure2(TINY, PARTIES),
    GnmaxMnist(TINY, pool=90, answered=5),
    PateFigure5(TINY, 90, (20, 40), QUICK),
    PateAppendixB2(TINY, 90, (20, 40), QUICK),
]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_row_runs_and_is_rendered_from_json_alone(row: Any, setting: Setting) -> None:
    measured = row.run(setting)
    text = row.render(json.loads(json.dumps(measured)))
    assert "paper" in text and "| --- |" in text
    assert "nan" not in text.lower()
    if isinstance(row, Drawn):
        drawn = []
        for name in ("first.svg", "second.svg"):
            save_figure(row, json.loads(json.dumps(measured)), setting.folder / name)
            drawn.append((setting.folder / name).read_bytes())
        assert drawn[0].startswith(b"<?xml") and drawn[0] == drawn[1]


def test_less_noise_means_better_labels_and_the_exponential_mechanism_beats_lnmax(setting: Setting) -> None:
    curves = PateFigure2(TINY, PARTIES).run(setting)["curves"]
    by_name = {(curve["mechanism"], curve["parties"]): curve["accuracy"] for curve in curves}
    for accuracy in by_name.values():
        assert accuracy[-1] > accuracy[0] + 0.1
    noisy = GAMMAS.index(0.1)
    assert by_name["exponential", 40][noisy] > by_name["lnmax", 40][noisy]


def test_near_zero_cost_is_called_what_it_is(setting: Setting) -> None:
    text = NzcTable1(TINY, (20, 60)).render(NzcTable1(TINY, (20, 60)).run(setting))
    assert "does not hold" in text and "∞" in text
    two = NzcTable2(TINY)
    row = two.run(setting)["rows"][0]
    assert row["honest"] == "inf" and row["claimed"] < 1e-3 and row["changed"] == 0


def test_narrow_gaps_are_counted_among_all_classes() -> None:
    votes = np.array([[1, 20, 3, 19], [0, 20, 4, 0], [10, 0, 0, 12], [10, 0, 0, 13]])
    assert claimed_and_honest(votes)["narrow"] == 2


def test_propose_test_release_answers_nothing_where_everything_is_narrow() -> None:
    narrow = np.tile([120, 130], (50, 1))
    wide = np.tile([0, 250], (50, 1))
    assert propose_test_release(narrow, np.ones(50, dtype=np.int64), 0)["answered"] == 0
    assert propose_test_release(wide, np.ones(50, dtype=np.int64), 0) | {"epsilon": 0.0} == {
        "answered": 50,
        "labels": 1.0,
        "epsilon": 0.0,
    }


def test_the_published_account_of_a_threshold_is_below_the_one_that_covers_every_answer() -> None:
    """On votes that often fail the threshold the expectation leaves most of the release's cost out."""
    votes = np.tile([130, 110, 10], (200, 1))
    confident = create("confident-gnmax", sigma1=50.0, sigma2=40.0, threshold=200.0)
    plain = create("gnmax", sigma=40.0)
    assert as_published(confident, votes) < 0.7 * as_published(plain, votes)


def test_confident_gnmax_asks_until_enough_are_answered(setting: Setting) -> None:
    rows = GnmaxMnist(TINY, pool=90, answered=5).run(setting)["rows"]
    assert {row["row"]: row["answered"] for row in rows} == {"confident-gnmax": 5, "gnmax-40": 5, "gnmax-60": 5}
    assert all(row["asked"] >= row["answered"] for row in rows)


def test_votes_of_other_settings_are_not_mistaken_for_these() -> None:
    private, queries = ensembles._examples(TINY, None)
    names = {
        ensembles._name(TINY.of(parties=parties, seed=seed, kind=kind), private, queries)
        for parties in PARTIES
        for seed in (0, 1)
        for kind in ("small-cnn", "linear")
    }
    other = dataclasses.replace(queries, y=queries.labels()[::-1].copy())
    assert len(names | {ensembles._name(TINY, private, other)}) == 13


def test_both_ways_of_asking_start_alike_and_then_part(setting: Setting) -> None:
    rows = PateAppendixB2(TINY, 90, (20, 40), QUICK).run(setting)["rows"]
    found = {(row["way"], row["queries"]): row for row in rows}
    assert found["random", 20]["student"] == found["least-confident", 20]["student"]
    assert found["random", 40]["exact"] != found["least-confident", 40]["exact"]
    assert found["random", 40]["independent"] == found["least-confident", 40]["independent"]
