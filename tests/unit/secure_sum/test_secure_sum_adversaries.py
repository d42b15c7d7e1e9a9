"""Every attack of docs/research/attacks.md that the secure sum stops ends in a named error on the honest side."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.local_sums import LocalRound, local_round

from collegium.errors import CollegiumError, IdentityError
from collegium.protocol.secure_sum import (
    CoordinatorSum,
    GraphPlan,
    PartySum,
    Phase,
    SumSetup,
    accept_parameters,
    plan_graph,
)
from collegium.protocol.secure_sum.errors import (
    AskedTwice,
    BothSecretsAsked,
    ForgedSignature,
    GarbledShare,
    ImpossibleTotal,
    InconsistentSurvivors,
    InsufficientPlan,
    MalformedMessage,
    ReplayedRound,
    SumAborted,
    SwappedKeys,
    TooFewSurvivors,
    UnexpectedParty,
    WrongGraph,
    WrongLength,
    WrongRing,
    WrongShare,
)
from collegium.protocol.secure_sum.hash_tree import HashTree
from collegium.protocol.secure_sum.messages import ADVERT_BYTES, SEALED_BYTES, Advert, pack_set, unpack_set
from collegium.protocol.secure_sum.plan import sampled
from collegium.protocol.secure_sum.shamir import SHARE_BYTES
from collegium.protocol.secure_sum.state import PartyState
from collegium.protocol.v1 import secure_sum_pb2 as pb

SPARSE = GraphPlan(12, 4, 3, 1, 2, 40, 0.0, 0.0, 7)
"""A graph far too thin to be safe, in which most parties are not neighbours."""

TamperRequest = Callable[[str, pb.SecureSumRequest], None]
TamperReply = Callable[[str, pb.SecureSumReply], None]


def a_round(parties: int = 6, plan: GraphPlan | None = None, round_id: str = "round-1", **more: object) -> LocalRound:
    vectors = np.random.default_rng(parties).integers(0, 2, (parties, 8))
    return local_round(vectors, 0, 1, plan=plan, round_id=round_id, **more)  # type: ignore[arg-type]


def collect(made: LocalRound, requests: dict[str, pb.SecureSumRequest], silent: set[str]) -> dict[str, CollegiumError]:
    """Hand each party its request and the coordinator each reply; what each party refused."""
    refused = {}
    for name, request in requests.items():
        if name not in silent:
            try:
                made.coordinator.accept(name, made.parties[name].handle(request))
            except CollegiumError as error:
                refused[name] = error
    return refused


def copies(made: LocalRound) -> dict[str, pb.SecureSumRequest]:
    """The phase's requests, free to be tampered with one by one."""
    requests = {}
    for name, request in made.coordinator.requests().items():
        requests[name] = pb.SecureSumRequest()
        requests[name].CopyFrom(request)
    return requests


def advance(made: LocalRound, until: Phase, silent: dict[Phase, set[str]] | None = None) -> None:
    """Honest phases up to, not including, ``until``."""
    while made.coordinator.phase < until:
        gone = (silent or {}).get(made.coordinator.phase, set())
        assert collect(made, made.coordinator.requests(), gone) == {}
        made.coordinator.close_phase()


def refusal_of(made: LocalRound, victim: str, tamper: TamperRequest) -> CollegiumError:
    """What the victim raises at the tampered request; nothing of it must be left afterwards."""
    request, before = copies(made)[victim], made.parties[victim].state
    tamper(victim, request)
    with pytest.raises(CollegiumError) as caught:
        made.parties[victim].handle(request)
    assert made.parties[victim].state == before
    return caught.value


def flip(data: bytes, position: int = 0) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def bitmap(made: LocalRound, members: set[int]) -> bytes:
    return pack_set(np.array(sorted(members), dtype=np.int64), made.setup.plan.parties)


def test_a_party_named_both_alive_and_dropped_opens_nothing() -> None:
    made = a_round()
    advance(made, Phase.UNMASK, {Phase.MASK: {"party-0001"}})

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        request.unmask.dropped = bitmap(made, {1, 3})

    assert isinstance(refusal_of(made, "party-0000", tamper), BothSecretsAsked)

    def forget_one(_: str, request: pb.SecureSumRequest) -> None:
        request.unmask.dropped = bitmap(made, set())

    assert isinstance(refusal_of(made, "party-0002", forget_one), BothSecretsAsked)


