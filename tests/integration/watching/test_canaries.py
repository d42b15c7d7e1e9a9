"""No vote, seed, key or code in anything that a watched run says or leaves: logs, pages, metrics, errors, files.

The secrets are those of a real run: what its parties voted, their sums, the seeds and keys that each drew for each
secure sum, the private keys on their disks, the keys that split their records, and their join codes.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from numpy.typing import NDArray
from support.canaries import Canaries
from support.watched import NAMES, Consortium

from collegium.coordinator.run.coordinator import Progress
from collegium.coordinator.run.run_folder import read_labels
from collegium.coordinator.service.peer_events import SessionEvent
from collegium.coordinator.settings.run_config import load_public
from collegium.data import array_spec
from collegium.errors import Refused
from collegium.logs import LogFormat, configure_logging
from collegium.parties.teachers.splits import KEY_FILE
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.messages import Request
from collegium.protocol.question import PoolRange, QuestionTerms
from collegium.protocol.replies import Counts
from collegium.protocol.requests import Ask

TEACHERS = 60
PLACES = ("", "status.json", "metrics", "healthz")
KEY_BYTES = 32


@dataclass
class Leaks:
    """What a careless program would do with a secret; here nothing."""

    of_drawn_bytes: Callable[[bytes], None] = lambda drawn: None
    on_page: Callable[[dict[str, Any]], dict[str, Any]] = lambda shown: shown
    in_record: Callable[[Path], None] = lambda run_json: None


class Run:
    """A watched run to its end, with its secrets beside everything that it said.

    Its teachers have three records each and disagree, so that the votes of a party are no row of zeros.
    """

    def __init__(self, folder: Path) -> None:
        self.canaries, self.said, self.leaks = Canaries(), dict[str, bytes](), Leaks()
        self._refused = iter([True])
        self.consortium = Consortium(
            folder,
            per_party=TEACHERS,
            options_of_parties={"policy": self._refuse_once, "random_bytes": self._draw},
            on_page=lambda shown: self.leaks.on_page(shown),
        )

    def go(self) -> None:
        lines, text = io.StringIO(), io.StringIO()
        with _logging(lines, text):
            try:
                self.consortium.run(self._look)
            finally:
                self.consortium.close()
        self.said |= {"log as JSON": lines.getvalue().encode(), "log as text": text.getvalue().encode()}
        for member in self.consortium.members.values():
            self.said["what parties ended with"] = repr(member.ended).encode()
        self.leaks.in_record(self.consortium.served / "run" / "run.json")
        self._note_files()

    def found(self) -> list[str]:
        return self.canaries.found_in(self.said)

    def _look(self, step: Progress) -> None:
        if step.step == "ended":
            self._note_votes()
        if step.step in ("listening", "votes", "labels", "student", "ended"):
            for place in PLACES:
                self.said[f"/{place} at {step.step}"] = self.consortium.get(place).encode()

    def _refuse_once(self, request: Request) -> None:
        """The policy of every party: one of them refuses one request for votes, and says why."""
        if isinstance(request.body, Ask) and next(self._refused, False):
            raise Refused("policy: the tests' party refuses once")

    def _draw(self, size: int) -> bytes:
        """The parties' random bytes: keys and seeds have 32 of them, and a longer draw hides the shares of such."""
        drawn = os.urandom(size)
        if size >= KEY_BYTES:
            self.canaries.data[f"drawn bytes {len(self.canaries.data)}"] = drawn
        self.leaks.of_drawn_bytes(drawn)
        return drawn

    def _note_votes(self) -> None:
        """Ask each party again, now in the clear, what it voted in the run, and add up what may have been summed."""
        config = self.consortium.config.run
        pool, labels = load_public(config, None).pool.x, read_labels(self.consortium.served / "run" / "labels.csv")
        asked = CastVotes(
            QuestionTerms("gnmax", {"sigma": 40.0}, sum_mode="clear"),
            "ledger",
            config.teachers,
            PoolRange(array_spec(pool).sha256, tuple(index for index, _ in labels)),
            len(config.task.classes),
        )
        votes = {}
        for name, member in self.consortium.members.items():
            answer = member.parties[-1].handle(Request(f"again-{name}", "again", Ask("again", asked))).body
            assert isinstance(answer, Counts) and (answer.counts.sum(axis=1) == TEACHERS).all(), answer
            votes[name] = answer.counts
        self.canaries.counts |= {f"votes of {name}": counts[_telling(counts)] for name, counts in votes.items()}
        for size in (2, 3):
            for some in itertools.combinations(votes, size):
                total = np.sum([votes[name] for name in some], axis=0)
                self.canaries.counts[f"sum of {' and '.join(some)}"] = total[_telling(total)]

    def _note_files(self) -> None:
        """Keys become secrets; whatever else lies in the coordinator's and in the run's folder must not show them."""
        served = self.consortium.served
        for place in (served / "authority", served / "coordinator", *(self.consortium.folder / n for n in NAMES)):
            for path in (path for path in place.rglob("*") if path.is_file()):
                content = path.read_bytes()
                if path.name == KEY_FILE:
                    self.canaries.data[f"split key of {place.name}"] = content
                elif b"PRIVATE KEY" in content:
                    self.canaries.data[f"{path.name} of {place.name}"] = _secret_of(content)
        self.canaries.texts |= {f"join code {n}": code for n, code in enumerate(self.consortium.codes)}
        for path in served.rglob("*"):
            if path.is_file() and b"PRIVATE KEY" not in path.read_bytes():
                self.said[str(path.relative_to(served))] = path.read_bytes()


