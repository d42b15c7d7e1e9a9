"""What a party keeps of the coordinator's ledger, and what it refuses to follow."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.party_requests import Asker, cast

from collegium.data.values import ArraySpec
from collegium.errors import LedgerRefused
from collegium.parties.answer_book import FILE, AnswerBook
from collegium.parties.known_ledger import KnownLedger
from collegium.parties.party import Party
from collegium.parties.policy import PolicyConfig
from collegium.privacy.ledger.chain import Head, following
from collegium.protocol.messages import Request
from collegium.protocol.replies import Failure, LedgerHead, Prepared
from collegium.protocol.requests import Describe, ShowLedger

DIGESTS = [hashlib.sha256(b"entry %d" % number).digest() for number in range(6)]


def book(folder: Path) -> AnswerBook:
    return AnswerBook(folder, "alpha", PolicyConfig(), None)


def head(entries: int, digests: list[bytes] = DIGESTS) -> str:
    reached: Head | None = None
    for digest in digests[:entries]:
        reached = following(reached, digest)
    return "" if reached is None else str(reached)


def show(ledger: KnownLedger, after: str, *digests: bytes) -> str:
    return ledger(Request("id", "run", ShowLedger(after, digests))).head


def test_a_party_follows_the_chain_and_remembers_where_it_is(tmp_path: Path) -> None:
    ledger = KnownLedger(book(tmp_path))
    assert ledger.head() is None
    assert show(ledger, "", *DIGESTS[:2]) == head(2)
    assert show(ledger, head(2), *DIGESTS[2:5]) == head(5) == show(ledger, head(5))
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert show(KnownLedger(book(tmp_path)), head(5), DIGESTS[5]) == head(6)


@pytest.mark.parametrize(
    ("after", "digests"),
    [
        (head(2), DIGESTS[2:4]),  # an older copy of the ledger
        (head(3), []),
        ("", []),
        ("", DIGESTS),  # the whole chain again: it was shown already
        (head(4, DIGESTS[::-1]), DIGESTS[:1]),  # another ledger
        (head(5), []),  # a later entry that this party never saw
    ],
)
def test_a_chain_without_the_kept_head_is_refused_and_the_head_stays(
    tmp_path: Path, after: str, digests: list[bytes]
) -> None:
    ledger = KnownLedger(book(tmp_path))
    show(ledger, "", *DIGESTS[:4])
    with pytest.raises(LedgerRefused):
        show(ledger, after, *digests)
    assert str(ledger.head()) == head(4) == str(KnownLedger(book(tmp_path)).head())


def test_a_reply_that_was_lost_is_given_again_after_a_restart_too(tmp_path: Path) -> None:
    shown = Request("one", "run", ShowLedger("", tuple(DIGESTS[:4])))
    assert KnownLedger(book(tmp_path))(shown).head == head(4)
    again = KnownLedger(book(tmp_path))
    assert again(Request("other", "run", shown.body)).head == head(4) == str(again.head())


def test_votes_are_refused_from_a_wrong_chain_until_the_right_one_is_shown(
    make_party: Callable[..., Party], pool: ArraySpec, tmp_path: Path
) -> None:
    party = make_party(ledger=KnownLedger(book(tmp_path)))
    ask, votes = Asker(party), cast(pool, (0, 1), sum_mode="masked")
    assert ask(ShowLedger("", tuple(DIGESTS[:4]))) == LedgerHead(head(4))
    assert isinstance(ask(votes), Prepared)
    wrong = ask(ShowLedger(head(2), tuple(DIGESTS[2:])))
    assert isinstance(wrong, Failure) and wrong.code == "refused-ledger"
    refused = ask(votes)
    assert isinstance(refused, Failure) and refused.code == "refused-ledger"
    assert ask(ShowLedger(head(4), (DIGESTS[4],))) == LedgerHead(head(5)) == LedgerHead(ask(Describe()).ledger_head)
    assert isinstance(ask(votes), Prepared)


def test_an_institution_agrees_to_a_new_ledger_while_it_serves(
    make_party: Callable[..., Party], pool: ArraySpec, tmp_path: Path
) -> None:
    party = make_party(ledger=KnownLedger(book(tmp_path)))
    ask, votes = Asker(party), cast(pool, (0, 1), sum_mode="masked")
    ask(ShowLedger("", tuple(DIGESTS[:4])))
    other = ShowLedger("", tuple(DIGESTS[::-1]))
    assert isinstance(ask(other), Failure) and isinstance(ask(votes), Failure)
    book(tmp_path).keep_head(None)  # as another process, `collegium party new-ledger`, does
    assert isinstance(ask(votes), Prepared)
    assert ask(other) == LedgerHead(head(6, DIGESTS[::-1]))