def test_a_survivor_renamed_as_dropped_is_noticed() -> None:
    made = a_round()
    advance(made, Phase.UNMASK)

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        request.unmask.survivors = bitmap(made, {0, 1, 2, 3, 4})
        request.unmask.dropped = bitmap(made, {5})

    assert isinstance(refusal_of(made, "party-0000", tamper), InconsistentSurvivors)


def test_two_survivors_lists_never_both_gather_enough_signatures() -> None:
    made = a_round()
    advance(made, Phase.SIGN, {Phase.MASK: {"party-0005"}})
    requests = copies(made)
    lists = {name: {0, 1, 2, 3, 4} if i < 3 else {0, 1, 3, 4} for i, name in enumerate(sorted(requests))}
    signatures = {}
    for name, request in requests.items():
        request.sign_survivors.survivors = bitmap(made, lists[name])
        index = made.setup.index[name]
        if index in lists[name]:
            signatures[index] = made.parties[name].handle(request).survivors_signed.signature
    made.coordinator.opening.signatures = signatures
    made.coordinator._answered = set(signatures)
    made.coordinator.close_phase()
    for name, request in copies(made).items():
        members = lists[name]
        request.unmask.survivors = bitmap(made, members)
        request.unmask.dropped = bitmap(made, {0, 1, 2, 3, 4} - members)
        with pytest.raises(CollegiumError) as caught:
            made.parties[name].handle(request)
        assert isinstance(caught.value, InconsistentSurvivors | BothSecretsAsked)


def test_fewer_signatures_than_the_quorum_open_nothing() -> None:
    made = a_round()
    advance(made, Phase.UNMASK)

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        request.unmask.signers = bitmap(made, {0, 1, 2})
        request.unmask.signatures = request.unmask.signatures[: 3 * 64]

    assert isinstance(refusal_of(made, "party-0000", tamper), InconsistentSurvivors)


def test_a_forged_signature_under_the_survivors_list_is_noticed() -> None:
    made = a_round(parties=3)
    advance(made, Phase.UNMASK)

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        request.unmask.signatures = flip(request.unmask.signatures, 70)

    assert isinstance(refusal_of(made, "party-0000", tamper), InconsistentSurvivors)


@pytest.mark.parametrize("field", ["root", "proof", "signatures"])
def test_a_sample_of_signatures_that_the_tree_does_not_hold_is_noticed(field: str) -> None:
    made = a_round()
    advance(made, Phase.UNMASK)
    assert len(made.coordinator.requests()["party-0000"].unmask.signatures) == 4 * 64, "two of six are not shown"

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        setattr(request.unmask, field, flip(getattr(request.unmask, field)))

    # Another root asks for another sample, whose proof may be of another length.
    refusals = (InconsistentSurvivors, MalformedMessage) if field == "root" else InconsistentSurvivors
    assert isinstance(refusal_of(made, "party-0000", tamper), refusals)


def test_a_sample_that_the_coordinator_chooses_itself_is_refused() -> None:
    """All six are valid, and yet the sample is not the one that follows from the tree."""
    made = a_round()
    advance(made, Phase.UNMASK)
    honest = copies(made)["party-0000"].unmask
    signatures = [made.coordinator.opening.signatures[i] for i in range(6)]
    tree = HashTree(signatures)
    drawn = sampled(made.coordinator.opening.collected.signed, honest.signers, tree.root, 6, made.setup.plan.majority)
    others = [position for position in range(6) if position not in drawn]
    chosen = sorted([*others, *drawn[: len(drawn) - len(others)]])

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        request.unmask.signatures = b"".join(signatures[position] for position in chosen)
        request.unmask.proof = tree.proof(chosen)

    assert isinstance(refusal_of(made, "party-0000", tamper), InconsistentSurvivors | MalformedMessage)


