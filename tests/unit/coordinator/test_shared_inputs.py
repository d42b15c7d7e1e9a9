"""Runs whose pools share inputs, in folders of their own under one ledger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coordinators import coordinator_for
from support.scripted_parties import LocalParties

from collegium.coordinator.run.run_folder import read_labels
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.errors import BudgetExceeded
from collegium.privacy.ledger.ledger import Ledger


def part_of(public: PublicData, positions: list[int]) -> PublicData:
    return PublicData(public.pool.take(np.array(positions)), public.holdout)


def test_inputs_that_two_runs_share_are_paid_once_and_get_one_label(
    parties: LocalParties, public: PublicData, config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    paid = tmp_path / "ledger.sqlite"

    def label(folder: str, positions: list[int]) -> dict[int, Any]:
        asked, part = config(queries__count=len(positions)), part_of(public, positions)
        coordinator = coordinator_for(asked, parties, tmp_path / folder, public=part, ledger=paid)
        assert coordinator.label().state == "labelled"
        return {positions[row]: label for row, label in read_labels(tmp_path / folder / "labels.csv")}

    first, second = label("first", [5, 3, 9]), label("second", [9, 1, 5])
    assert set(first) == {5, 3, 9} and set(second) == {9, 1, 5}
    assert {at: second[at] for at in (5, 9)} == {at: first[at] for at in (5, 9)}
    with Ledger.read(paid) as ledger:
        assert ledger.queries_charged() == len(ledger.labels()) == 4
    assert [len(ask.question.inputs.indices) for ask in parties.by_name["party-0"].rounds()] == [3, 1]
    assert not (tmp_path / "first" / "ledger.sqlite").exists()


def test_inputs_that_all_have_labels_are_free_when_nothing_else_fits_the_budget(
    parties: LocalParties, public: PublicData, config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    def label(folder: str, positions: list[int]) -> dict[str, Any]:
        asked, part = config(budget__epsilon=4.0, queries__count=len(positions)), part_of(public, positions)
        paid = tmp_path / "ledger.sqlite"
        coordinator = coordinator_for(asked, parties, tmp_path / folder, public=part, ledger=paid)
        return dict(coordinator.label().labels)

    all_of_it = label("all", list(range(30)))
    assert 0 < all_of_it["answered"] < 30 and "budget.epsilon" in all_of_it["stopped"]
    labelled = [row for row, label in read_labels(tmp_path / "all" / "labels.csv") if label is not None]
    again = label("again", labelled)
    assert again["stopped"] is None and again["answered"] == all_of_it["answered"] == len(labelled)
    with pytest.raises(BudgetExceeded):
        label("new", [40])
