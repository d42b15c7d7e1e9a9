"""`collegium party serve` against a coordinator that listens: what is wrong with the party ends it with one line.

A wrong authority, a stranger, another protocol version and a missing label column are tested in
`sessions/test_party_command.py` in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.processes import COMMAND_S, command, start_collegium
from support.runs import toml

from collegium.clock import utc_now
from collegium.coordinator.rounds.readiness import send_pool
from collegium.coordinator.service.sessions import GrpcParties
from collegium.data import array_spec
from collegium.data.task import Task, TeacherSettings
from collegium.data.values import PoolState
from collegium.errors import PoolMismatch
from collegium.protocol.certificates import Authority
from collegium.protocol.identities import AUTHORITY, CERTIFICATE, create_identity, issue_kit
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.question import PoolRange, QuestionTerms
from collegium.protocol.replies import Failure
from collegium.protocol.requests import Ask, HoldPool
from collegium.protocol.roster import Roster

TASK = Task.model_validate({"classes": ["no", "yes"], "inputs": {"kind": "image", "height": 2, "width": 2}})
POOL = np.arange(40, dtype=np.uint8).reshape(10, 2, 2, 1)


@dataclass(frozen=True)
class Consortium:
    """A coordinator that listens for one party, whose records and credentials are in ``folder``."""

    folder: Path
    authority: Authority
    parties: GrpcParties
    port: int

    def config(self, **changes: object) -> Path:
        path = self.folder / "party.toml"
        settings: dict[str, object] = {
            "coordinator": f"localhost:{self.port}",
            "credentials": "ash",
            "folder": "kept",
            "policy": "policy.toml",
            "data": {"source": self.folder / "records.npz", "one_row_each": True},
        }
        path.write_text("\n".join(f"{key} = {toml(value)}" for key, value in (settings | changes).items()) + "\n")
        return path


@pytest.fixture
def consortium(tmp_path: Path) -> Iterator[Consortium]:
    authority = Authority.create("oaks")
    hub = issue_kit(authority, tmp_path / "hub", "hub", "coordinator", hosts=["localhost"])
    ash = issue_kit(authority, tmp_path / "ash", "ash", "party")
    pools = [array_spec(POOL).sha256]
    (tmp_path / "policy.toml").write_text(f"minimum_noise_votes = 1.0\nqueries = 10\npools = {pools}\n")
    np.savez(tmp_path / "records.npz", x=np.zeros((6, 2, 2), dtype=np.uint8), y=np.array([0, 1, 0, 1, 0, 1]))
    roster = Roster.of("oaks", {"ash": ash.subject.signing_key})
    with GrpcParties(credentials=hub, roster=roster, task=TASK, run_id="run-1") as parties:
        yield Consortium(tmp_path, authority, parties, parties.start("localhost:0"))


def refused(consortium: Consortium, config: Path) -> tuple[int, str]:
    """Exit status and the last line; every line before it is the log's, with its time."""
    done = command("party", "serve", config, folder=consortium.folder)
    *log, line = done.err.splitlines()
    assert all(entry[2] == entry[5] == ":" for entry in log), done.err
    assert done.status != 0 and done.out == "" and "Traceback" not in done.err
    return done.status, line


def test_an_expired_certificate(consortium: Consortium) -> None:
    folder = consortium.folder / "late"
    request = create_identity(folder, "ash", "party")
    past = utc_now() - timedelta(days=10)
    pem = consortium.authority.issue(request, name="ash", role="party", days=9, now=past)
    (folder / CERTIFICATE).write_bytes(pem)
    (folder / AUTHORITY).write_bytes(consortium.authority.pem)
    status, line = refused(consortium, consortium.config(credentials="late"))
    assert status == 4 and line.startswith("IdentityError:") and "expired on" in line, line


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ({"x": np.zeros((0, 2, 2), dtype=np.uint8), "y": np.zeros(0, dtype=int)}, ["no records"]),
        ({"x": np.zeros((4, 2, 2), dtype=np.uint8), "y": np.array(["no", "yes", "perhaps", "no"])}, ["perhaps"]),
        ({"x": np.array([[[{}, {}], [{}, {}]]], dtype=object), "y": np.zeros(1, dtype=int)}, ["pickled"]),
    ],
    ids=["no record", "unknown class", "pickled objects"],
)
def test_records_that_do_not_fit(records: dict[str, NDArray[Any]], words: list[str], consortium: Consortium) -> None:
    np.savez(consortium.folder / "records.npz", **records)
    status, line = refused(consortium, consortium.config())
    assert status == 3 and line.startswith("DataError:") and all(word in line for word in words), line


def test_a_pool_whose_digest_differs_and_votes_on_a_pool_that_is_not_there(consortium: Consortium) -> None:
    process = start_collegium("party", "serve", consortium.config(), folder=consortium.folder)
    try:
        consortium.parties.wait_for(["ash"], timeout_s=COMMAND_S)
        spec = array_spec(POOL)
        tampered = POOL.copy()
        tampered[3, 0, 0, 0] ^= 1
        sent = send_pool(consortium.parties, ["ash"], tampered, spec, timeout_s=COMMAND_S)["ash"]
        assert isinstance(sent, Failure) and isinstance(sent.error(), PoolMismatch), sent
        held = consortium.parties.ask({"ash": HoldPool(spec)}, timeout_s=COMMAND_S)["ash"]
        assert isinstance(held, PoolState) and not held.complete
        terms = QuestionTerms("gnmax", {"sigma": 40.0}, "replace", "masked")
        asked = PoolRange(spec.sha256, (0, 1))
        question = CastVotes(terms, "ledger", TeacherSettings(kind="constant"), asked, len(TASK.classes))
        votes = consortium.parties.ask({"ash": Ask("round-1", question)}, timeout_s=COMMAND_S)["ash"]
        assert isinstance(votes, Failure) and isinstance(votes.error(), PoolMismatch), votes
        assert send_pool(consortium.parties, ["ash"], POOL, spec, timeout_s=COMMAND_S)["ash"] == PoolState(
            spec.sha256, spec.size_bytes, complete=True
        )
        consortium.parties.farewell("enough")
        _, err = process.communicate(timeout=COMMAND_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0 and "Traceback" not in err