def test_a_victim_shown_sharers_without_its_honest_neighbours_stays_closed() -> None:
    """The victim's vector is masked with fewer parties; those left out must not open its self seed."""
    made = a_round(parties=8)
    advance(made, Phase.MASK)
    requests = copies(made)
    victim = requests["party-0000"].mask_input
    kept, senders = {0, 1, 2, 3, 4}, np.flatnonzero(unpack_set(victim.senders, 8, "senders")).tolist()
    shown = [position for position, sender in enumerate(senders) if sender in kept]
    size = len(victim.shares) // len(senders)
    victim.shares = b"".join(victim.shares[p * size : (p + 1) * size] for p in shown)
    victim.senders, victim.sharers = bitmap(made, kept - {0}), bitmap(made, kept)
    reply = made.parties["party-0000"].handle(requests.pop("party-0000"))
    with pytest.raises(ForgedSignature):
        made.coordinator.accept("party-0000", reply)
    assert collect(made, requests, set()) == {}
    # A lying coordinator goes on as if the victim had answered like all others.
    made.coordinator._views[0] = reply.input_masked.view_signature
    made.coordinator._answered.add(0)
    made.coordinator.close_phase()
    requests = copies(made)
    requests.pop("party-0000")
    assert collect(made, requests, set()) == {}
    made.coordinator.close_phase()
    for name, request in made.coordinator.requests().items():
        with pytest.raises(InconsistentSurvivors, match="party-0000"):
            made.parties[name].handle(request)


def test_a_holder_that_is_hidden_from_a_party_and_shares_keys_with_the_others_is_noticed() -> None:
    """Else the coordinator could choose with whom an honest party shares a mask."""
    made = a_round()
    advance(made, Phase.SHARE)
    requests = copies(made)
    shown = requests["party-0000"].share_keys
    adverts = [made.coordinator._adverts[i].pack() for i in range(6)]
    shown.holders, shown.adverts = bitmap(made, {1, 2, 3, 4}), b"".join(adverts[1:5])
    shown.proof = HashTree(adverts).proof(range(5))
    made.parties["party-0000"].handle(requests["party-0000"])
    assert collect(made, requests, {"party-0000"}) == {}
    message = pb.MaskInput(sharers=bitmap(made, set(range(6))), senders=bitmap(made, set()))
    with pytest.raises(WrongGraph, match="not shown"):
        made.parties["party-0000"].handle(pb.SecureSumRequest(setup=made.setup.digest, mask_input=message))


def test_keys_of_a_party_that_was_not_chosen_are_refused() -> None:
    made = a_round(12, SPARSE)
    advance(made, Phase.SHARE)
    stranger = next(i for i in range(1, 12) if i not in made.coordinator._holders[0])

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        chosen = made.coordinator._holders[0].tolist()[:3]
        request.share_keys.holders = bitmap(made, {stranger, *chosen})
        request.share_keys.adverts = made.coordinator._packed_adverts(sorted({stranger, *chosen}))

    assert isinstance(refusal_of(made, "party-0000", tamper), WrongGraph)


def test_a_coordinator_that_swaps_a_partys_own_keys_is_noticed() -> None:
    made = a_round()
    advance(made, Phase.SHARE)
    adverts = [made.coordinator._adverts[i].pack() for i in range(6)]
    tree = HashTree([flip(adverts[0]), *adverts[1:]])

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        request.share_keys.root, request.share_keys.proof = tree.root, tree.proof(range(6))

    assert isinstance(refusal_of(made, "party-0000", tamper), SwappedKeys)


def test_keys_that_a_neighbour_had_before_it_started_again_are_noticed() -> None:
    """It signed them for this very round, and its old mask key may have been opened since."""
    made = a_round()
    before = a_round(identities=made.identities)
    advance(before, Phase.SHARE)
    advance(made, Phase.SHARE)
    assert made.setup.digest == before.setup.digest

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        replayed = before.coordinator._packed_adverts([1])
        request.share_keys.adverts = replayed + request.share_keys.adverts[ADVERT_BYTES:]

    assert isinstance(refusal_of(made, "party-0000", tamper), SwappedKeys)


@pytest.mark.parametrize("field", range(4), ids=Advert._fields)
def test_a_coordinator_that_changes_a_neighbours_advert_is_noticed(field: int) -> None:
    made = a_round()
    advance(made, Phase.SHARE)

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        request.share_keys.adverts = flip(request.share_keys.adverts, ADVERT_BYTES + 32 * field)

    assert isinstance(refusal_of(made, "party-0000", tamper), ForgedSignature)


