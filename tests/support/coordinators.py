"""A coordinator from a configuration, parties and a folder, with everything else by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collegium.coordinator.rounds.rounds import Parties
from collegium.coordinator.run.coordinator import Compute, CoordinatorRun, Reach, Storage, Watch
from collegium.coordinator.settings.run_config import PublicData, RunConfig

REACH = ("roster", "signing_keys", "vote_sum")
STORAGE = ("ledger", "cache", "signer")
WATCH = ("on_progress", "should_stop", "clock", "baseline")


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
        public=public,
        compute=Compute("cpu"),
        watch=Watch(**given(WATCH)),
    )
