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
from unit.ledger.conftest import ONE

from collegium.errors import ConfigurationError, LedgerCorrupt
from collegium.privacy.ledger.chain import Chain, Head, Row, sign
from collegium.privacy.ledger.entry import (
    Block,
    Charge,
    Content,
    Release,
    Settings,
    Terms,
    decode,
    encode,
    law_as_json,
    law_from_json,
    read_terms,
)
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.store import EntryStore
from collegium.privacy.ledger.verifier import Verified, verify
from collegium_accounting.game.laws import Law, RenyiLaw, VectorLaw
from collegium_accounting.game.winner import RoundLaw
from collegium_accounting.renyi import WIDE_ORDERS

OpenLedger = Callable[..., Ledger]
LATER = "2100-01-01T00:00:00+00:00"
SETTINGS_AND_TERMS = 2
CURVE = RenyiLaw(tuple(0.01 * order for order in WIDE_ORDERS), 1e-7)
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
            chain.settle()
        except LedgerCorrupt as error:
            complaint = error
        try:
            found = verify(path, public_key, None if head is None else str(head))
            if complaint is not None and "past the budget" in str(complaint):  # the verifier says what is forced
                terms, _ = found.periods[-1]
                assert found.bounds(terms["unit"], terms["adjacency"])[0] > float.fromhex(terms["epsilon_budget"])
                raise complaint from None
        except LedgerCorrupt as error:
            if complaint is not None:
                assert refused.findall(str(error))[0] in refused.findall(str(complaint))
                raise complaint from None
            assert public_key is not None or head is not None, f"the chain accepts what the verifier refuses: {error}"
            raise
    assert complaint is None, f"the verifier accepts what the chain refuses: {complaint}"
    least, most = found.bounds(*chain.protected(chain.terms))
    assert least * (1.0 - 1e-6) <= chain.epsilon() <= most * (1.0 + 1e-6)
    return found


@pytest.fixture
def rows(open_ledger: OpenLedger, path: Path) -> list[Row]:
    """Settings, terms, a charge, its labels, a charge, its labels."""
    with open_ledger() as ledger:
        for batch in range(2):
            keys = [f"pool:{batch}{index}" for index in range(3)]
            paid = ledger.charge("release", keys)
            ledger.release(paid, {key: index for index, key in enumerate(keys)})
    return EntryStore.read(path).rows()


@pytest.mark.slow
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
    assert walk(forged).settings["public_key"] == mine.public_key.hex()
    with pytest.raises(LedgerCorrupt, match="not signed with the given key"):
        walk(forged, owner.public_key().public_bytes_raw())
    assert walk(rows, owner.public_key().public_bytes_raw()).periods[-1][1] == 6


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
        (Release(2, {"pool:90": 1}), "labels that entry 2 does not pay for"),
        (Release(3, {"pool:90": 1}), "labels that entry 3 does not pay for"),
        (Release(6, {"pool:90": 1}), "labels that entry 6 does not pay for"),
        (Release(2, {}), "opens again what entry 2 paid for"),
        (Release(2, {}, "ab" * 32), "opens again what entry 2 paid for"),
        (Charge("release", 0, ""), "cannot be read"),
        (Charge("release", 10_000, ""), "past the budget of 4"),
        (Charge("x", 1, ""), "which the terms in force do not state"),
        (Terms(noise="seeded"), "it mixes noise"),
        (Settings("x", 1e-5, b""), "settings must be the first entry"),
    ],
)
def test_even_its_owner_cannot_sign_an_entry_that_breaks_the_rules(
    rows: list[Row], owner: Ed25519PrivateKey, content: Content, what: str
) -> None:
    forged = sign(Head(5, rows[5].hash), encode(content, LATER), owner)
    with pytest.raises(LedgerCorrupt, match=rf"^entry 6: .*{what}"):
        walk([*rows, forged])


@pytest.mark.parametrize("queries_sha256", ["", "ab" * 32])
def test_even_its_owner_cannot_open_another_sum_under_a_charge(
    rows: list[Row], owner: Ed25519PrivateKey, queries_sha256: str
) -> None:
    """Of a charge that names no queries, and of one under which labels were released."""
    charged = sign(Head(5, rows[5].hash), encode(Charge("release", 2, queries_sha256), LATER), owner)
    first = sign(Head(6, charged.hash), encode(Release(6, {"pool:90": 1}), LATER), owner)
    another = sign(Head(7, first.hash), encode(Release(6, {"pool:91": 1}, "cd" * 32), LATER), owner)
    with pytest.raises(LedgerCorrupt, match="entry 8: it opens another sum for what entry 6 paid for"):
        walk([*rows, charged, first, another])


def test_a_signature_in_a_ledger_that_states_no_key_is_refused() -> None:
    first = sign(None, encode(Settings("nobody's", 1e-5, b""), LATER), None)
    terms = encode(Terms(), LATER)
    assert walk([first, sign(Head(0, first.hash), terms, None)]).settings["public_key"] == ""
    with pytest.raises(LedgerCorrupt, match="entry 1: it is signed, in a ledger that is not"):
        walk([first, sign(Head(0, first.hash), terms, STRANGER)])