def test_two_neighbours_adverts_swapped_with_each_other_are_noticed() -> None:
    made = a_round()
    advance(made, Phase.SHARE)

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        request.share_keys.adverts = made.coordinator._packed_adverts([1, 2, 4, 3, 5])

    assert isinstance(refusal_of(made, "party-0000", tamper), ForgedSignature)


def test_adverts_of_an_old_round_are_no_use_in_a_new_one() -> None:
    old = a_round()
    advance(old, Phase.SHARE)
    new = a_round(round_id="round-2", identities=old.identities)
    advance(new, Phase.SHARE)

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        replayed = old.coordinator._packed_adverts([1])
        request.share_keys.adverts = replayed + request.share_keys.adverts[ADVERT_BYTES:]

    assert isinstance(refusal_of(new, "party-0000", tamper), ForgedSignature)


def test_a_request_or_reply_of_an_old_round_is_refused() -> None:
    old, new = a_round(), a_round(round_id="round-2")
    stale = copies(old)["party-0000"]
    with pytest.raises(ReplayedRound):
        new.parties["party-0000"].handle(stale)
    reply = old.parties["party-0000"].handle(stale)
    with pytest.raises(ReplayedRound):
        new.coordinator.accept("party-0000", reply)


@pytest.mark.parametrize("phase", list(Phase)[:5])
def test_the_same_request_gets_the_same_bytes_and_another_one_none_whatever_process_answers(phase: Phase) -> None:
    """From its kept state a party draws nothing anew, and a phase that was answered has no second answer."""
    made = a_round()
    advance(made, phase)
    party = made.parties["party-0000"]
    request = made.coordinator.requests()["party-0000"]
    reply = party.handle(request).SerializeToString()
    kept = PartyState.from_bytes(party.state.to_bytes())
    assert kept == party.state
    values = np.ones(made.setup.length, dtype=np.int64) if phase < Phase.MASK else None
    again = PartySum(made.setup, "party-0000", party._sign, values, state=kept)
    assert again.handle(request).SerializeToString() == reply
    other = a_round(identities=made.identities)
    advance(other, phase)
    changed = other.coordinator.requests()["party-0000"]
    assert changed.setup == request.setup and (phase in (Phase.ADVERTISE, Phase.SIGN) or changed != request)
    if phase is Phase.SIGN:
        everybody = pack_set(np.arange(made.setup.plan.parties - 1), made.setup.plan.parties)
        changed.sign_survivors.survivors = everybody
    if phase is not Phase.ADVERTISE:
        # Its sample of signatures is of another root, so that the proof shown may not even have the right length.
        refused = (InconsistentSurvivors, MalformedMessage) if phase is Phase.UNMASK else AskedTwice
        with pytest.raises(refused):
            again.handle(changed)
    assert again.state == kept and again.handle(request).SerializeToString() == reply


def test_a_party_keeps_no_secret_longer_than_a_later_phase_needs_it() -> None:
    """After the mask no key and no seed of its own, after the signature one share of each pair and no vector."""
    made = a_round()
    advance(made, Phase.MASK)
    party, before = made.parties["party-0000"], made.parties["party-0000"].state
    masked = reply_of(made, "party-0000").input_masked.vector
    own = before.channel, before.mask, before.self_seed
    assert all(len(secret) == 32 for secret in own)
    kept = party.state.to_bytes()
    assert not any(secret in kept for secret in own) and masked in kept
    made = a_round()
    silent = {Phase.MASK: {"party-0003"}}
    advance(made, Phase.SIGN, silent)
    party = made.parties["party-0000"]
    pairs = dict(party.state.held)
    reply_of(made, "party-0000")
    for owner, both in pairs.items():
        seed, key = both[:SHARE_BYTES], both[SHARE_BYTES:]
        assert party.state.held[owner] == (key if made.setup.names[owner] == "party-0003" else seed)
    assert set(party.state.answered) == {Phase.SIGN} and not party.state.adverts


def test_a_phase_cannot_be_skipped() -> None:
    made = a_round()
    advance(made, Phase.UNMASK)
    late = made.coordinator.requests()["party-0000"]
    fresh = a_round(identities=made.identities)
    with pytest.raises(AskedTwice):
        fresh.parties["party-0000"].handle(late)