def _telling(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows can be told from chance by each of their halves: at least two counts there are not 0."""
    return np.asarray([(counts[:, half] > 0).sum(axis=1) >= 2 for half in (slice(5), slice(5, 10))]).all(axis=0)


def _secret_of(pem: bytes) -> bytes:
    """The 32 bytes that a private key consists of."""
    key = load_pem_private_key(pem, None)
    if isinstance(key, Ed25519PrivateKey):
        return key.private_bytes_raw()
    assert isinstance(key, EllipticCurvePrivateKey)
    return key.private_numbers().private_value.to_bytes(32, "big")


@contextmanager
def _logging(lines: io.StringIO, text: io.StringIO) -> Iterator[None]:
    """Everything from INFO on, in both forms."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers.clear()
    configure_logging(LogFormat.JSON, lines)
    second = root.handlers[:]
    root.handlers.clear()
    configure_logging(LogFormat.TEXT, text)
    root.handlers += second
    try:
        yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_nothing_that_a_run_says_or_leaves_holds_a_vote_a_seed_a_key_or_a_code(run: Run) -> None:
    run.go()
    # What was looked for, and where: an empty search would find nothing either.
    names = [*run.canaries.data, *run.canaries.texts, *run.canaries.counts]
    assert all(len(rows) >= 3 for rows in run.canaries.counts.values())
    for kind in ("split key of ash", "signing", "join code", "votes of ash", "sum of ash and birch and cedar"):
        assert any(name.startswith(kind) for name in names), (kind, names)
    # Three parties drew two keys, a nonce, a seed and the coefficients of their shares, in at least two rounds.
    assert sum(name.startswith("drawn bytes") for name in names) >= 3 * 2 * 5
    said = set(run.said)
    assert {"run/run.json", "run/labels.csv", "run/report.html", "ledger.sqlite", "members.json"} <= said
    assert {"/status.json at votes", "/ at labels", "/metrics at ended", "log as JSON", "log as text"} <= said
    assert b"refuses once" in run.said["log as text"] and b"3 are needed" in run.said["log as JSON"]
    assert run.found() == []


def test_planted_leaks_are_found_in_the_log_on_the_page_and_in_run_json(run: Run) -> None:
    def tell(drawn: bytes) -> None:
        logging.getLogger("collegium.party").info("drew %s", drawn.hex())

    def with_votes(shown: dict[str, Any]) -> dict[str, Any]:
        noted = run.canaries.counts.get("votes of birch")
        return shown if noted is None else shown | {"histogram": noted[0].tolist()}

    def with_sum(run_json: Path) -> None:
        record = json.loads(run_json.read_text())
        total = run.canaries.counts["sum of ash and birch and cedar"]
        record["rounds"][-1]["failed"]["sum"] = base64.b64encode(total.tobytes()).decode()
        run_json.write_text(json.dumps(record))

    run.leaks = Leaks(tell, with_votes, with_sum)
    run.go()
    found = run.found()
    for secret, place in (
        ("drawn bytes", "log as JSON"),
        ("drawn bytes", "log as text"),
        ("votes of birch", "/status.json"),
        ("sum of ash and birch and cedar", "run/run.json"),
    ):
        assert any(leak.startswith(secret) and leak.partition(" in ")[2].startswith(place) for leak in found), found


@pytest.mark.parametrize(
    "written",
    [
        lambda key, row: key.hex().encode(),
        lambda key, row: b"x" + base64.b64encode(b"12" + key + b"345"),
        lambda key, row: base64.urlsafe_b64encode(b"1" + key),
        lambda key, row: base64.encodebytes(b"abc" * 11 + key),
        lambda key, row: repr(key).encode(),
        lambda key, row: str(list(key)).encode(),
        lambda key, row: b"--" + key[:16],
        lambda key, row: repr(row).encode(),
        lambda key, row: str(row.tolist()).encode(),
        lambda key, row: str(row.astype(float)).encode(),
        lambda key, row: ",".join(map(str, row)).encode(),
        lambda key, row: b"\0" + row.astype("<u2").tobytes(),
        lambda key, row: base64.b64encode(row.tobytes()),
    ],
)
def test_every_usual_form_of_a_secret_is_found(written: Callable[[bytes, Any], bytes]) -> None:
    key, row = np.random.default_rng(1).bytes(32), np.random.default_rng(2).integers(50, 200, 10)
    canaries = Canaries({"key": key}, {}, {"row": row[None]})
    assert canaries.found_in({"a file": b"before " + written(key, row) + b" after"})
    assert canaries.found_in({"a file": b"before and after"}) == []


def test_an_event_of_a_session_shows_no_more_than_its_names() -> None:
    assert set(SessionEvent.__dataclass_fields__) == {"kind", "party", "peer", "detail", "code"}
