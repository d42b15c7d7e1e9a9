"""A coordinator from a configuration, parties and a folder, with everything else by name; and what its run left."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collegium.coordinator.rounds.rounds import Parties
from collegium.coordinator.run.coordinator import Compute, CoordinatorRun, Reach, Storage, Watch
from collegium.coordinator.settings.run_config import PublicData, RunConfig, load_public
from collegium.privacy.ledger.entry import Charge
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.settings import validate_config

REACH = ("roster", "signing_keys", "vote_sum")
STORAGE = ("ledger", "cache", "signer")
WATCH = ("on_progress", "should_stop", "baseline")


class Crash(BaseException):
    """The process dies here."""


def dies(*_: Any, **__: Any) -> Any:
    """In the place of a function in which the process is killed."""
    raise KeyboardInterrupt


def run_config(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> RunConfig:
    """A run with these settings; a change is of a whole section, or, as ``section__key``, of one key."""
    values = dict(settings)
    for dotted, value in changes.items():
        section, _, key = dotted.partition("__")
        values[section] = {**values[section], key: value} if key else value
    return validate_config(values, RunConfig, "test")


def coordinator_for(
    config: RunConfig,
    parties: Parties,
    folder: Path,
    *,
    public: PublicData | None = None,
    **others: Any,
) -> CoordinatorRun:
    """The coordinator of one run on the CPU; ``others`` are fields of `Reach`, `Storage` and `Watch`."""
    unknown = others.keys() - {*REACH, *STORAGE, *WATCH}
    assert not unknown, unknown

    def given(names: tuple[str, ...]) -> dict[str, Any]:
        return {name: others[name] for name in names if name in others}

    return CoordinatorRun(
        config,
        Reach(parties, **given(REACH)),
        Storage(folder, **given(STORAGE)),
        public=public or load_public(config, None),
        compute=Compute("cpu"),
        watch=Watch(**given(WATCH)),
    )


def purposes(folder: Path) -> list[str]:
    """What each charge in a run's ledger was for, in order; a verifier accepts the ledger."""
    verify(folder / "ledger.sqlite")
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        return [entry.content.purpose for entry in ledger.entries() if isinstance(entry.content, Charge)]


def charges(folder: Path) -> int:
    """How many charges are in a run's ledger, which a verifier accepts."""
    return len(purposes(folder))


def labels_of(folder: Path) -> dict[int, str]:
    """The labels of a run as its file spells them, by the place of their inputs in the pool."""
    with (folder / "labels.csv").open(newline="") as file:
        return {int(row["index"]): row["label"] for row in csv.DictReader(file)}