@pytest.mark.parametrize("phase", [Phase.SHARE, Phase.MASK, Phase.SIGN])
def test_a_list_shorter_than_the_quorum_is_refused_at_every_phase(phase: Phase) -> None:
    made = a_round()
    advance(made, phase)

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        if phase is Phase.SHARE:
            shown = request.share_keys
            shown.holders, shown.adverts = bitmap(made, {1, 2}), shown.adverts[: 2 * ADVERT_BYTES]
        elif phase is Phase.MASK:
            request.mask_input.sharers = bitmap(made, {0, 1, 2})
        else:
            request.sign_survivors.survivors = bitmap(made, {0, 1, 2})

    assert isinstance(refusal_of(made, "party-0000", tamper), TooFewSurvivors)


def test_a_sender_whose_nonce_does_not_choose_this_party_is_refused() -> None:
    made = a_round(12, SPARSE)
    advance(made, Phase.MASK)
    coordinator = made.coordinator
    stranger = next(i for i in range(1, 12) if 0 not in coordinator._holders[i] and i not in coordinator._holders[0])

    def false_neighbour(_: str, request: pb.SecureSumRequest) -> None:
        message = request.mask_input
        message.senders, message.adverts = bitmap(made, {stranger}), coordinator._packed_adverts([stranger])
        message.shares = bytes(2 * 33 + 16)

    assert isinstance(refusal_of(made, "party-0000", false_neighbour), WrongGraph)


def test_sharers_that_never_advertised_or_miss_the_party_itself_are_refused() -> None:
    for absent in ("party-0005", "party-0000"):
        made = a_round()
        advance(made, Phase.MASK, {Phase.ADVERTISE: {"party-0005"}})
        shown = {0, 1, 2, 3, 5} if absent == "party-0005" else {1, 2, 3, 4}

        sharers = bitmap(made, shown)

        def tamper(_: str, request: pb.SecureSumRequest, sharers: bytes = sharers) -> None:
            request.mask_input.sharers = sharers

        assert isinstance(refusal_of(made, "party-0000", tamper), WrongGraph)


def test_garbage_or_a_share_meant_for_another_party_is_refused() -> None:
    for replace in (lambda own, other: os.urandom(len(own)), lambda own, other: other):
        made = a_round()
        advance(made, Phase.MASK)
        other = made.coordinator.requests()["party-0001"].mask_input.shares

        def tamper(_: str, request: pb.SecureSumRequest, other: bytes = other, replace=replace) -> None:  # type: ignore[no-untyped-def]
            request.mask_input.shares = replace(request.mask_input.shares, other)

        assert isinstance(refusal_of(made, "party-0000", tamper), GarbledShare)


@pytest.mark.parametrize("whose", ["party-0005", "party-0000"])
def test_a_share_of_a_party_that_is_said_to_be_gone_or_of_the_party_itself_is_refused(whose: str) -> None:
    """The share of a party that is left out of the sharers would be held, and opened, as that of a drop-out."""
    made = a_round()
    advance(made, Phase.MASK)

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        message = request.mask_input
        if whose == "party-0005":
            message.sharers = bitmap(made, {0, 1, 2, 3, 4})
        else:
            message.senders, message.shares = bitmap(made, set(range(6))), bytes(SEALED_BYTES) + message.shares

    error = refusal_of(made, "party-0000", tamper)
    assert isinstance(error, WrongGraph) and "passed on for a party that is not said to have shared keys" in str(error)


@pytest.mark.parametrize("listed", [{1, 2, 3, 4}, {0, 1, 2, 3, 4, 5}])
def test_a_survivors_list_without_the_party_itself_or_with_one_that_shared_no_keys_is_not_signed(
    listed: set[int],
) -> None:
    made = a_round()
    advance(made, Phase.SIGN, {Phase.SHARE: {"party-0005"}})

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        request.sign_survivors.survivors = bitmap(made, listed)

    error = refusal_of(made, "party-0000", tamper)
    assert isinstance(error, InconsistentSurvivors) and "leaves this party out or names one" in str(error)


