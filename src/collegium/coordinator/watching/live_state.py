"""What is shown of a served consortium: its files' status, and what only the serving process knows.

Connections, refusals and the present step are in no file. `Snapshots` puts both together as status.json says them.
"""

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from collegium.clock import utc_now
from collegium.coordinator.run.coordinator import Progress
from collegium.coordinator.run.run_folder import RunFolder, plain
from collegium.coordinator.service.peer_events import SessionEvent
from collegium.coordinator.service.session_service import quorum_of
from collegium.coordinator.settings.consortium import ConsortiumConfig
from collegium.coordinator.watching.consortium_status import code_of, consortium_status
from collegium.coordinator.watching.stages import asked_of, share_done
from collegium.errors import CollegiumError
from collegium.whole_files import write_whole

logger = logging.getLogger("collegium.coordinator")

FAREWELL = "farewell"
PACE_S = 3.0
"""A step that has run for less tells no pace."""
FRESH_S = 1.0
"""However many look on, files are read once in this time."""
WRITTEN_EVERY_S = 2.0
"""How often status.json is written where anything but the time has changed."""


@dataclass
class LiveSnapshot:
    """The live state at one time."""

    started: datetime
    connected_since: dict[str, datetime] = field(default_factory=dict)
    step: Progress | None = None
    step_began: datetime | None = None
    refused: Counter[str] = field(default_factory=Counter)
    """Connections turned away, by the code of the error."""
    violations: int = 0
    disconnections: int = 0
    """Connections that ended without a farewell."""


class LiveState:
    """Takes session events and steps from whichever threads they come, and shows them together."""

    def __init__(self, now: Callable[[], datetime] = utc_now) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._peers: dict[str, dict[str, datetime]] = {}
        self._held = LiveSnapshot(now())

    def take_event(self, event: SessionEvent) -> None:
        """An `OnEvent`; quick, as one must be."""
        with self._lock:
            match event.kind, event.party:
                case "connected", str(party):
                    self._peers.setdefault(party, {})[event.peer] = self._now()
                case "disconnected", str(party):
                    # A party that dials again is here twice for a moment: the old connection ends after the new began.
                    here = self._peers.get(party, {})
                    here.pop(event.peer, None)
                    if not here:
                        self._peers.pop(party, None)
                    self._held.disconnections += event.detail != FAREWELL
                case "refused", _:
                    self._held.refused[code_of(event.code)] += 1
                case "violation", _:
                    self._held.violations += 1

    def take_step(self, step: Progress) -> None:
        """Take the run's report of one step."""
        with self._lock:
            if self._held.step is None or self._held.step.step != step.step:
                self._held.step_began = self._now()
            self._held.step = step

    def snapshot(self) -> LiveSnapshot:
        with self._lock:
            since = {party: max(peers.values()) for party, peers in self._peers.items()}
            return replace(self._held, connected_since=since, refused=self._held.refused.copy())


class Snapshots:
    """Makes snapshots, one for all who ask within `FRESH_S`.

    Parameters
    ----------
    config : of the consortium.
    live : what the serving process knows.
    pool_inputs : of the public pool, which sums over all records label as a whole.
    now, clock : the time, and monotonic seconds.
    """

    def __init__(
        self,
        config: ConsortiumConfig,
        live: LiveState,
        *,
        pool_inputs: int | None = None,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._live, self._asks = config, live, asked_of(config)
        self._wanted = pool_inputs if self._asks["sums"] and pool_inputs else config.queries.count
        self._folder = config.place
        self._now, self._clock = now, clock
        self._lock = threading.Lock()
        self._made: tuple[float, dict[str, Any]] | None = None

    def __call__(self) -> dict[str, Any]:
        """The newest; StorageError or LedgerCorrupt when a file cannot be used. Not to be changed by the caller."""
        with self._lock:
            if self._made is None or self._clock() - self._made[0] >= FRESH_S:
                self._made = self._clock(), self._make()
            return self._made[1]

    def _make(self) -> dict[str, Any]:
        now, moment = self._now(), self._live.snapshot()
        status = consortium_status(self._folder, now)
        if (
            status["state"] == "finished"
            and not self._asks["sums"]
            and self._config.queries.count > (status["queries"] or 0)
        ):
            status |= {"state": "labelling", "queries": self._config.queries.count}  # more are wanted since
        quorum = quorum_of(self._config, self._folder.members.read())
        parties = {name: _live(party, moment.connected_since.get(name)) for name, party in status["parties"].items()}
        connected = sum(party["connected"] for party in parties.values())
        short, fits = connected < quorum, self._asks["teachers"]
        phase = _phase(status, moment, now, short=short, fitting=connected if fits else None)
        return status | {
            "at": _text(now),
            "started": _text(moment.started),
            "served": True,
            "queries": status["queries"] or self._wanted,
            "asks": self._asks,
            "parties": parties,
            "expected": sum(party["membership"] != "left" for party in parties.values()),
            "connected": connected,
            "quorum": quorum,
            "phase": phase,
            "share_done": share_done(self._asks, phase, status["rounds"]),
            "report": RunFolder(self._folder.run).report.exists(),
            "refused_connections": moment.refused,
            "protocol_violations": moment.violations,
            "disconnections": moment.disconnections,
        }


def _live(party: Mapping[str, Any], since: datetime | None) -> dict[str, Any]:
    here = since is not None and party["membership"] == "enrolled"
    return {**party, "connected": here, "connected_since": _text(since) if here and since is not None else None}


def _phase(
    status: Mapping[str, Any], moment: LiveSnapshot, now: datetime, *, short: bool, fitting: int | None
) -> dict[str, Any]:
    """What goes on: a step of a run with how far it is, ``waiting`` for a quorum, or ``finished``.

    ``fitting`` parties fit teachers once they have the pool; None where there are none. ``seconds_left`` is the time to
    the end of the step at its present pace, None where nothing tells it.
    """
    step = moment.step
    between = {"done": 0, "total": 0, "seconds_left": None}
    if status["state"] == "finished" and (step is None or step.step == "report"):
        return {"step": "finished"} | between
    if step is None or (short and step.step not in ("student", "report")):
        return {"step": "waiting"} | between
    if step.step == "hold_pool" and step.done >= step.total and fitting is not None:
        return {"step": "fit", "done": 0, "total": fitting, "seconds_left": None}  # until the first one is ready
    passed = 0.0 if moment.step_began is None else (now - moment.step_began).total_seconds()
    left = round(passed * (step.total - step.done) / step.done) if step.done and passed >= PACE_S else None
    return {"step": step.step, "done": step.done, "total": step.total, "seconds_left": left}


def _text(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


@contextmanager
def kept_current(path: Path, snapshot: Callable[[], Mapping[str, Any]]) -> Iterator[None]:
    """Keep the file ``path`` at what ``snapshot`` says within, and at its end; each time the whole file."""
    ending = threading.Event()

    def keep() -> None:
        written, told = None, ""
        while True:
            last = ending.is_set()
            try:
                shown = plain(snapshot())
                lasting = {**shown, "at": None, "phase": {**shown["phase"], "seconds_left": None}}
                if lasting != written:
                    write_whole(path, json.dumps(shown, allow_nan=False, ensure_ascii=False) + "\n")
                    written = lasting
                told = ""
            except CollegiumError as error:
                if told != (told := str(error)):
                    logger.error("%s", error)
            if last:
                return
            ending.wait(WRITTEN_EVERY_S)

    keeper = threading.Thread(target=keep, name="status-file", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ending.set()
        keeper.join()
