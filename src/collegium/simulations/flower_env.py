"""Flower's environment, set before it is imported: telemetry off, nothing fetched, no home folder written."""

import os
from pathlib import Path

from collegium.extras import optional_import


def flower_settings(folder: Path) -> dict[str, str]:
    """What Flower itself must find in its environment, by name."""
    return {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_HOME": str(folder / "flower"),
    }


def prepare_flower(folder: Path) -> None:
    """Make Flower and Ray quiet, offline and confined to ``folder``; a user's own setting wins.

    Raises MissingExtra when Flower is not installed.
    """
    settings = flower_settings(folder) | {
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "RAY_worker_niceness": "0",
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    with optional_import("a simulation on Flower's engine"):
        import flwr  # noqa: F401
        import ray  # noqa: F401