def test_a_party_whose_vector_is_gone_masks_nothing_in_its_place() -> None:
    made = a_round()
    advance(made, Phase.MASK)
    before = made.parties["party-0000"].state
    sign = made.identities["party-0000"].sign
    started_again = PartySum(made.setup, "party-0000", sign, None, state=before)
    with pytest.raises(SumAborted, match="the vector of this round is gone"):
        started_again.handle(made.coordinator.requests()["party-0000"])
    assert started_again.state == before


@pytest.mark.parametrize(
    ("phase", "field", "change", "told"),
    [
        (Phase.MASK, "sharers", lambda old: old + b"\0", "the set of sharers has 2 bytes; 1 are due"),
        (Phase.MASK, "sharers", lambda old: b"", "the set of sharers has 0 bytes; 1 are due"),
        (Phase.MASK, "sharers", lambda old: bytes([old[0] | 1]), "sharers names parties that are not on the roster"),
        (Phase.MASK, "shares", lambda old: old + b"\0", "shares: 411 bytes instead of 5 times 82"),
        (Phase.SHARE, "adverts", lambda old: old[:-ADVERT_BYTES], "adverts: 640 bytes instead of 5 times 160"),
        (Phase.SHARE, "root", lambda old: old + b"\0", "root has 33 bytes instead of 32"),
    ],
)
def test_a_message_of_another_length_is_malformed(
    phase: Phase, field: str, change: Callable[[bytes], bytes], told: str
) -> None:
    made = a_round()
    advance(made, phase)

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        message = request.mask_input if phase is Phase.MASK else request.share_keys
        setattr(message, field, change(getattr(message, field)))

    error = refusal_of(made, "party-0000", tamper)
    assert isinstance(error, MalformedMessage) and told in str(error)


def reply_of(made: LocalRound, name: str) -> pb.SecureSumReply:
    return made.parties[name].handle(made.coordinator.requests()[name])


def test_a_vector_of_another_ring_or_length_is_refused_and_its_sender_left_out() -> None:
    for field, value, expected in (
        ("ring_bits", 32, WrongRing),
        ("vector", bytes(14), WrongLength),
        ("vector", b"", WrongLength),
    ):
        made = a_round()
        advance(made, Phase.MASK)
        reply = reply_of(made, "party-0000")
        setattr(reply.input_masked, field, value)
        with pytest.raises(expected):
            made.coordinator.accept("party-0000", reply)
        assert "party-0000" not in made.coordinator.requests()
        assert collect(made, made.coordinator.requests(), set()) == {}
        made.coordinator.close_phase()
        advance(made, Phase.DONE)
        assert "party-0000" not in made.coordinator.result.survivors


def test_a_duplicate_reply_and_a_stranger_are_refused_and_the_first_answer_stands() -> None:
    made = a_round()
    reply = reply_of(made, "party-0000")
    made.coordinator.accept("party-0000", reply)
    with pytest.raises(UnexpectedParty):
        made.coordinator.accept("party-0000", reply)
    with pytest.raises(UnexpectedParty):
        made.coordinator.accept("mallory", reply)
    assert "party-0000" in made.coordinator.requests()


def test_a_reply_passed_off_as_another_partys_is_refused() -> None:
    for phase in (Phase.ADVERTISE, Phase.MASK, Phase.SIGN):
        made = a_round()
        advance(made, phase)
        with pytest.raises(ForgedSignature):
            made.coordinator.accept("party-0001", reply_of(made, "party-0000"))
    made = a_round()
    advance(made, Phase.SHARE)
    made.coordinator.accept("party-0001", reply_of(made, "party-0000"))
    assert collect(made, made.coordinator.requests(), {"party-0000", "party-0001"}) == {}
    made.coordinator.close_phase()
    refused = collect(made, made.coordinator.requests(), {"party-0001"})
    assert len(refused) == 4 and all(isinstance(error, GarbledShare) for error in refused.values())


def test_a_reply_to_another_phase_or_to_none_is_malformed() -> None:
    made = a_round()
    advance(made, Phase.SHARE)
    for phase in (pb.SecureSumReply(survivors_signed=pb.SurvivorsSigned()), pb.SecureSumReply()):
        phase.setup = made.setup.digest
        with pytest.raises(MalformedMessage):
            made.coordinator.accept(next(iter(made.coordinator.requests())), phase)


