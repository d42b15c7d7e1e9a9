"""Whoever changes, drops, swaps or forges an entry is found out, and the first bad entry is named."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collegium.errors import ConfigurationError, LedgerCorrupt
from collegium.privacy.ledger.chain import Chain, Head, Row, sign
from collegium.privacy.ledger.entry import Charge, Content, Release, Settings, Terms, decode, encode
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.store import EntryStore
from collegium.privacy.ledger.verifier import Verified, verify
from collegium.privacy.renyi import PAPER_ORDERS, WIDE_ORDERS, Conversion, RenyiCurve, gaussian_curve

OpenLedger = Callable[..., Ledger]
LATER = "2100-01-01T00:00:00+00:00"
CURVE = gaussian_curve(2**0.5, 40.0, WIDE_ORDERS)
SETTINGS_AND_TERMS = 2
STRANGER = Ed25519PrivateKey.from_private_bytes(b"\x07" * 32)


def walk(rows: list[Row], public_key: bytes | None = None, head: Head | None = None) -> Verified:
    """Both implementations read these rows, and both must accept them, or refuse them for the same entry."""
    refused = re.compile(r"entry \d+")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE entries (seq INTEGER PRIMARY KEY, body, hash, signature)")
            database.executemany(
                "INSERT INTO entries VALUES (?, ?, ?, ?)", [(r.seq, r.body, r.hash, r.signature) for r in rows]
            )
            database.commit()
        chain, complaint = Chain(), None
        try:
            for row in rows:
                chain.absorb(row)
        except LedgerCorrupt as error:
            complaint = error
        try:
            found = verify(path, public_key, None if head is None else str(head))
        except LedgerCorrupt as error:
            if complaint is not None:
                assert refused.findall(str(error))[:1] == refused.findall(str(complaint))[:1]
                raise complaint from None
            assert public_key is not None or head is not None, f"the chain accepts what the verifier refuses: {error}"
            raise
    assert complaint is None, f"the verifier accepts what the chain refuses: {complaint}"
    assert found.epsilon(found.unit) == pytest.approx(chain.epsilon().epsilon, rel=1e-12)
    assert found.guarantee() == pytest.approx(chain.guarantee(), rel=1e-12)
    return found


@pytest.fixture
def rows(open_ledger: OpenLedger, path: Path) -> list[Row]:
    """Settings, terms, a charge, its labels, a charge, its labels."""
    with open_ledger() as ledger:
        for batch in range(2):
            keys = [f"pool:{batch}{index}" for index in range(3)]
            paid = ledger.charge(purpose="gnmax:release", mechanism={"sigma": 40.0}, curve=CURVE, queries=keys)
            ledger.release(paid, {key: index for index, key in enumerate(keys)})
    return EntryStore.read(path).rows()


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_of_any_entry_is_found(rows: list[Row], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from(["body", "hash", "signature"]))
    value = bytearray(getattr(rows[at], name))
    value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    forged = Row(**{**vars(rows[at]), name: bytes(value)})
    with pytest.raises(LedgerCorrupt, match=rf"^entry {at}: "):
        walk([*rows[:at], forged, *rows[at + 1 :]])


@pytest.mark.parametrize("column", ["seq", "body", "hash", "signature"])
@pytest.mark.parametrize("seq", range(6))
def test_a_field_changed_in_the_file_is_found(
    rows: list[Row], path: Path, open_ledger: OpenLedger, column: str, seq: int
) -> None:
    with closing(sqlite3.connect(path)) as vandal:
        change = {"seq": "seq + 100"}.get(column, f"CAST({column} || x'00' AS BLOB)")
        vandal.execute(f"UPDATE entries SET {column} = {change} WHERE seq = ?", (seq,))
        vandal.commit()
    with pytest.raises(LedgerCorrupt, match=rf"entry {seq}\b"):
        Ledger.read(path)
    with pytest.raises(LedgerCorrupt, match=rf"entry {seq}\b"):
        open_ledger()


@pytest.mark.parametrize("seq", range(5))
def test_a_dropped_entry_is_found(rows: list[Row], seq: int) -> None:
    with pytest.raises(LedgerCorrupt, match=f"entry {seq} is missing"):
        walk([row for row in rows if row.seq != seq])


def test_a_row_smuggled_in_before_the_first_is_found(rows: list[Row], path: Path) -> None:
    with closing(sqlite3.connect(path)) as vandal:
        vandal.execute("INSERT INTO entries VALUES (-1, x'00', x'00', x'00')")
        vandal.commit()
    with pytest.raises(LedgerCorrupt, match="entry -1"):
        Ledger.read(path)


def test_a_rewritten_chain_lacks_the_owners_signatures(rows: list[Row]) -> None:
    cheaper = rows[2].body.replace(b'"queries":3', b'"queries":1')
    assert cheaper != rows[2].body
    forged = sign(Head(1, rows[1].hash), cheaper, STRANGER)
    with pytest.raises(LedgerCorrupt, match="entry 2: its signature is not the ledger owner's"):
        walk([*rows[:2], forged])


def test_a_ledger_rewritten_under_another_key_is_found_by_whoever_knows_the_owner(
    rows: list[Row], owner: Ed25519PrivateKey
) -> None:
    first = decode(rows[0].body, None)[0]
    assert isinstance(first, Settings)
    mine = Settings(**{**vars(first), "public_key": STRANGER.public_key().public_bytes_raw()})
    forged = [sign(None, encode(mine, LATER), STRANGER)]
    forged.append(sign(Head(0, forged[0].hash), encode(Terms(), LATER), STRANGER))
    assert walk(forged).public_key == mine.public_key
    with pytest.raises(LedgerCorrupt, match="not signed with the given key"):
        walk(forged, owner.public_key().public_bytes_raw())
    assert walk(rows, owner.public_key().public_bytes_raw()).queries == 6


def test_entries_cut_off_the_end_show_against_an_earlier_head(rows: list[Row]) -> None:
    heads = [Head(row.seq, row.hash) for row in rows]
    for length in range(SETTINGS_AND_TERMS, len(rows) + 1):
        cut = rows[:length]
        assert len(walk(cut).heads) == length  # a chain alone cannot tell
        for head in heads[:length]:
            walk(cut, head=head)
        for head in heads[length:]:
            with pytest.raises(LedgerCorrupt, match=f"entry {head.seq}: .* cut or rewritten"):
                walk(cut, head=head)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (Release(2, {"pool:90": 1}), "more labels than entry 2 paid for"),
        (Release(3, {"pool:90": 1}), "which is no charge"),
        (Release(6, {"pool:90": 1}), "which is no charge"),
        (Charge("x", {}, {"record": CURVE}, 0, ""), "cannot be read"),
        (Charge("x", {}, {"record": CURVE}, 10_000, ""), "past the budget of 4"),
        (Charge("x", {}, {"record": gaussian_curve(1.0, 1.0, PAPER_ORDERS)}, 1, ""), "cannot be read"),
        (Charge("x", {}, {"party": CURVE}, 1, ""), "does not say what it costs one record"),
        (Terms(noise="seeded"), "it mixes noise"),
        (Settings("x", WIDE_ORDERS, 1e-5, Conversion.IMPROVED, b""), "settings must be the first entry"),
    ],
)
def test_even_its_owner_cannot_sign_an_entry_that_breaks_the_rules(
    rows: list[Row], owner: Ed25519PrivateKey, content: Content, what: str
) -> None:
    forged = sign(Head(5, rows[5].hash), encode(content, LATER), owner)
    with pytest.raises(LedgerCorrupt, match=rf"^entry 6: .*{what}"):
        walk([*rows, forged])


def test_even_its_owner_cannot_date_an_entry_before_an_earlier_one(rows: list[Row], owner: Ed25519PrivateKey) -> None:
    charge = Charge("x", {}, {"record": CURVE}, 1, "")
    for made, sound in (("1999-12-31T00:00:00+00:00", False), (LATER, True)):
        forged = [*rows, sign(Head(5, rows[5].hash), encode(charge, made), owner)]
        if sound:
            assert walk(forged).queries == 7
        else:
            with pytest.raises(LedgerCorrupt, match="entry 6: it is dated before the entry that it follows"):
                walk(forged)


def test_a_clock_that_is_set_back_dates_no_entry_back(open_ledger: OpenLedger) -> None:
    clock = iter([datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC), datetime(1999, 1, 1, tzinfo=UTC)])
    with open_ledger(clock=lambda: next(clock)) as ledger:
        ledger.charge(purpose="x", mechanism={}, curve=CURVE, queries=1)
        assert [entry.time_utc[:10] for entry in ledger.entries()] == ["2026-01-02"] * 3


def test_even_its_owner_cannot_relabel_a_query(rows: list[Row], owner: Ed25519PrivateKey) -> None:
    charged = sign(Head(5, rows[5].hash), encode(Charge("x", {}, {"record": CURVE}, 5, ""), LATER), owner)
    again = sign(Head(6, charged.hash), encode(Release(6, {"pool:00": 9}), LATER), owner)
    with pytest.raises(LedgerCorrupt, match=r"entry 7: .* already has one"):
        walk([*rows, charged, again])


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b"\xff", b'{"kind":"bet","time_utc":""}', b"[" * 100_000])
def test_an_entry_that_is_signed_but_means_nothing_is_refused(
    rows: list[Row], owner: Ed25519PrivateKey, body: bytes
) -> None:
    with pytest.raises(LedgerCorrupt, match=r"^entry 6: "):
        walk([*rows, sign(Head(5, rows[5].hash), body, owner)])


@given(values=st.lists(st.floats(min_value=0.0), min_size=8, max_size=8), delta=st.floats(0.0, 0.5))
def test_a_curve_is_written_and_read_back_exactly(values: list[float], delta: float) -> None:
    settings_ = Settings("x", PAPER_ORDERS, 1e-5, Conversion.IMPROVED, b"")
    curve = RenyiCurve(PAPER_ORDERS, values, delta)  # type: ignore[arg-type]
    read, _ = decode(encode(Charge("x", {"constant": 1e100}, {"party": curve}, 3, ""), LATER), settings_)
    assert isinstance(read, Charge)
    assert read.curves["party"].values.tobytes() == curve.values.tobytes()
    assert (read.curves["party"].delta, dict(read.mechanism)) == (delta, {"constant": 1e100})


def test_the_hash_covers_the_purpose_the_number_and_the_hash_before() -> None:
    body = json.dumps({}).encode()
    same_body = {
        sign(head, body, None).hash for head in (None, Head(0, bytes(32)), Head(1, bytes(32)), Head(0, b"\1" * 32))
    }
    assert len(same_body) == 4
    # Fixed for good: SHA-256 of purpose, 32 zero bytes, number 0 in 8 bytes, SHA-256 of body.
    assert sign(None, body, None).hash.hex() == "ad802f102e3228bea8baec19919e54f7b10bde46a459384e3913b2e16a7c093c"


@pytest.mark.parametrize("text", ["", "12", "12:", "x:" + "00" * 32, "-1:" + "00" * 32, "1:" + "00" * 31])
def test_a_malformed_head_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="head looks like"):
        Head.parse(text)


def test_a_head_reads_back_what_it_prints() -> None:
    head = Head(12, bytes(range(32)))
    assert Head.parse(str(head)) == head
