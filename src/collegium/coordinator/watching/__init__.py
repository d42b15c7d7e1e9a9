"""Watching a coordinator that serves: a status file, a page and metrics, all without a vote or a secret."""

import logging
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from collegium.extras import optional_import
from collegium.logs import event

if TYPE_CHECKING:
    from collegium.coordinator.settings.consortium import ConsortiumConfig
    from collegium.coordinator.watching.live_state import LiveState

logger = logging.getLogger("collegium.coordinator")


@contextmanager
def shown_at(
    address: str | None,
    config: "ConsortiumConfig",
    live: "LiveState",
    pool_inputs: int | None = None,
    hosts: Collection[str] = (),
) -> Iterator[None]:
    """Keep the status file within, and show the page at ``host:port``; no page where the address is None.

    ``hosts`` are further names under which the page may be asked for.

    ConfigurationError or StorageError when the address is none, or cannot be had.
    """
    from collegium.coordinator.report.page import render
    from collegium.coordinator.run.run_folder import RunFolder
    from collegium.coordinator.watching.live_state import Snapshots, kept_current

    folder, snapshots = RunFolder(config.place.run), Snapshots(config, live, pool_inputs=pool_inputs)

    def report() -> str | None:
        run = folder.read() if folder.report.exists() else None
        return None if run is None else render(run)  # without figures that only a simulation may know

    with ExitStack() as shown:
        if address is not None:
            with optional_import("the status page"):
                from collegium.coordinator.watching.server import StatusServer
            server = shown.enter_context(StatusServer(address, snapshots, report, hosts))
            logger.info("status at %s", server.url, extra=event("status-shown", url=server.url))
        shown.enter_context(kept_current(config.place.status, snapshots))
        yield
