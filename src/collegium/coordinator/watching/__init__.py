"""Watching a coordinator that serves: a page for people, metrics for Prometheus, both without a vote or a secret."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from collegium.extras import optional_import
from collegium.logs import event

if TYPE_CHECKING:
    from collegium.coordinator.settings.consortium import ConsortiumConfig
    from collegium.coordinator.watching.live_state import LiveState

logger = logging.getLogger("collegium.coordinator")


@contextmanager
def shown_at(address: str | None, config: "ConsortiumConfig", live: "LiveState") -> Iterator[None]:
    """Show the consortium's status at ``host:port`` within; nothing at all where the address is None.

    ConfigurationError or StorageError when the address is none, or cannot be had.
    """
    if address is None:
        yield
        return
    with optional_import("the status page"):
        from collegium.coordinator.report.page import render
        from collegium.coordinator.run.run_folder import RunFolder
        from collegium.coordinator.watching.live_state import Snapshots
        from collegium.coordinator.watching.server import StatusServer

    folder = RunFolder(config.place.run)

    def report() -> str | None:
        run = folder.read() if folder.report.exists() else None
        return None if run is None else render(run)  # without figures that only a simulation may know

    with StatusServer(address, Snapshots(config, live), report) as server:
        logger.info("status at %s", server.url, extra=event("status-shown", url=server.url))
        yield