def test_even_its_owner_cannot_date_an_entry_before_an_earlier_one(rows: list[Row], owner: Ed25519PrivateKey) -> None:
    charge = Charge("release", 1, "")
    for made, sound in (("1999-12-31T00:00:00+00:00", False), (LATER, True)):
        forged = [*rows, sign(Head(5, rows[5].hash), encode(charge, made), owner)]
        if sound:
            assert walk(forged).periods[-1][1] == 7
        else:
            with pytest.raises(LedgerCorrupt, match="entry 6: it is dated before the entry that it follows"):
                walk(forged)


def test_a_clock_that_is_set_back_dates_no_entry_back(open_ledger: OpenLedger) -> None:
    clock = iter([datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC), datetime(1999, 1, 1, tzinfo=UTC)])
    with open_ledger(clock=lambda: next(clock)) as ledger:
        ledger.charge("release", 1)
        assert [entry.time_utc[:10] for entry in ledger.entries()] == ["2026-01-02"] * 3


def test_even_its_owner_cannot_relabel_a_query(rows: list[Row], owner: Ed25519PrivateKey) -> None:
    charged = sign(Head(5, rows[5].hash), encode(Charge("release", 5, ""), LATER), owner)
    again = sign(Head(6, charged.hash), encode(Release(6, {"pool:00": 9}), LATER), owner)
    with pytest.raises(LedgerCorrupt, match=r"entry 7: .* already has one"):
        walk([*rows, charged, again])


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b"\xff", b'{"kind":"bet","time_utc":""}', b"[" * 100_000])
def test_an_entry_that_is_signed_but_means_nothing_is_refused(
    rows: list[Row], owner: Ed25519PrivateKey, body: bytes
) -> None:
    with pytest.raises(LedgerCorrupt, match=r"^entry 6: "):
        walk([*rows, sign(Head(5, rows[5].hash), body, owner)])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[" * 100_000,
        b'{"kind":"terms","time_utc":""}',
        encode(Charge("release", 1, ""), LATER),
        encode(Release(2, {"pool:90": 1}), LATER),
    ],
)
def test_a_party_that_is_shown_a_line_in_place_of_terms_refuses_it(line: bytes) -> None:
    assert read_terms(encode(Terms(), LATER)) == Terms()
    with pytest.raises(LedgerCorrupt, match="states no terms that can be read"):
        read_terms(line)


def test_a_ledger_of_another_format_is_not_read_as_one_of_this() -> None:
    older = encode(Settings("x", 1e-5, b""), LATER).replace(b'"format":5', b'"format":4')
    with pytest.raises(LedgerCorrupt, match="has format 4, this version of collegium reads 5"):
        decode(older, None)


@pytest.mark.parametrize(
    ("law", "change"),
    [
        (ONE, {"kind": "free"}),
        (ONE, {"mu": (0.0).hex()}),
        (ONE, {"mu": "inf"}),
        (ONE, {"slack": (-0.5).hex()}),
        (ONE, {"copies": 0}),
        (CURVE, {"orders": [order.hex() for order in WIDE_ORDERS[::-1]]}),
        (CURVE, {"values": [(-1.0).hex()] * len(WIDE_ORDERS)}),
        (CURVE, {"values": []}),
        (CURVE, {"delta": (-1e-6).hex()}),
    ],
)
def test_a_cost_that_is_no_law_or_pays_something_back_is_not_read(law: Law, change: dict[str, object]) -> None:
    assert law_from_json(law_as_json(law)) == law
    with pytest.raises(LedgerCorrupt, match="states no law that this version of collegium knows"):
        law_from_json(law_as_json(law) | change)


@pytest.mark.parametrize(
    ("blocks", "charge", "what"),
    [
        ({"release": Block({"party": ONE})}, Charge("release", 1, ""), "does not say what it costs one record"),
        ({"release": Block({"record": ONE}, 7)}, Charge("release", 8, ""), "it charges more than"),
        ({"whole": Block({"record": ONE}, 2), "free": Block({})}, Charge("free", 1, ""), "the .*run is not paid for"),
    ],
)
def test_a_charge_that_its_terms_do_not_cover_is_refused(
    rows: list[Row], owner: Ed25519PrivateKey, blocks: dict[str, Block], charge: Charge, what: str
) -> None:
    stated = sign(Head(5, rows[5].hash), encode(Terms(epsilon_budget=4.0, blocks=blocks), LATER), owner)
    forged = sign(Head(6, stated.hash), encode(charge, LATER), owner)
    with pytest.raises(LedgerCorrupt, match=rf"^entry 7: .*{what}"):
        walk([*rows, stated, forged])


_NUMBERS = st.floats(min_value=0.0, allow_nan=False)
_SCALES = st.floats(4.0, 90.0)


@given(
    law=st.one_of(
        st.builds(VectorLaw, st.floats(1e-6, 1e6), st.floats(0.0, 1.0)),
        st.builds(RenyiLaw, st.lists(_NUMBERS, min_size=68, max_size=68).map(tuple), st.floats(0.0, 0.5)),
        st.builds(RoundLaw, st.sampled_from(["discrete-gaussian", "discrete-laplace", "gumbel"]), _SCALES),
    ),
    rounds=st.one_of(st.none(), st.integers(0, 10**6)),
)
def test_a_law_is_written_and_read_back_exactly(law: Law, rounds: int | None) -> None:
    terms = Terms(blocks={"release": Block({"record": law}, rounds), "free": Block({})}, mechanism={"constant": 1e100})
    assert decode(encode(terms, LATER), Settings("x", 1e-5, b""))[0] == terms


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
