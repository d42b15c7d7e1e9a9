"""Everything that may be shown of a served consortium, as one object in JSON's types: what status.json says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from collegium.clock import utc_now
from collegium.coordinator.service.session_service import quorum_of
from collegium.coordinator.settings.consortium import ConsortiumConfig, ConsortiumFolder
from collegium.coordinator.watching.consortium_status import consortium_status
from collegium.coordinator.watching.live_state import LiveSnapshot, LiveState

FRESH_S = 1.0
"""However many look on, files are read once in this time."""


class Snapshots:
    """Makes snapshots, one for all who ask within `FRESH_S`.

    Parameters
    ----------
    config : of the consortium.
    live : what the serving process knows.
    now, clock : the time, and monotonic seconds.
    """

    def __init__(
        self,
        config: ConsortiumConfig,
        live: LiveState,
        *,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._live = config, live
        self._folder = ConsortiumFolder(config.consortium.folder)
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
        held = consortium_status(self._folder, now)
        quorum = quorum_of(self._config, self._folder.members.read())
        parties = {name: _live(party, moment.connected_since.get(name)) for name, party in held["parties"].items()}
        connected = sum(party["connected"] for party in parties.values())
        return held | {
            "at": _text(now),
            "started": _text(moment.started),
            "served": True,
            "queries": held["queries"] or self._config.queries.count,
            "parties": parties,
            "expected": sum(party["membership"] != "left" for party in parties.values()),
            "connected": connected,
            "quorum": quorum,
            "phase": _phase(held, moment, short=connected < quorum),
            "refused_connections": moment.refused,
            "protocol_violations": moment.violations,
            "disconnections": moment.disconnections,
        }


def _live(party: Mapping[str, Any], since: datetime | None) -> dict[str, Any]:
    here = since is not None and party["membership"] == "enrolled"
    return {**party, "connected": here, "connected_since": _text(since) if here and since is not None else None}


def _phase(held: Mapping[str, Any], moment: LiveSnapshot, *, short: bool) -> dict[str, Any]:
    """What goes on: a step of a run with how far it is, ``waiting`` for a quorum, ``idle`` or ``finished``."""
    step = moment.step
    if held["state"] == "finished" and (step is None or step.step == "report"):
        return {"step": "finished", "done": 0, "total": 0}
    if step is None or (short and step.step not in ("student", "report")):
        return {"step": "waiting", "done": 0, "total": 0}
    jobs = [job["state"] for job in held["jobs"]]
    if jobs and step.step == "labels" and held["state"] != "labelling" and not {"queued", "running"} & set(jobs):
        return {"step": "idle", "done": 0, "total": 0}
    return {"step": step.step, "done": step.done, "total": step.total}


def _text(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