def test_a_degenerate_public_key_ends_the_round_of_its_neighbours() -> None:
    made = a_round()
    identity = made.identities["party-0001"]
    from collegium.protocol.secure_sum import keys

    message = keys.advert_message(made.setup.digest, 1, bytes(32), bytes(32), bytes(32))
    advert = pb.KeysAdvertised(advert=bytes(96) + identity.sign(message))
    made.coordinator.accept("party-0001", pb.SecureSumReply(setup=made.setup.digest, keys_advertised=advert))
    assert collect(made, made.coordinator.requests(), {"party-0001"}) == {}
    made.coordinator.close_phase()
    refused = collect(made, made.coordinator.requests(), {"party-0001"})
    assert len(refused) == 5 and all(isinstance(error, SwappedKeys) for error in refused.values())


@pytest.mark.parametrize(
    ("dropped", "liars", "opened"),
    [({}, 2, True), ({}, 3, False), ({Phase.MASK: {"party-0005"}}, 1, True), ({Phase.MASK: {"party-0005"}}, 2, False)],
)
def test_wrong_shares_of_a_few_stop_nobody_and_those_of_many_release_no_total(
    dropped: dict[Phase, set[str]], liars: int, opened: bool
) -> None:
    """A secret opens with the shares of three honest holders."""
    made = a_round()
    advance(made, Phase.UNMASK, dropped)
    honest = a_round()
    advance(honest, Phase.DONE, dropped)
    for number, name in enumerate(list(made.coordinator.requests())):
        reply = reply_of(made, name)
        if number < liars:
            shares = bytearray(reply.unmasked.shares)
            # X25519 ignores the lowest three bits of a key: spoil a higher byte of every share.
            for position in range(5, len(shares), 33):
                shares[position] ^= 1 + number
            reply.unmasked.shares = bytes(shares)
        made.coordinator.accept(name, reply)
    if opened:
        made.coordinator.close_phase()
        np.testing.assert_array_equal(made.coordinator.result.total, honest.coordinator.result.total)
    else:
        with pytest.raises(WrongShare):
            made.coordinator.close_phase()
        with pytest.raises(SumAborted):
            _ = made.coordinator.result


def test_shares_that_do_not_open_a_drop_outs_mask_key_release_no_total() -> None:
    """Only those of the one that dropped out are wrong: every self seed opens."""
    made = a_round()
    advance(made, Phase.UNMASK, {Phase.MASK: {"party-0005"}})
    for name in list(made.coordinator.requests()):
        reply = reply_of(made, name)
        reply.unmasked.shares = flip(reply.unmasked.shares, len(reply.unmasked.shares) - SHARE_BYTES + 5)
        made.coordinator.accept(name, reply)
    with pytest.raises(WrongShare, match="party-0005's mask key do not open the key it advertised"):
        made.coordinator.close_phase()
    with pytest.raises(SumAborted):
        _ = made.coordinator.result


def test_nothing_is_opened_before_the_masked_vectors_are_there() -> None:
    made = a_round()
    advance(made, Phase.MASK)
    with pytest.raises(SumAborted, match="not collected yet"):
        _ = made.coordinator.opening


def test_a_party_that_sends_more_than_the_range_is_noticed_in_the_total() -> None:
    made = a_round()
    advance(made, Phase.MASK)
    for name in list(made.coordinator.requests()):
        reply = reply_of(made, name)
        if name == "party-0000":
            vector = np.frombuffer(reply.input_masked.vector, dtype="<u2") + np.uint16(1000)
            reply.input_masked.vector = vector.tobytes()
        made.coordinator.accept(name, reply)
    made.coordinator.close_phase()
    with pytest.raises(ImpossibleTotal):
        advance(made, Phase.DONE)


def test_a_party_outside_the_roster_cannot_take_part() -> None:
    made = a_round()
    with pytest.raises(IdentityError):
        PartySum(made.setup, "mallory", made.identities["party-0000"].sign, np.zeros(8, dtype=np.int64))


@pytest.mark.parametrize("phase", [Phase.MASK, Phase.SIGN])
def test_of_a_sum_that_needs_all_vectors_no_party_signs_a_list_that_lacks_one(phase: Phase) -> None:
    """A coordinator that leaves one out would open a sum with less noise than was charged."""
    made = a_round(plan=plan_graph(6).of_all)
    assert made.setup.plan.honest_survivors == 5 > plan_graph(6).honest_survivors
    advance(made, phase)

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        if phase is Phase.MASK:
            request.mask_input.sharers = bitmap(made, {0, 1, 2, 3, 4})
        else:
            request.sign_survivors.survivors = bitmap(made, {0, 1, 2, 3, 4})

    assert isinstance(refusal_of(made, "party-0000", tamper), TooFewSurvivors)


