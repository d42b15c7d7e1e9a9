"""What `collegium coordinator serve` does: one study to its end, or one after another for as long as it stays up."""

import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from collegium.coordinator.cli.provision_cli import checked
from collegium.coordinator.report.page import render
from collegium.coordinator.run.coordinator import Progress
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.run.screen import Findings
from collegium.coordinator.service.coordinator_service import CoordinatorService
from collegium.coordinator.settings.consortium import ConsortiumConfig, ConsortiumFolder, read_consortium
from collegium.coordinator.settings.run_config import PublicData
from collegium.coordinator.watching.live_state import LiveState, Snapshots, kept_current
from collegium.errors import CollegiumError
from collegium.extras import optional_import
from collegium.logs import event

logger = logging.getLogger("collegium.coordinator")

LOOK_AGAIN_S = 1.0
"""How often a coordinator that rests looks whether a study was begun."""

Say = Callable[[RunRecord, ConsortiumFolder], None]
"""Called with how a study ended, and where it lies."""


@dataclass(frozen=True, eq=False)
class Study:
    """A study that can begin, with what it says of itself."""

    config: ConsortiumConfig
    public: PublicData
    found: Findings

    @classmethod
    def checked(cls, config_file: Path, study: str | None, data_root: Path | None) -> "Study":
        """The study of this name; raises what `checks.check_consortium` raises."""
        config = read_consortium(config_file, study)
        return cls(config, *checked(config_file, config, data_root))


@dataclass(frozen=True)
class Serving:
    """The options of the command.

    Parameters
    ----------
    stays : whether it goes on with the studies that are begun later, until ``ended`` says so.
    sleep : waits between two looks.
    """

    config_file: Path
    data_root: Path | None
    wait_s: float
    status_at: str | None = None
    status_hosts: tuple[str, ...] = ()
    stays: bool = False
    ended: Callable[[], bool] = lambda: False
    sleep: Callable[[float], object] = time.sleep

    def serve(self, first: Study, say: Say) -> None:
        """Serve a study and, where it stays, those that follow.

        Raises
        ------
        CollegiumError
            Where the first one cannot be listened for, or ends with an error and nothing stays.
        """
        due: Study | None = first
        while due is not None:
            due = self._serve(due, say)

    def _serve(self, study: Study, say: Say) -> Study | None:
        """One study; then the next one, for which everything stays up. None where there is none."""
        for line in study.found.lines():
            logger.info("%s", line)
        live, config = LiveState(), study.config

        def on_progress(step: Progress) -> None:
            live.take_step(step)
            _log_step(step)

        service = CoordinatorService(
            config, study.public, wait_s=self.wait_s, on_progress=on_progress, on_event=live.take_event
        )
        place, settings = config.place, config.consortium
        address, hosts = self.status_at or settings.status, {*settings.status_hosts, *self.status_hosts}
        with service.listening(), shown_at(address, config, live, len(study.public.pool), hosts):
            try:
                say(service.run(), place)
            except CollegiumError as error:
                if not self.stays:
                    raise
                logger.error("the study ended: %s", error, extra=event("study-failed", code=error.code))
                service.parties.farewell(f"the study ended: {error}")
            if not self.stays:
                return None
            place.begin.unlink(missing_ok=True)
            service.parties.welcome_again()
            told = event("resting")
            logger.info("waiting for the next study: collegium study begin %s NAME", self.config_file, extra=told)
            return self._following(place)

    def _following(self, place: ConsortiumFolder) -> Study | None:
        """The study that was begun first, once there is one; None once it is ended."""
        while not self.ended():
            for name in place.begun():
                try:
                    return Study.checked(self.config_file, name, self.data_root)
                except CollegiumError as error:
                    logger.error("the study %s cannot begin: %s", name, error, extra=event("study-failed"))
                    ConsortiumFolder(place.path, name).begin.unlink(missing_ok=True)
            self.sleep(LOOK_AGAIN_S)
        return None


def _log_step(step: Progress) -> None:
    """A line as each party's teachers are ready and after each round; of the other steps their ends."""
    if step.done == step.total or step.step in ("fit", "labels"):
        told = event("step", step=step.step, done=step.done, total=step.total)
        logger.info("%s: %d of %d", step.step.replace("_", " "), step.done, step.total, extra=told)


@contextmanager
def shown_at(
    address: str | None, config: ConsortiumConfig, live: LiveState, pool_inputs: int, hosts: Collection[str] = ()
) -> Iterator[None]:
    """Keep the status file within, and show the page at ``host:port``; no page where the address is None.

    ``hosts`` are further names under which the page may be asked for.

    ConfigurationError or StorageError when the address is none, or cannot be had.
    """
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
