"""Liars over real sessions: a coordinator that lies to five parties over gRPC, and a party that lies to it.

Every lie of the coordinator is refused by name by every party, counts and costs nothing, and the next honest sum opens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.liar import Liar, liar_over
from support.party_requests import KEY, cast
from support.waiting import PATIENCE_S

from collegium.coordinator.service.sessions import GrpcParties
from collegium.data import Examples, PoolStore, array_spec
from collegium.data.task import ImageInputs, Task, TeacherSettings
from collegium.data.values import PoolChunk
from collegium.errors import QuorumNotReached
from collegium.parties.answer_book import AnswerBook
from collegium.parties.known_ledger import KnownLedger
from collegium.parties.known_roster import KnownRoster
from collegium.parties.party import Party
from collegium.parties.policy import Policy, PolicyConfig
from collegium.parties.session import PartySession
from collegium.parties.summing import Membership
from collegium.protocol.certificates import Authority
from collegium.protocol.identities import Credentials, issue_kit
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.messages import Reply, Request
from collegium.protocol.question import QuestionTerms
from collegium.protocol.replies import Failure, LedgerHead, SecureSumAnswer
from collegium.protocol.requests import Ask, HoldPool, SecureSumStep, ShowLedger
from collegium.protocol.roster import Roster, RosterEntry

pytestmark = pytest.mark.slow
NAMES = ("ash", "birch", "cedar", "fir", "oak", "yew")
LIES = "yew"
"""The party that lies in some tests."""
HONEST = NAMES[:-1]
TASK = Task(classes=("a", "b"), inputs=ImageInputs(height=4, width=4))
X = np.random.default_rng(5).integers(0, 16, (400, 4, 4, 1)).astype(np.uint8)
POOL = array_spec(X)
POLICY = PolicyConfig(
    mechanisms=("lnmax",), minimum_noise_votes=15.0, sum_modes=("masked",), queries=300, pools=(POOL.sha256,)
)
LINEAR = TeacherSettings(kind="linear", per_party=3, options={"steps": 5})
votes = partial(cast, classes=2, settings=LINEAR, sum_mode="masked")
Twist = Callable[[Request, Reply], Reply]


def truthful(request: Request, reply: Reply) -> Reply:
    return reply


class Twisted:
    """A real party whose replies are changed on their way out."""

    def __init__(self, party: Party) -> None:
        self.party, self.twist = party, truthful

    def handle(self, request: Request) -> Reply:
        return self.twist(request, self.party.handle(request))


@dataclass
class Consortium:
    """Six parties that attend over gRPC, and a coordinator that asks them for what it likes."""

    folder: Path
    authority: Authority
    hub: GrpcParties
    roster: Roster
    accounts: dict[str, AnswerBook]
    known: dict[str, KnownRoster]
    parties: dict[str, Twisted] = field(default_factory=dict)
    asked: int = 0

    def liar(self, roster: Roster | None = None) -> Liar:
        return liar_over(self.hub, (roster or self.roster).signing_keys())

    def fresh(self, number: int = 2) -> tuple[int, ...]:
        """Positions of the pool that nobody was asked about."""
        self.asked += number
        return tuple(range(self.asked - number, self.asked))

    def honest_sum(self, *, lying: bool = False) -> tuple[str, ...]:
        """The parties in a sum as it should be; with ``lying`` everybody but the liar gives right votes."""
        result = self.liar().total(votes(POOL, self.fresh()))
        rows = result.counts.sum(axis=1).tolist()
        assert lying or rows == [LINEAR.per_party * len(result.answered)] * 2
        return result.answered

    def refused(self, request: CastVotes, roster: Roster | None = None) -> dict[str, str]:
        """By whom and by which code; the sum must not open."""
        liar = self.liar(roster)
        liar.withheld = dict.fromkeys(("votes", "advertise_keys"), ("ghost",))  # who is not there
        with pytest.raises(QuorumNotReached):
            liar.total(request)
        return {name: code for name, code in liar.refusals().items() if name in NAMES}

    def spent(self) -> dict[str, tuple[int, object]]:
        return {name: (account.queries_answered(), account.spent()) for name, account in self.accounts.items()}


def certified(credentials: Credentials) -> RosterEntry:
    pem = credentials.certificate_pem.decode()
    return RosterEntry(signing_key=credentials.subject.signing_key.hex(), certificate_pem=pem)


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consortium]:
    folder = tmp_path_factory.mktemp("liars")
    authority = Authority.create("ours")
    hosts = ["localhost"]
    coordinator = issue_kit(authority, folder / "coordinator", "coordinator", "coordinator", hosts=hosts)
    kits = {name: issue_kit(authority, folder / name, name, "party") for name in NAMES}
    roster = Roster(consortium="ours", parties={name: certified(kit) for name, kit in kits.items()})
    sessions: list[tuple[PartySession, threading.Thread]] = []
    with GrpcParties(credentials=coordinator, roster=roster, task=TASK, run_id="run-1") as hub:
        port, made = hub.start("localhost:0"), Consortium(folder, authority, hub, roster, {}, {})
        for number, (name, kit) in enumerate(kits.items()):
            home = folder / name
            roster.save(home / "roster.json")
            known = made.known[name] = KnownRoster(
                home / "roster.json", authority.pem, vouched=NAMES, minimum_parties=3
            )
            account = made.accounts[name] = AnswerBook(home, name, POLICY, None)
            rng = np.random.default_rng(number)
            records = Examples(rng.integers(0, 16, (40, 4, 4, 1)).astype(np.uint8), rng.integers(0, 2, 40))
            party = made.parties[name] = Twisted(
                Party(
                    name,
                    records,
                    TASK,
                    folder=home,
                    pools=PoolStore(home / "pools", keep=POLICY.pools),
                    split_key=KEY,
                    policy=Policy(POLICY),
                    account=account,
                    membership=Membership(
                        "ours", known, kit.signing_key.sign, unnamed=lambda known=known: known.unnamed
                    ),
                    ledger=KnownLedger(account),
                )
            )
            session = PartySession(
                lambda task, party=party: party,
                lambda kit=kit: kit,
                f"localhost:{port}",
                on_roster=known.announced,
            )
            thread = threading.Thread(target=session.run, daemon=True)
            thread.start()
            sessions.append((session, thread))
        hub.wait_for(NAMES, timeout_s=PATIENCE_S)
        liar = made.liar()
        liar.ask(dict.fromkeys(NAMES, PoolChunk(POOL, 0, X.tobytes())))
        assert made.honest_sum() == NAMES
        yield made
        for session, _ in sessions:
            session.stop()
        for _, thread in sessions:
            thread.join(PATIENCE_S)
    for account in made.accounts.values():
        account.close()


def all_refuse(code: str) -> dict[str, str]:
    return dict.fromkeys(NAMES, code)


def test_a_pool_of_near_copies_is_refused_and_not_stored(consortium: Consortium) -> None:
    before = consortium.spent()
    near = X ^ np.uint8(1)
    spec, liar = array_spec(near), consortium.liar()
    for body in (HoldPool(spec), PoolChunk(spec, 0, near.tobytes())):
        liar.ask(dict.fromkeys(NAMES, body))
        assert liar.refusals() == all_refuse("refused-pool")
        liar.forget()
    assert consortium.refused(votes(spec, (0, 1))) == all_refuse("refused-pool")
    assert not list(consortium.folder.glob(f"*/pools/{spec.sha256}*"))
    assert consortium.spent() == before and consortium.honest_sum() == NAMES


def test_a_round_that_is_repeated_without_one_party_is_refused(consortium: Consortium) -> None:
    asked = votes(POOL, consortium.fresh())
    consortium.liar().total(asked)
    before, fewer = consortium.spent(), [name for name in NAMES if name != "oak"]
    liar = consortium.liar()
    with pytest.raises(QuorumNotReached):
        liar.total(asked, among=fewer)
    assert liar.refusals() == dict.fromkeys(fewer, "refused-queries")
    other = replace(asked, terms=QuestionTerms("lnmax", {"gamma": 0.04}, sum_mode="masked"))
    assert consortium.refused(other) == all_refuse("refused-queries")
    assert consortium.spent() == before and consortium.honest_sum() == NAMES


def test_a_roster_of_ghosts_or_with_a_swapped_key_is_not_taken_over(consortium: Consortium, tmp_path: Path) -> None:
    before = consortium.spent()
    ghost = issue_kit(consortium.authority, tmp_path / "ghost", "ghost", "party")
    oak = issue_kit(consortium.authority, tmp_path / "oak", "oak", "party")
    entries = consortium.roster.parties
    for changed in ({"ghost": ghost}, {"oak": oak}):
        admitted = {name: certified(kit) for name, kit in changed.items()}
        false = Roster(consortium="ours", parties={**entries, **admitted})
        consortium.hub.announce(false)
        refusals = consortium.refused(votes(POOL, consortium.fresh()), false)
        assert set(refusals) == set(NAMES) and set(refusals.values()) == {"unnamed-parties"}
        for known in consortium.known.values():
            assert dict(known) == consortium.roster.signing_keys()
    consortium.hub.announce(consortium.roster)
    assert consortium.spent() == before and consortium.honest_sum() == NAMES


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        (QuestionTerms("lnmax", {"gamma": 0.5}, sum_mode="masked"), "refused-noise"),
        (QuestionTerms("lnmax", {"gamma": 0.05}, sum_mode="clear"), "refused-mode"),
        (QuestionTerms("lnmax", {"gamma": 0.05, "sigma": 40.0}, sum_mode="masked"), "refused-mechanism"),
        (QuestionTerms("gnmax", {"sigma": 40.0}, sum_mode="masked"), "refused-mechanism"),
    ],
)
def test_less_noise_and_other_terms_are_refused(consortium: Consortium, terms: QuestionTerms, code: str) -> None:
    before = consortium.spent()
    asked = replace(votes(POOL, consortium.fresh()), terms=terms)
    assert consortium.refused(asked) == all_refuse(code)
    assert consortium.spent() == before and consortium.honest_sum() == NAMES


def test_an_older_ledger_is_refused_until_the_right_one_is_shown(consortium: Consortium) -> None:
    liar = consortium.liar()
    first, second = (ShowLedger("", (bytes(32),)), ShowLedger("", (bytes(32), bytes(range(32)))))
    kept = {name: reply.head for name, reply in liar.ask(dict.fromkeys(NAMES, second)).items()}  # type: ignore[union-attr]
    before = consortium.spent()
    liar.ask(dict.fromkeys(NAMES, first))
    assert liar.refusals() == all_refuse("refused-ledger")
    assert consortium.refused(votes(POOL, consortium.fresh())) == all_refuse("refused-ledger")
    assert consortium.spent() == before
    again = liar.ask({name: ShowLedger(head, ()) for name, head in kept.items()})
    assert {name: reply.head for name, reply in again.items() if isinstance(reply, LedgerHead)} == kept
    assert consortium.honest_sum() == NAMES


def in_phase(request: Request, phase: str) -> bool:
    return isinstance(request.body, SecureSumStep) and request.body.message.WhichOneof("phase") == phase


def garbage(request: Request, reply: Reply) -> Reply:
    if in_phase(request, "mask_input") and isinstance(reply.body, SecureSumAnswer):
        reply.body.message.input_masked.vector = b"\xff" * 7
    return reply


def oversize(request: Request, reply: Reply) -> Reply:
    if in_phase(request, "mask_input") and isinstance(reply.body, SecureSumAnswer):
        reply.body.message.input_masked.vector *= 2_000_000  # above what a message of a party may have
    return reply


def wrong_shares(request: Request, reply: Reply) -> Reply:
    if in_phase(request, "unmask") and isinstance(reply.body, SecureSumAnswer):
        shares = reply.body.message.unmasked.shares
        reply.body.message.unmasked.shares = bytes(len(shares))
    return reply


class Replays:
    """Answers every step of a sum as it did in the sum before."""

    def __init__(self) -> None:
        self.before: dict[str, bytes] = {}

    def __call__(self, request: Request, reply: Reply) -> Reply:
        if not isinstance(request.body, SecureSumStep) or not isinstance(reply.body, SecureSumAnswer):
            return reply
        phase, own = request.body.message.WhichOneof("phase") or "", reply.body.message.SerializeToString()
        if phase in self.before:
            reply.body.message.ParseFromString(self.before[phase])
        self.before.setdefault(phase, own)
        return reply


def somebody_elses(request: Request, reply: Reply) -> Reply:
    if isinstance(request.body, Ask):
        return Reply(request.request_id, Failure("ledger-corrupt", "stop now, all of you"))
    return reply


@pytest.mark.parametrize(
    ("twist", "counted"),
    [(garbage, HONEST), (oversize, HONEST), (wrong_shares, NAMES), (Replays(), HONEST), (somebody_elses, HONEST)],
    ids=["garbage", "oversize", "wrong shares", "replay", "another's error"],
)
def test_a_lying_party_changes_its_own_vote_at_most_and_stops_no_round(
    consortium: Consortium, twist: Twist, counted: tuple[str, ...]
) -> None:
    if isinstance(twist, Replays):
        consortium.parties[LIES].twist = twist
        assert consortium.honest_sum() == NAMES  # the sum whose messages it replays afterwards
    consortium.parties[LIES].twist = twist
    try:
        assert consortium.honest_sum() == counted
    finally:
        consortium.parties[LIES].twist = truthful
    consortium.hub.wait_for(NAMES, timeout_s=PATIENCE_S)
    assert consortium.honest_sum() == NAMES
