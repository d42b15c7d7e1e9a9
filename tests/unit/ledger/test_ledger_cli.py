"""`collegium ledger show | verify` as a user types them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.typist import typed

from collegium.privacy.ledger import verification
from collegium.privacy.ledger.chain import Head
from collegium.privacy.ledger.entry import Block
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.spending import Spending
from collegium.privacy.ledger.steps import Step
from collegium.privacy.ledger.verifier import Verified, verify
from collegium.privacy.ledger.witness import Witness, agreement, followed, listed
from collegium_accounting.game.laws import block_epsilon
from collegium_accounting.mechanisms import COORDINATOR, AddedBy, Unit, create

OpenLedger = Callable[..., Ledger]


def block_of(added: AddedBy) -> Block:
    """What a run with two classes states for a mechanism whose noise ``added`` says who adds."""
    mechanism = create("gnmax", sigma=40.0)
    step = Step.of(mechanism, mechanism.summed(added)[0], {"record": Unit()}, classes=2)
    return Block(step.laws, step=step)


VECTOR, WINNER = block_of(AddedBy(3)), block_of(COORDINATOR)


@pytest.fixture
def head(open_ledger: OpenLedger) -> Head:
    with open_ledger(blocks={"release": VECTOR}) as ledger:
        paid = ledger.charge("release", ["a", "b", "c"])
        ledger.release(paid, {"a": 1, "b": -1})
        return ledger.head()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return typed(capsys, "ledger", *arguments)


def test_show_lists_charges_and_releases(path: Path, head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "show", str(path.parent))
    assert status == 0
    assert "five hospitals" in out
    assert "release" in out
    assert f"head {head}" in out


def test_show_as_json_holds_every_charge_and_no_label(
    path: Path, head: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, "show", str(path), "--json")
    shown = json.loads(out)
    terms, charge, release = shown["entries"]
    assert status == 0
    assert (terms["kind"], terms["unit"], terms["epsilon_budget"]) == ("terms", "record", 4.0)
    assert (charge["kind"], charge["queries"], charge["purpose"]) == ("charge", 3, "release")
    assert charge["spent"]["epsilon"] == pytest.approx(block_epsilon({VECTOR.laws["record"]: 3}, 1e-5))
    assert (release["kind"], release["charge"], release["labels"], release["abstentions"]) == ("release", 2, 2, 1)
    assert release["hash"] == head.hash.hex()


def test_verify_holds_the_ledger_against_a_key_and_a_head(
    path: Path, head: Head, owner: Ed25519PrivateKey, capsys: pytest.CaptureFixture[str]
) -> None:
    key = owner.public_key().public_bytes_raw().hex()
    status, out, _ = run(capsys, "verify", str(path), "--public-key", key, "--head", str(head), "--json")
    report = json.loads(out)
    assert status == 0
    assert (report["charges"], report["labels"], report["head"]) == (1, 2, str(head))
    assert report["public_key_checked"] and report["head_checked"]


def test_verify_without_key_or_head_says_what_it_cannot_know(
    path: Path, head: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, "verify", str(path))
    assert status == 0
    assert "compare --public-key" in out
    assert "compare --head" in out


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["--public-key", "00" * 32], 8, "LedgerCorrupt: entry 0: the ledger is not signed with the given key"),
        (["--public-key", "nonsense"], 2, "ConfigurationError: --public-key takes"),
        (["--public-key", "missing.pem"], 9, "StorageError: cannot read missing.pem"),
        (["--head", "3:" + "00" * 32], 8, "LedgerCorrupt: entry 3: printed, and cut or rewritten since"),
        (["--head", "2"], 2, "ConfigurationError: a ledger's head looks like"),
    ],
)
def test_a_failed_verification_is_one_clear_line(
    path: Path, head: Head, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, line: str
) -> None:
    code, out, err = run(capsys, "verify", str(path), *arguments)
    assert (code, out) == (status, "")
    assert err.startswith(line)
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["show", "verify"])
def test_a_missing_ledger_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, _, err = run(capsys, command, str(tmp_path))
    assert code == 9
    assert err.startswith("StorageError: no ledger at")
    assert err.count("\n") == 1


def test_verify_accuses_no_party_that_signs_while_it_walks(
    path: Path, open_ledger: OpenLedger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run goes on during the walk: it charges a batch more, and a party signs the new head."""
    party = Ed25519PrivateKey.generate()
    public, honest = party.public_key().public_bytes_raw(), verification._walked
    with open_ledger(blocks={"release": VECTOR}) as ledger:

        def batch(key: str) -> None:
            ledger.charge("release", [key])
            head = str(ledger.head())
            ledger.keep_witnesses({"alpha": Witness(public, head, party.sign(followed(head, "[]")))})

        def walked(*given: Any) -> Verified:
            found = honest(*given)
            batch("second")
            return found

        batch("first")
        monkeypatch.setattr(verification, "_walked", walked)
        status, out, err = run(capsys, "verify", str(path))
    assert (status, err) == (0, "") and "alpha to entry 2" in out


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"answers": "many"}, "what alpha agreed to: it cannot be read"),
        ({"units": {}}, "what alpha agreed to: it cannot be read"),
        ({"counted": "as I like"}, "what alpha agreed to: it states a step of a mechanism in an unknown form"),
        ({"stage": "free"}, "what alpha agreed to: gnmax has no step 'free'"),
        ({"mechanism": "not-here"}, "what alpha agreed to: "),
    ],
)
def test_verify_refuses_what_a_party_signed_and_nobody_can_read(
    path: Path, open_ledger: OpenLedger, capsys: pytest.CaptureFixture[str], change: dict[str, object], why: str
) -> None:
    """Each text is signed by the party, under a head of this ledger: what it agreed to is not known all the same."""
    party, step = Ed25519PrivateKey.generate(), VECTOR.step
    assert step is not None
    with open_ledger(blocks={"release": VECTOR}) as ledger:
        ledger.charge("release", ["one"])
        head, line = str(ledger.head()), agreement(ledger.identity().hex(), step, "masked+noised", 2)

        def signs(agreed: str) -> None:
            signature = party.sign(followed(head, agreed))
            ledger.keep_witnesses({"alpha": Witness(party.public_key().public_bytes_raw(), head, signature, agreed)})

        signs(listed({line: 1}))
        assert run(capsys, "verify", str(path))[0] == 0
        signs(json.dumps([json.loads(listed({line: 1}))[0] | change]))
    status, out, err = run(capsys, "verify", str(path))
    assert (status, out) == (8, "") and err.startswith("LedgerCorrupt: ") and why in err


@pytest.mark.slow
@pytest.mark.parametrize("block", [VECTOR, WINNER])
def test_verify_catches_a_ledger_that_counts_half_of_the_rounds(
    path: Path,
    open_ledger: OpenLedger,
    block: Block,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open_ledger(epsilon_budget=None, blocks={"release": block}) as ledger:
        ledger.charge("release", 40)
    assert run(capsys, "verify", str(path))[0] == 0
    honest = Spending.take
    monkeypatch.setattr(Spending, "take", lambda own, terms, purpose, n: honest(own, terms, purpose, n // 2))
    status, _, err = run(capsys, "verify", str(path))
    assert status == 8 and "report this" in err


@pytest.mark.slow
def test_a_signature_that_another_process_checks_is_missed_by_nobody(
    path: Path, head: Head, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verification, "_BYTES_A_PROCESS", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert run(capsys, "verify", str(path))[0] == 0
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE entries SET signature = zeroblob(64) WHERE seq = 1")
        database.commit()
    verify(path, nth=0, of=2)  # the first process cannot know
    status, _, err = run(capsys, "verify", str(path))
    assert status == 8 and err.startswith("LedgerCorrupt: entry 1: ")
