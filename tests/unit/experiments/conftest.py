"""What tests of experiments share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from collegium_reproduction.experiments.base import Setting

from collegium.errors import UnsupportedAccounting
from collegium_accounting.analysis import epsilons
from collegium_accounting.game import laws


def silent(folder: Path, data_root: Path | None = None, seeds: Iterable[int] = range(1), **options: Any) -> Setting:
    """A setting whose progress nobody reads."""
    return Setting(folder, data_root, seeds, lambda line: None, **options)


@pytest.fixture
def without_games(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What whole noisy counts cost, in place of games: these take seconds for each scale and have their own tests."""

    def refuse(*_: object) -> None:
        raise UnsupportedAccounting("not played here")

    monkeypatch.setattr(laws, "winner_epsilons", refuse)
    monkeypatch.setattr(laws, "winner_profile", refuse)
    monkeypatch.setattr(epsilons, "winner_profile", refuse)
    laws._block_epsilon.cache_clear()
    yield
    laws._block_epsilon.cache_clear()
