"""``python -m benchmarks.chaos.messages --faults 1000 --seed 1``: faults at the messages of every kind of question.

Institutions with their folders and a coordinator with its own in one process: a party goes away at a message, or its
reply is lost, or it is started anew; the coordinator dies before a message or after its replies. Then all are there and
the run is started again, with the next fault, until it ends. It must end with everything that was asked for, with the
charges of a run in which nothing happened, and with one sum opened for each of them. The exit status is 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from sklearn.datasets import load_wine
from sklearn.utils import shuffle

import collegium as cg
from collegium.coordinator.run.coordinator import CoordinatorRun, Reach, Storage
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.errors import CollegiumError
from collegium.privacy.ledger.entry import Charge
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.protocol.replies import Failure
from collegium.protocol.requests import SecureSumStep
from collegium.settings import validate_config

X, Y = shuffle(*load_wine(return_X_y=True), random_state=0)
POOL = 40
TASK = cg.Task.from_array(X[:POOL], classes=list("abc"))
POLICY = cg.PolicyConfig(
    minimum_noise_votes=1,
    minimum_noise_sums=0.05,
    queries=10_000,
    sum_modes=("masked", "masked+noised"),
    few_parties=True,
)
_VOTES = {
    "mechanism": {"name": "gnmax", "parameters": {"sigma": 3.0}},
    "teachers": {"kind": "random-forest", "per_party": 1, "options": {"trees": 3}},
}
_SUMS = {"votes": {"mode": "masked+noised"}, "evaluation": {"share": 0.2}, "pool_check": {"share": 0.1}}
KINDS: Mapping[str, dict[str, Any]] = {
    "class sums and counts": _SUMS,
    "noisy votes": _VOTES | {"votes": {"mode": "masked+noised"}},
    "exact votes": _VOTES | {"votes": {"mode": "masked"}},
}
"""What is asked: of all records, or of teachers whose noisy or exact sum is opened."""

Effect = Literal["party away", "reply lost", "party restarted", "coordinator killed", "coordinator killed afterwards"]
EFFECTS: tuple[Effect, ...] = (
    "party away",
    "reply lost",
    "party restarted",
    "coordinator killed",
    "coordinator killed afterwards",
)


class Killed(BaseException):
    """The coordinator's process ends."""


@dataclass
class Fault:
    """What happens when ``meets`` says yes to the messages of one step, in one start of the run.

    Parameters
    ----------
    party : whom it hits, where it hits a party.
    """

    effect: Effect
    party: str
    meets: Callable[[set[str]], bool]
    hit: bool = False


def step_of(body: Any) -> str:
    """What a message asks for: ``ask``, ``mask_input`` and so on."""
    return str(body.message.WhichOneof("phase")) if isinstance(body, SecureSumStep) else type(body).__name__.lower()


class Institutions:
    """Parties with folders of their own, and the fault that meets them in this start."""

    def __init__(self, parties: int, folder: Path) -> None:
        self.expected = [f"c-{n}" for n in range(parties)]
        self._folder, self._away = folder, ""
        self.fault: Fault | None = None
        self.opened: set[bytes] = set()
        """The sums of which some party was asked to open its shares."""
        self._all = self._started()

    def begin(self, fault: Fault | None) -> None:
        """All are there again, until the next fault."""
        self.fault, self._away = fault, ""

    def names(self) -> list[str]:
        return [name for name in self._all.names() if name != self._away]

    def ask(self, requests: Mapping[str, Any], **options: Any) -> Any:
        steps, fault = {step_of(body) for body in requests.values()}, self.fault
        now = fault if fault is not None and not fault.hit and fault.meets(steps) else None
        if now is not None:
            now.hit = True
            if now.effect == "coordinator killed":
                raise Killed
            if now.effect == "party restarted":
                self._all = self._started()
            if now.effect in ("party away", "reply lost"):
                self._away = now.party
        lost = {self._away} if now is None or now.effect != "reply lost" else set()
        replies = self._all.ask({name: body for name, body in requests.items() if name not in lost}, **options)
        if "unmask" in steps:
            self.opened |= {body.message.setup for body in requests.values()}
        if now is not None and now.effect == "coordinator killed afterwards":
            raise Killed
        return replies | dict.fromkeys(requests.keys() & {self._away}, Failure("unreachable", "away"))

    def run(self, kind: str, folder: Path) -> RunRecord:
        """Start the run, or take it up again."""
        values: dict[str, Any] = {
            "name": "local",
            "task": TASK,
            "pool": {"source": "wine"},
            "budget": {"epsilon": 60.0},
            "sums": {"rounds": 2},
            "queries": {"count": 12, "batch": 6},
            "student": {"method": "random-forest", "options": {"trees": 5}},
        }
        keys = self._all.signing_keys
        reach = Reach(self, roster=sorted(keys), signing_keys=keys)
        public = PublicData(Examples(cg.encode(X[:POOL], TASK)))
        asked = validate_config(values | KINDS[kind], RunConfig, "faults at messages")
        return CoordinatorRun(asked, reach, Storage(folder), public=public).run()

    def _started(self) -> cg.LocalParties:
        count = len(self.expected)
        records = {name: (X[POOL + n :: count], Y[POOL + n :: count]) for n, name in enumerate(self.expected)}
        return cg.LocalParties(records, TASK, policy=POLICY, folder=self._folder)


