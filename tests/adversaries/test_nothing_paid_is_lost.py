"""One party is away, or the coordinator dies, at each message: the same sum is opened later, and is paid for once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_wine
from sklearn.utils import shuffle

import collegium as cg
from collegium.coordinator.run import coordinator as run
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.errors import QuorumNotReached
from collegium.privacy.ledger.entry import Charge
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.protocol.replies import Failure
from collegium.protocol.requests import Ask, SecureSumStep
from collegium.settings import validate_config

X, Y = shuffle(*load_wine(return_X_y=True), random_state=0)
TASK = cg.task_of(X[:20], classes=list("abc"))
POLICY = cg.PolicyConfig(
    minimum_noise_votes=1,
    minimum_noise_sums=0.05,
    queries=1000,
    sum_modes=("masked", "masked+noised"),
    few_parties=True,
)
VOTES = {"mechanism": {"name": "gnmax", "parameters": {"sigma": 3.0}}, "teachers": {"kind": "linear"}}
KINDS: Mapping[str, dict[str, Any]] = {
    "class sums and counts": {"votes": {"mode": "masked+noised"}, "evaluation": {"share": 0.2}},
    "noisy votes": VOTES | {"votes": {"mode": "masked+noised"}},
    "exact votes": VOTES | {"votes": {"mode": "masked"}},
}
PHASES = ("asked", "advertise_keys", "share_keys", "mask_input", "sign_survivors", "unmask")


class Killed(BaseException):
    """The coordinator's process ends."""


def phase_of(body: Any) -> str:
    if isinstance(body, Ask):
        return "asked"
    return str(body.message.WhichOneof("phase")) if isinstance(body, SecureSumStep) else ""


class Disturbed(cg.LocalParties):
    """At the first message of a phase, in the sum with this number, one party goes away or the coordinator dies."""

    def __init__(self, parties: int, folder: Path, phase: str = "", number: int = 1, *, dies: bool = False) -> None:
        names = [f"c-{n}" for n in range(parties)]
        records = {name: (X[20 + n :: parties], Y[20 + n :: parties]) for n, name in enumerate(names)}
        self.phase, self.number, self.dies, self.away, self.seen = phase, number, dies, "", 0
        super().__init__(records, TASK, policy=POLICY, folder=folder)

    def names(self) -> list[str]:
        return [name for name in super().names() if name != self.away]

    def ask(self, requests: Mapping[str, Any], **options: Any) -> Any:
        if self.phase and self.phase in {phase_of(body) for body in requests.values()}:
            self.seen += 1
            if self.seen == self.number:
                if self.dies:
                    raise Killed
                self.away = "c-1"
        heard = {name: body for name, body in requests.items() if name != self.away}
        missing = dict.fromkeys(requests.keys() - heard.keys(), Failure("unreachable", "away"))
        return super().ask(heard, **options) | missing


def driven(parties: Disturbed, kind: str, folder: Path) -> RunRecord:
    values: dict[str, Any] = {
        "name": "local",
        "task": TASK,
        "pool": {"source": "wine"},
        "budget": {"epsilon": 60.0},
        "queries": {"count": 12},
        "student": {"method": "random-forest", "options": {"trees": 5}},
    }
    asked = validate_config(values | KINDS[kind], RunConfig, "test")
    keys = parties.signing_keys
    reach = run.Reach(parties, roster=sorted(keys), signing_keys=keys)
    public = PublicData(Examples(cg.encode(X[:20], TASK)))
    return run.CoordinatorRun(asked, reach, run.Storage(folder), public=public).run()


def charges(folder: Path) -> list[tuple[str, int]]:
    """Of each charge its purpose, without the number that tells it from others, and how many answers it pays for."""
    verify(folder / "ledger.sqlite")
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        return sorted(
            (one.content.purpose, one.content.queries) for one in ledger.entries() if isinstance(one.content, Charge)
        )


def assert_complete(record: RunRecord, kind: str) -> None:
    assert record.state == "finished" and record.labels is not None and record.labels.stopped is None
    if kind == "class sums and counts":
        assert record.labels.answered == 20
        assert record.evaluation is not None and record.evaluation.measures is not None
    else:
        assert record.labels.answered + record.labels.abstained == 12


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, int], list[tuple[str, int]]]:
    """The charges of a run in which nothing happens, by kind and number of parties."""
    known = {}
    for kind in KINDS:
        for parties in (3, 4, 5):
            folder = tmp_path_factory.mktemp("undisturbed")
            assert_complete(driven(Disturbed(parties, folder / "parties"), kind, folder / "run"), kind)
            known[kind, parties] = charges(folder / "run")
    return known


@pytest.mark.slow
@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("parties", [3, 4, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_sum_is_opened_later_and_paid_for_once(
    kind: str, parties: int, dies: bool, undisturbed: Mapping[tuple[str, int], list[tuple[str, int]]], tmp_path: Path
) -> None:
    for number in (1, 2) if kind == "class sums and counts" else (1,):
        for phase in PHASES:
            folder = tmp_path / f"{phase}-{number}"
            disturbed = Disturbed(parties, folder / "parties", phase, number, dies=dies)
            with suppress(Killed, QuorumNotReached):
                driven(disturbed, kind, folder / "run")
            assert disturbed.seen >= number, f"{phase} was not reached"
            disturbed.away, disturbed.phase = "", ""
            assert_complete(driven(disturbed, kind, folder / "run"), kind)
            assert charges(folder / "run") == undisturbed[kind, parties], (phase, number)
            assert not list((folder / "run").glob("open-sum-*"))
