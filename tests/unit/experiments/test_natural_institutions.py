"""Institutions as nature divided them: who takes part, what is public, and what each comparison compares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from collegium_reproduction.experiments import natural_dirichlet
from collegium_reproduction.experiments.institutions import (
    Institutions,
    accuracies,
    neighbours_pooled_and_alone,
    together,
)
from collegium_reproduction.experiments.natural_dirichlet import NaturalDirichlet
from collegium_reproduction.experiments.natural_tables import HEARTS, SCHOOLS, Collected, Neighbours, Votes
from support.data import folder_with
from unit.experiments.conftest import silent

from collegium.coordinator.settings.run_config import PublicData
from collegium.data import DataSource, Examples, PoolStore
from collegium.data.task import NumberColumn, TableInputs, Task, TeacherSettings
from collegium.simulations.local import InProcessParties

TASK = Task(
    classes=("left", "right"),
    inputs=TableInputs(columns=tuple(NumberColumn(name=name, low=0.0, high=1.0) for name in ("a", "b"))),
)
LINEAR = TeacherSettings(kind="linear", options={"steps": 100, "learning_rate": 0.3})
UNSEARCHED_SIGMA = 0.9
"""Below the scales for which a certified bound is searched: quick."""


def _drawn(count: int, seed: int) -> Examples:
    """Two classes that the first number tells apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, count)
    x = np.zeros((count, 4), dtype=np.float32)
    x[:, 0] = np.where(y == 1, 0.75, 0.25) + rng.uniform(-0.2, 0.2, count)
    x[:, 2] = rng.uniform(0.0, 1.0, count)
    return Examples(x, y.astype(np.int64))


def _institutions(parts: list[np.ndarray], private: Examples) -> Institutions:
    return Institutions.of(TASK, private, parts, PublicData(_drawn(60, 1), _drawn(50, 2)), seed=5)


def _collected(*plans: Votes | Neighbours) -> Collected:
    return Collected("heart", "hospital", 60, plans)


@pytest.fixture
def mixed() -> Institutions:
    return _institutions(np.array_split(np.arange(120), 4), _drawn(120, 0))


def test_an_institution_without_a_record_takes_no_part() -> None:
    institutions = _institutions([np.arange(5), np.arange(0), np.arange(5, 12)], _drawn(12, 0))
    assert list(institutions.records) == ["party-0", "party-2"]
    assert [len(own) for own in institutions.records.values()] == [5, 7]


def test_pooling_beats_institutions_that_saw_one_class_each() -> None:
    private = _drawn(80, 0)
    institutions = _institutions([np.flatnonzero(private.labels() == label) for label in (0, 1)], private)
    pools = PoolStore(None)
    alone = accuracies(institutions, institutions.parties(None, pools), pools, LINEAR)
    pooled = accuracies(institutions, [institutions.pooled(pools)], pools, LINEAR)
    assert sum(alone) == pytest.approx(1.0)
    assert pooled[0] > 0.9
    neighbours = neighbours_pooled_and_alone(institutions)
    assert sum(neighbours["alone"]) == pytest.approx(1.0)
    assert neighbours["pooled"] > 0.9


def test_one_teacher_costs_an_institution_what_it_costs_a_record_and_several_cost_it_more(
    mixed: Institutions, tmp_path: Path
) -> None:
    parties = mixed.parties(tmp_path / "parties", PoolStore(None))
    everyone = InProcessParties(parties, "natural-heart")
    runs = []
    for number, teachers in enumerate((1, 3)):
        plan = Votes(teachers, 10, UNSEARCHED_SIGMA)
        config = _collected(plan).config(plan, seed=5)
        config = config.model_copy(update={"task": TASK, "teachers": LINEAR.model_copy(update={"per_party": teachers})})
        folder = tmp_path / f"run-{number}"
        runs.append(together(config, mixed, everyone, folder, silent(tmp_path), student=False))
    one, several = runs
    assert one["record"] == one["party"]
    assert several["record"] == one["record"]
    assert several["party"] > 2 * several["record"]
    assert one["answered"] == several["answered"] == 10
    assert one["student"] is None


def test_neighbours_protect_records_alone_and_cost_their_votes_however_many_are_asked(
    mixed: Institutions, tmp_path: Path
) -> None:
    parties = mixed.parties(tmp_path / "parties", PoolStore(None))
    everyone = InProcessParties(parties, "natural-heart")
    costs = []
    for queries in (4, 12):
        plan = Neighbours(queries, 0.2, 4.0, 2)
        config = _collected(plan).config(plan, seed=5).model_copy(update={"task": TASK})
        run = together(config, mixed, everyone, tmp_path / f"{queries}", silent(tmp_path), student=queries == 12)
        assert run["party"] is None
        costs.append(run["record"])
    assert costs[0] == costs[1]
    # Of 12 labels, 24 expected votes a query and noise of 4 votes, most are right: the student is no coin.
    assert run["student"] > 0.6