@dataclass(frozen=True)
class Ended:
    """What came of a run: what is missing of it, what it was charged, and how many sums were opened."""

    missing: tuple[str, ...]
    charges: tuple[tuple[str, int], ...]
    opened: int

    @classmethod
    def of(cls, record: RunRecord, folder: Path, institutions: Institutions) -> Ended:
        verify(folder / "ledger.sqlite")
        with Ledger.read(folder / "ledger.sqlite") as ledger:
            paid = [entry.content for entry in ledger.entries() if isinstance(entry.content, Charge)]
            labels = len(ledger.labels())
        complete = {
            "its end": record.state == "finished",
            "labels": labels == (12 if record.labels is not None and record.rounds[0].queries != 1 else POOL),
            "evaluation": record.evaluation is None or record.evaluation.measures is not None,
            "check of the pool": record.pool_check is None or record.pool_check.found is not None,
            "settled sums": not list(folder.glob("open-sum-*")),
        }
        missing = tuple(name for name, there in complete.items() if not there)
        return cls(missing, tuple(sorted((one.purpose, one.queries) for one in paid)), len(institutions.opened))


@cache
def undisturbed(kind: str, parties: int) -> tuple[Ended, int]:
    """What comes of a run in which nothing happens, and its steps."""
    with tempfile.TemporaryDirectory() as folder:
        institutions, counted = Institutions(parties, Path(folder) / "parties"), [0]

        def count(_: set[str]) -> bool:
            counted[0] += 1
            return False

        institutions.begin(Fault("party away", "", count))
        record = institutions.run(kind, Path(folder) / "run")
        return Ended.of(record, Path(folder) / "run", institutions), counted[0]


def disturbed(kind: str, parties: int, draw: random.Random, steps: int, hit: Counter[str], wanted: int) -> Ended:
    """A run in which one fault follows the other, each in a start of its own, until it ends in spite of one."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        institutions = Institutions(parties, Path(scratch) / "parties")
        while True:
            left = [draw.randrange(steps) if hit.total() < wanted else -1]

            def meets(_: set[str], left: list[int] = left) -> bool:
                left[0] -= 1
                return left[0] == -1

            fault = Fault(draw.choice(EFFECTS), f"c-{draw.randrange(parties)}", meets)
            institutions.begin(fault if left[0] >= 0 else None)
            try:
                record: RunRecord | None = institutions.run(kind, folder)
            except (Killed, CollegiumError):
                record = None
            hit[fault.effect] += fault.hit
            if record is not None:
                ended = Ended.of(record, folder, institutions)
                if not ended.missing or not fault.hit:
                    return ended


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos.messages", description=__doc__)
    parser.add_argument("--faults", type=int, default=1000, help="how many faults have to hit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args(arguments)
    draw, hit, runs = random.Random(asked.seed), Counter[str](), Counter[str]()
    violations: list[str] = []
    while hit.total() < asked.faults:
        kind, parties = draw.choice(list(KINDS)), draw.choice((3, 4, 5))
        due, steps = undisturbed(kind, parties)
        ended = disturbed(kind, parties, draw, steps, hit, asked.faults)
        runs[f"{kind}, {parties} parties"] += 1
        if ended != due:
            violations.append(f"{kind}, {parties} parties: {ended} in place of {due}")
        print(f"{hit.total()} faults, {runs.total()} runs, {len(violations)} violations", file=sys.stderr, flush=True)
    result = {"seed": asked.seed, "faults": dict(hit), "runs": dict(runs), "violations": violations}
    if asked.json:
        print(json.dumps(result, indent=1))
    else:
        rows = [f"{name:<40}{number:>6}" for name, number in [*sorted(hit.items()), *sorted(runs.items())]]
        print("\n".join([*rows, *(violations or ["nothing was lost or paid twice"])]))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