@pytest.mark.parametrize("phase", [Phase.ADVERTISE, Phase.SHARE, Phase.MASK, Phase.SIGN, Phase.UNMASK])
def test_who_stays_away_from_a_sum_of_all_ends_it_before_and_not_after_all_vectors_are_there(phase: Phase) -> None:
    made = a_round(plan=plan_graph(6).of_all)
    advance(made, phase)
    assert collect(made, made.coordinator.requests(), {"party-0000"}) == {}
    if phase <= Phase.MASK:
        with pytest.raises(TooFewSurvivors, match="5 of 6"):
            made.coordinator.close_phase()
        return
    made.coordinator.close_phase()
    advance(made, Phase.DONE)
    assert len(made.coordinator.result.survivors) == 6
    assert np.array_equal(made.coordinator.result.total, np.random.default_rng(6).integers(0, 2, (6, 8)).sum(axis=0))


@pytest.mark.parametrize("summed", [5, 3, 251])
def test_a_sum_of_more_vectors_than_there_are_or_fewer_than_the_quorum_is_refused(summed: int) -> None:
    roster = {f"party-{i:03d}": i.to_bytes(32, "big") for i in range(250)}
    parameters = SumSetup("c", "r", roster, 10, 0, 1, plan_graph(250).of_all).parameters()
    assert accept_parameters(parameters, roster, collusion_fraction=0.1).plan.summed == 250
    parameters.summed = summed
    with pytest.raises(InsufficientPlan, match="vectors is proposed"):
        accept_parameters(parameters, roster, collusion_fraction=0.1)


def test_a_party_accepts_only_a_graph_that_protects_it() -> None:
    roster = {f"party-{i:03d}": i.to_bytes(32, "big") for i in range(250)}
    setup = SumSetup("c", "r", roster, 10, 0, 1, plan_graph(250))
    assert accept_parameters(setup.parameters(), roster, collusion_fraction=0.1).digest == setup.digest
    five = dict(list(roster.items())[:5])
    proposed = SumSetup("c", "r", five, 10, 0, 1, plan_graph(5)).parameters()
    with pytest.raises(InsufficientPlan, match="who joined since must be named under parties"):
        accept_parameters(proposed, dict(list(five.items())[:4]), collusion_fraction=0.1)
    for field, value in (
        ("threshold", 12),
        ("threshold", 1),
        ("threshold", 300),
        ("colluding", 5),
        ("colluding", 249),
        ("quorum", 137),
        ("quorum", 251),
        ("security_bits", 30),
        ("ring_bits", 32),
    ):
        parameters = setup.parameters()
        setattr(parameters, field, value)
        with pytest.raises(InsufficientPlan):
            accept_parameters(parameters, roster, collusion_fraction=0.1)


def test_parameters_that_differ_from_the_set_up_are_refused() -> None:
    made = a_round()

    def tamper(_: str, request: pb.SecureSumRequest) -> None:
        request.advertise_keys.parameters.high = 2

    assert isinstance(refusal_of(made, "party-0000", tamper), ReplayedRound)


def test_no_secret_shows_in_an_error_or_a_repr() -> None:
    canary = b"\xca\xfe" * 16
    made = a_round(random_bytes=lambda size: (canary * (size // 32 + 1))[:size])
    advance(made, Phase.MASK)
    shown = repr(made.parties["party-0000"]) + repr(vars(made.coordinator).keys())
    shown += str(refusal_of(made, "party-0000", lambda _, request: request.ClearField("mask_input")))
    assert "cafe" not in shown and repr(canary) not in shown


def test_the_coordinator_cannot_go_on_after_a_failure() -> None:
    made = a_round()
    with pytest.raises(TooFewSurvivors):
        made.coordinator.close_phase()
    with pytest.raises(SumAborted):
        made.coordinator.requests()
    assert isinstance(made.coordinator, CoordinatorSum)