def test_two_tries_on_one_set_of_parties_are_not_taken_for_one_another(mixed: Institutions, tmp_path: Path) -> None:
    everyone = InProcessParties(mixed.parties(None, PoolStore(None)), "natural-heart")
    for number, plan in enumerate((Neighbours(4, 0.2, 4.0, 1), Neighbours(6, 0.4, 4.0, 1))):
        config = _collected(plan).config(plan, seed=5).model_copy(update={"task": TASK})
        run = together(config, mixed, everyone, tmp_path / f"{number}", silent(tmp_path), student=False)
        assert run["answered"] == plan.queries


def test_digits_by_dirichlet_give_a_row_per_concentration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = natural_dirichlet.CONFIG | {
        "task": {"classes": tuple("0123456789"), "inputs": {"kind": "image", "height": 8, "width": 8}},
        "pool": {"source": "digits", "shuffle_seed": 0, "stop": 200},
        "holdout": {"source": "digits", "shuffle_seed": 0, "start": 200, "stop": 400},
        "teachers": {"kind": "linear", "options": {"steps": 40}},
        "queries": {"count": 20},
    }
    mechanisms = {"GNMax": {"name": "gnmax", "parameters": {"sigma": UNSEARCHED_SIGMA}}}
    monkeypatch.setattr(natural_dirichlet, "CONFIG", config)
    monkeypatch.setattr(natural_dirichlet, "MECHANISMS", mechanisms)
    monkeypatch.setattr(natural_dirichlet, "PRIVATE", DataSource(source="digits", shuffle_seed=0, start=400))
    monkeypatch.setattr(natural_dirichlet, "PARTIES", 6)
    monkeypatch.setattr(natural_dirichlet, "POOLED", {"steps": 200})
    results = NaturalDirichlet().run(silent(tmp_path))
    skewed, mild = results["rows"]
    assert (skewed["alpha"], mild["alpha"]) == (0.1, 1.0)
    assert np.mean(skewed["classes"]) < np.mean(mild["classes"])
    for row in results["rows"]:
        assert sum(row["records"]) == 1797 - 400
        assert row["pooled"] > max(row["alone"])
        assert row["runs"]["GNMax"]["record"] == row["runs"]["GNMax"]["party"]
    assert "GNMax" in NaturalDirichlet().render(results)


@pytest.mark.parametrize(
    ("collected", "institutions", "records", "file"),
    [(SCHOOLS, 139, 15_362, "school_ilea.npz"), (HEARTS, 4, 920, "heart_processed.cleveland.data")],
)
def test_public_and_private_records_are_apart_and_together_all(
    collected: Collected, institutions: int, records: int, file: str
) -> None:
    one = collected.institutions(3, folder_with(file))
    assert one.public.holdout is not None
    assert len(one.records) == institutions
    assert len(one.public.pool) == len(one.public.holdout) == collected.public
    private = records - 2 * collected.public
    assert sum(map(len, one.records.values())) == private
    people = sum(len(set(own.identities())) for own in one.records.values())
    # Most pupils have a double at their school by columns and class: known by these alone, they would count as one.
    assert people == private if collected.numbered else people > 0.99 * private


def test_the_page_shows_the_largest_epsilon_of_any_seed_and_what_is_not_protected() -> None:
    collected = _collected(Votes(1, 10, 4.0), Neighbours(10, 0.2, 8.0, 2))

    def row(seed: int, epsilon: float) -> dict[str, object]:
        alone = {"pooled": 0.8, "alone": [0.5, 0.7]}
        runs = [
            {"plan": plan.name, "labels": 0.7, "student": 0.6, "record": epsilon, "party": party}
            for plan, party in zip(collected.plans, (epsilon, None), strict=True)
        ]
        common = {"seed": seed, "institutions": 2, "records": [10, 20], "majority": 0.55}
        return common | {"model": alone, "neighbours": alone, "runs": runs}

    text = collected.render({"rows": [row(0, 1.25), row(1, 1.5)]})
    assert "| 1.50 | 1.50 |" in text
    assert "| 1.50 | not protected |" in text
    assert "1.25" not in text
    assert "2 institutions of 10 to 20 records" in text
