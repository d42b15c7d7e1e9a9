"""Runs that name the pool's inputs themselves, in folders of their own under one ledger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from local_parties import LocalParties

from collegium.coordinator.config import RunConfig
from collegium.coordinator.coordinator import Coordinator
from collegium.coordinator.public_data import PublicData
from collegium.coordinator.run_folder import read_labels
from collegium.protocol.ledger import Ledger


def test_inputs_that_two_runs_share_are_paid_once_and_get_one_label(
    parties: LocalParties, public: PublicData, config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    paid = tmp_path / "ledger.sqlite"

    def label(folder: str, positions: list[int]) -> dict[int, Any]:
        coordinator = Coordinator(config(), parties, tmp_path / folder, public=public, positions=positions, ledger=paid)
        assert coordinator.run(only_labels=True)["state"] == "labelled"
        return dict(read_labels(tmp_path / folder / "labels.csv"))

    first, second = label("first", [5, 3, 9]), label("second", [9, 1, 5])
    assert list(first) == [5, 3, 9] and list(second) == [9, 1, 5]
    assert {at: second[at] for at in (5, 9)} == {at: first[at] for at in (5, 9)}
    with Ledger.read(paid) as ledger:
        assert ledger.queries_charged() == len(ledger.labels()) == 4
    assert [len(request.inputs.indices) for request in parties.by_name["party-0"].rounds()] == [3, 1]
    assert not (tmp_path / "first" / "ledger.sqlite").exists()
