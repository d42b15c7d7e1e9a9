"""What a serving process knows that no file of the consortium holds: connections, refusals, the present step."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from collegium.clock import utc_now
from collegium.coordinator.run.coordinator import Progress
from collegium.coordinator.watching.consortium_status import code_of

if TYPE_CHECKING:
    from collegium.coordinator.service.peer_events import SessionEvent

FAREWELL = "farewell"


@dataclass(frozen=True)
class LiveSnapshot:
    """The live at one time."""

    started: datetime
    connected_since: dict[str, datetime] = field(default_factory=dict)
    step: Progress | None = None
    refused: dict[str, int] = field(default_factory=dict)
    """Connections turned away, by the code of the error."""
    violations: int = 0
    disconnections: int = 0
    """Connections that ended without a farewell."""


class LiveState:
    """Takes session events and steps from whichever threads they come, and shows them together."""

    def __init__(self, now: Callable[[], datetime] = utc_now) -> None:
        self._now = now
        self._started = now()
        self._lock = threading.Lock()
        self._peers: dict[str, dict[str, datetime]] = {}
        self._step: Progress | None = None
        self._refused: Counter[str] = Counter()
        self._violations = self._disconnections = 0

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
                    self._disconnections += event.detail != FAREWELL
                case "refused", _:
                    self._refused[code_of(event.code)] += 1
                case "violation", _:
                    self._violations += 1

    def take_step(self, step: Progress) -> None:
        """What a run tells as it goes on."""
        with self._lock:
            self._step = step

    def snapshot(self) -> LiveSnapshot:
        with self._lock:
            return LiveSnapshot(
                self._started,
                {party: max(peers.values()) for party, peers in self._peers.items()},
                self._step,
                dict(self._refused),
                self._violations,
                self._disconnections,
            )
