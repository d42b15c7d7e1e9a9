"""What `collegium student enrol` and `collegium student fit --coordinator` do, apart from fitting."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.progress import Progress

from collegium.coordinator.label_jobs.client import LabelJobClient
from collegium.coordinator.label_jobs.ordering import Delivery, order_labels
from collegium.coordinator.selection.queries import choose_queries
from collegium.errors import ConfigurationError, StorageError
from collegium.logs import LogFormat, configure_logging
from collegium.protocol.identities import Credentials
from collegium.protocol.label_jobs import JobStatus

logger = logging.getLogger("collegium.student")


def ordered(
    address: str,
    credentials: Path,
    folder: Path,
    *,
    queries: int | None,
    positions: Path | None,
    seed: int,
    note: str,
    bar: Progress,
) -> Delivery:
    """Ask the coordinator at ``address`` for labels, and wait for them.

    ConfigurationError unless either a number of ``queries`` is given or a file that lists ``positions``.
    """
    choose = _choice(queries, positions, seed)
    Credentials.load(credentials, "student")
    configure_logging(LogFormat.TEXT)
    client = LabelJobClient(lambda: Credentials.load(credentials, "student"), address)
    task = bar.add_task("fetching the pool", total=None)

    def on_status(status: JobStatus) -> None:
        where = f"{status.state}, {status.ahead} before it" if status.ahead else status.state
        if bar.disable:  # no terminal: lines in place of the bar
            logger.info("job %s: %s, %d of %d inputs", status.job_id[:8], where, status.labelled, status.inputs)
        bar.update(task, description=f"waiting: {where}", completed=status.labelled, total=status.inputs)

    delivery = order_labels(
        client,
        folder,
        choose,
        note,
        on_received=lambda done, total: bar.update(task, completed=done, total=total),
        on_status=on_status,
    )
    bar.remove_task(task)
    if delivery.status.reason:
        logger.warning("the job stopped: %s", delivery.status.reason)
    return delivery


def _choice(queries: int | None, positions: Path | None, seed: int) -> Callable[[int], Sequence[int]]:
    if (queries is None) == (positions is None):
        raise ConfigurationError("say which inputs to ask about: --queries N at random, or --positions FILE")
    if positions is not None:
        listed = _read_positions(positions)
        return lambda pool_inputs: listed
    assert queries is not None
    count = queries

    def draw(pool_inputs: int) -> Sequence[int]:
        if count > pool_inputs:
            raise ConfigurationError(f"--queries is {count}, but the consortium's pool has {pool_inputs} inputs")
        chosen: list[int] = choose_queries(pool_inputs, count, seed).tolist()
        return chosen

    return draw


def _read_positions(path: Path) -> list[int]:
    try:
        return [int(line) for line in path.read_text(encoding="utf-8").split()]
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path} lists no positions: write one whole number per line") from error
