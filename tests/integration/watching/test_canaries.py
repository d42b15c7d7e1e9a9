"""No vote, seed, key or code in anything that a watched run says or leaves: logs, pages, metrics, errors, files.

The secrets are those of a real run: what its parties voted, their sums, the seeds and keys that each drew for each
secure sum, the private keys on their disks, the keys that split their records, and their join codes.
"""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from support.canaries import Canaries
from support.watched import NAMES, Consortium

from collegium.coordinator.rounds import masked_sum as masked
from collegium.coordinator.run import run_record
from collegium.coordinator.run.coordinator import Progress
from collegium.coordinator.service.party_servicer import SessionEvent
from collegium.coordinator.watching.snapshot import Snapshots
from collegium.errors import Refused
from collegium.logs import LogFormat, configure_logging
from collegium.parties import party as party_module
from collegium.parties.handlers import CastVotesHandler
from collegium.parties.teachers.splits import KEY_FILE
from collegium.protocol.secure_sum import party as sum_party

TEACHERS = 997
PLACES = ("", "status.json", "metrics", "healthz")


class Fitted:
    """Stands for so many teachers, whose votes the test gives."""

    reused = TEACHERS

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __len__(self) -> int:
        return TEACHERS


class Run:
    """A watched run to its end, with its secrets beside everything that it said."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.canaries, self.said = Canaries(), dict[str, bytes]()
        self.consortium = Consortium(folder, per_party=TEACHERS)
        self._note_votes(monkeypatch)
        self._note_seeds(monkeypatch)

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
        self._note_files()

    def found(self) -> list[str]:
        return self.canaries.found_in(self.said)

    def _look(self, step: Progress) -> None:
        if step.step in ("listening", "votes", "labels", "student", "ended"):
            for place in PLACES:
                self.said[f"/{place} at {step.step}"] = self.consortium.get(place).encode()

    def _note_votes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Parties vote in patterns of three digits per class; one refuses once, and says why."""
        generator = np.random.default_rng(8)
        refused = iter([True])

        def votes(handler: CastVotesHandler, body: Any) -> Any:
            if next(refused, False):
                raise Refused("policy: the tests' party refuses once")
            shares = generator.dirichlet(np.full(10, 30.0), size=len(body.inputs.indices))
            counts = np.floor(shares * TEACHERS).astype(np.int64)
            counts[:, 0] += TEACHERS - counts.sum(axis=1)
            self.canaries.counts[f"votes {len(self.canaries.counts)}"] = counts
            return counts

        monkeypatch.setattr(party_module, "TeacherEnsemble", Fitted)
        monkeypatch.setattr(CastVotesHandler, "_votes", votes)
        honest = masked.MaskedSum.sum_votes

        def sum_votes(summing: Any, *arguments: Any, **options: Any) -> Any:
            result = honest(summing, *arguments, **options)
            self.canaries.counts[f"sum {len(self.canaries.counts)}"] = result.counts
            return result

        monkeypatch.setattr(masked.MaskedSum, "sum_votes", sum_votes)

    def _note_seeds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest, data = sum_party._Secrets.__init__, self.canaries.data

        def noted(secrets: Any, random_bytes: Callable[[int], bytes]) -> None:
            honest(secrets, random_bytes)
            number = len(data)
            data[f"channel key {number}"] = secrets.channel.private_bytes_raw()
            data[f"mask key {number}"] = secrets.mask_bytes
            data[f"self-mask seed {number}"] = secrets.self_seed

        monkeypatch.setattr(sum_party._Secrets, "__init__", noted)

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
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


def test_nothing_that_a_run_says_or_leaves_holds_a_vote_a_seed_a_key_or_a_code(run: Run) -> None:
    run.go()
    # What was looked for, and where: an empty search would find nothing either.
    names = " ".join([*run.canaries.data, *run.canaries.texts, *run.canaries.counts])
    for kind in (
        "channel key",
        "mask key",
        "self-mask seed",
        "split key of ash",
        "signing",
        "join code",
        "votes",
        "sum",
    ):
        assert kind in names, (kind, names)
    assert sum(name.startswith("votes") for name in run.canaries.counts) >= 4
    said = set(run.said)
    assert {"run/run.json", "run/labels.csv", "run/report.html", "run/ledger.sqlite", "members.json"} <= said
    assert {"/status.json at votes", "/ at labels", "/metrics at ended", "log as JSON", "log as text"} <= said
    assert b"refuses once" in run.said["log as text"] and b"3 are needed" in run.said["log as JSON"]
    assert run.found() == []


def test_planted_leaks_are_found_in_the_log_on_the_page_and_in_run_json(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget, make, round_done = sum_party.PartySum._forget, Snapshots._make, run_record.round_done

    def forget_aloud(summing: Any) -> None:
        if summing._secrets is not None:
            logging.getLogger("collegium.party").info("done: %s", summing._secrets.self_seed.hex())
        forget(summing)

    def make_with_votes(snapshots: Any) -> dict[str, Any]:
        votes = [counts for name, counts in run.canaries.counts.items() if name.startswith("votes")]
        return make(snapshots) | {"histogram": votes[-1][0].tolist() if votes else []}

    def note_with_sum(record: Any, name: str, queries: int, result: Any, seconds: float) -> None:
        round_done(record, name, queries, result, seconds)
        record["rounds"][-1]["sum"] = base64.b64encode(result.counts.tobytes()).decode()

    monkeypatch.setattr(sum_party.PartySum, "_forget", forget_aloud)
    monkeypatch.setattr(Snapshots, "_make", make_with_votes)
    monkeypatch.setattr(run_record, "round_done", note_with_sum)
    run.go()
    found = run.found()
    for secret, place in (
        ("self-mask seed", "log as JSON"),
        ("self-mask seed", "log as text"),
        ("votes", "/status.json"),
        ("sum", "run/run.json"),
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
