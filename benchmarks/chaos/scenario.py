"""One run under faults, from provisioning to its last label: which fault hits when, and what is started again.

The harness does what an operator's service manager does: a process that was killed, or that stopped with an error, is
started again with the same command. Nothing else helps the run along.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator

from benchmarks.chaos.consortium import Consortium, Heard, Process
from benchmarks.chaos.edits import Edit, OlderCopy, edit, keep
from benchmarks.chaos.faults import EDITS, MOMENTS, Fault, Kind
from benchmarks.chaos.outcome import Outcome, is_typed_error
from collegium.errors import CollegiumError
from collegium.interrupts import INTERRUPTED
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify

SILENCE_S = 240.0
"""A coordinator that says nothing for so long, with no fault going on, hangs."""
LEAVE_S = 60.0
_AT_ONCE = 2
"""So many faults may be going on when the next one comes, and more come together with it now and then."""
_LOOK_S = 0.5
_TRIES = 2
"""So often a coordinator stops since policies allow no more: the operator tries again once."""
_MOST_STOPS = 20
FORBIDDEN = "refused-"
INTERRUPTED_LINE = "Interrupted. Nothing is lost: run the same command again, and it goes on."


# More than 15 methods: what happens to one run, from the plan of a fault to its end.
class Scenario:
    """Plays faults on a consortium until so many have hit, then lets the run end.

    Parameters
    ----------
    wanted : how many faults have to hit.
    """

    def __init__(self, scene: Consortium, faults: Iterator[Fault], *, wanted: int) -> None:
        self._scene, self._faults, self._wanted = scene, faults, wanted
        self.outcome = Outcome(stop_condition=scene.stop_condition.kind)
        self._forbidden = 0
        """Stops because the parties' policies allow no more."""
        self._lost = self._given_up = False
        self._older: OlderCopy | None = None
        self._edited: Edit | None = None
        """What was done to the coordinator's files and not noticed yet."""
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._going_on = 0
        self._queues: dict[str, deque[Fault]] = {moment: deque() for moment in MOMENTS}
        """Faults drawn, by the moment that they wait for: what waits for a connection holds up nothing else."""

    def play(self) -> Outcome:
        began_s = time.monotonic()
        scene = self._scene
        scene.start_coordinator()
        self._await_listening()
        for name in scene.names:
            scene.enrol(name)
            scene.start_party(name)
        while self.outcome.state == "unfinished":
            self._step()
        self._leave()
        self.outcome.lives = scene.lives
        self.outcome.seconds = time.monotonic() - began_s
        return self.outcome

    def _await_listening(self) -> None:
        while (heard := self._scene.heard.get(timeout=SILENCE_S)).event != "listening":
            assert heard.event != "end", f"the coordinator did not start: {self._scene.processes()[-1].last_line()}"

    def _step(self) -> None:
        """Wait for a word of the coordinator or for the next thing that is due, and act on it."""
        heard = self._hear()
        while self._agenda and self._agenda[0][0] <= time.monotonic():
            heapq.heappop(self._agenda)[2]()
        for party in self._scene.parties.values():
            if party.popen.poll() is not None and not party.ended_by_us:
                self._party_ended(party)
        if heard is None or heard.life != self._scene.lives:
            return
        if heard.event == "end":
            self._coordinator_ended()
            return
        moment = heard.fields.get("step") if heard.event == "step" else heard.event
        self.outcome.rounds += moment == "labels"
        if moment == "labels" and self._older is None and self._edited is None:
            self._older = keep(self._scene.kept.run, self.outcome.rounds)
        if moment == "labels" and heard.fields["done"] >= self._scene.allowed:
            self._lose_parties()
        if self._lost and moment == "waiting-for-quorum" and not self._given_up:
            self._give_up()
        if moment in self._queues and self._going_on < _AT_ONCE and self._played() < self._wanted:
            self._plan(self._drawn(moment).popleft())
            while self._drawn(moment)[0].together:
                self._plan(self._drawn(moment).popleft())

    def _drawn(self, moment: str) -> deque[Fault]:
        """The faults that wait for this moment, at least one."""
        while not self._queues[moment]:
            fault = next(self._faults)
            self._queues[fault.moment].append(fault)
        return self._queues[moment]

    def _hear(self) -> Heard | None:
        patience_s = SILENCE_S
        while True:
            due_s = self._agenda[0][0] - time.monotonic() if self._agenda else patience_s
            try:
                return self._scene.heard.get(timeout=max(0.0, min(due_s, _LOOK_S)))
            except queue.Empty:
                if self._agenda:
                    return None
                patience_s -= _LOOK_S
                if patience_s <= 0:
                    self.outcome.violations.append(f"nothing happened for {SILENCE_S:g} s: the run hangs")
                    self.outcome.state = "hung"
                    return None
                if any(p.popen.poll() is not None and not p.ended_by_us for p in self._scene.parties.values()):
                    return None

    def _played(self) -> int:
        return sum(self.outcome.faults.values())

    # -- what no restart mends -------------------------------------------------------------------

    def _lose_parties(self) -> None:
        if self._scene.stop_condition.kind == "parties lost" and not self._lost:
            self._lost = True
            for name in self._scene.stop_condition.parties:
                self._scene.lose(name)

    def _give_up(self) -> None:
        """Stop a coordinator that waits for parties which do not come back, as its operator would."""
        assert self._scene.coordinator is not None
        self._given_up = True
        self._scene.coordinator.signal(signal.SIGTERM)

    # -- faults ----------------------------------------------------------------------------------

    def _plan(self, fault: Fault) -> None:
        self._going_on += 1
        self._at(fault.delay_s, lambda: self._strike(fault))

    def _at(self, delay_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (time.monotonic() + delay_s, next(self._numbers), action))

    def _strike(self, fault: Fault) -> None:
        heal = self._hit(fault)
        if heal is None:
            self._going_on -= 1  # nobody was there to be hit
            return
        self.outcome.faults[fault.kind] += 1

        def over() -> None:
            heal()
            self._going_on -= 1

        self._at(fault.lasts_s, over)

    def _hit(self, fault: Fault) -> Callable[[], None] | None:
        """Do it; what undoes it, or None where there was nothing to do it to."""
        scene = self._scene
        process = scene.coordinator if fault.party is None else scene.parties.get(fault.party)
        if process is None or process.popen.poll() is not None:
            return None
        if fault.kind.startswith("stall"):
            process.signal(signal.SIGSTOP)
            return lambda: process.signal(signal.SIGCONT)
        if fault.kind == "kill coordinator":
            process.kill()
            return lambda: None
        if fault.kind in EDITS:
            return self._edit(process, fault.kind)
        assert fault.party is not None
        if fault.kind == "kill party":
            process.kill()
            self._close(process)
            scene.start_party(fault.party)
            return lambda: None
        proxy, proxies = scene.proxy[fault.party], scene.proxies
        if fault.kind in ("cut, closed", "cut, reset"):
            if not proxy.connections:
                return None
            proxies.do(lambda: proxy.cut(reset=fault.kind == "cut, reset"))
            return lambda: None
        if fault.kind == "cut, refused":
            proxy.mode = "refused"
            proxies.do(lambda: proxy.cut(reset=True))
        else:
            proxy.mode = "black hole"
        return lambda: proxies.do(proxy.mend)

    def _edit(self, coordinator: Process, kind: Kind) -> Callable[[], None] | None:
        """Change the files under a killed coordinator, unless it is too early, or one edit is not noticed yet."""
        scene, older = self._scene, self._older
        if self._edited is not None or self._lost or older is None or self.outcome.rounds < older.rounds + 2:
            return None
        coordinator.kill()
        self._edited = edit(kind, scene.path, scene.kept.run, older)
        return lambda: None

    def _edit_was_noticed(self, coordinator: Process) -> None:
        """The coordinator that found its files changed has ended: put them back as they were."""
        assert self._edited is not None
        line, status = coordinator.last_line(), coordinator.popen.returncode
        if self._edited.word not in line or status <= 0 or len(coordinator.last_words()) != 1:
            self.outcome.violations.append(f"{self._edited.kind}: ended with status {status} and said {line[:300]}")
        self._edited.undo()
        self._edited = None

    # -- ends ------------------------------------------------------------------------------------

    def _coordinator_ended(self) -> None:
        scene, process = self._scene, self._scene.coordinator
        assert process is not None
        if self._edited is not None and not process.ended_by_us:
            self._edit_was_noticed(process)
            process.ended_by_us = True
        if self._edited is None:
            self._look_at_ledger()
        if not process.ended_by_us:
            if process.popen.returncode == 0:
                self.outcome.state = "finished"
                return
            self._note_stop(process)
            self._forbidden += FORBIDDEN in process.last_line()
            if self._given_up or self._forbidden >= _TRIES or len(self.outcome.clean_stops) > _MOST_STOPS:
                self.outcome.state = "stopped"
                return
        self._given_up = False  # killed before it had stopped
        self._close(process)
        scene.start_coordinator()

    def _party_ended(self, party: Process) -> None:
        if self._scene.coordinator is not None and party.popen.returncode == 0:
            party.ended_by_us = True  # told farewell: the coordinator's own end is about to be heard
            return
        self._note_stop(party)
        self._close(party)
        self._scene.start_party(party.name)

    def _note_stop(self, process: Process) -> None:
        line, status = process.last_line(), process.popen.returncode
        told_to = self._given_up and process is self._scene.coordinator
        interrupted = line == INTERRUPTED_LINE and status == INTERRUPTED
        clean = interrupted if told_to else is_typed_error(line) and status > 0
        if clean and len(process.last_words()) == 1:
            self.outcome.clean_stops.append(f"{process.name}: {line}")
        else:
            self.outcome.violations.append(
                f"{process.name} ended with status {status}, not with one clear line: {line[:300]}"
            )
            self.outcome.clean_stops.append(f"{process.name}: not clean")

    def _look_at_ledger(self) -> None:
        """Whatever ended the coordinator, its ledger is whole and holds every label that it held before."""
        path = self._scene.kept.ledger
        if not path.exists():
            return
        try:
            with Ledger.read(path) as ledger:
                verify(path)
                self.outcome.labels_seen.append(ledger.labels())
        except CollegiumError as error:
            if self.outcome.labels_seen:  # killed before the first entry was durable, it has none
                self.outcome.violations.append(f"the ledger after the coordinator's end: {error}")

    def _leave(self) -> None:
        """All faults are over; parties leave at the farewell, or when told to, and quickly."""
        while self._agenda:
            action = heapq.heappop(self._agenda)[2]
            if self._going_on:
                action()
        scene = self._scene
        if self.outcome.state == "hung":
            return
        for party in scene.parties.values():
            party.signal(signal.SIGCONT)
            party.signal(signal.SIGTERM)
        deadline_s = time.monotonic() + LEAVE_S
        for party in scene.parties.values():
            try:
                status = party.popen.wait(max(0.1, deadline_s - time.monotonic()))
            except Exception:
                self.outcome.violations.append(f"{party.name} did not leave within {LEAVE_S:g} s of being told to")
                party.kill()
                continue
            # What has said nothing yet, or that it has ended, no longer handles the signal.
            unhandled = status == -signal.SIGTERM and (not party.log.read_bytes() or party.last_event() == "ended")
            if status != 0 and not unhandled:
                self.outcome.violations.append(f"{party.name} left with status {status}: {party.last_line()[:300]}")

    @staticmethod
    def _close(process: Process) -> None:
        if process.popen.stdin is not None:
            process.popen.stdin.close()
