"""A party's side of one secure sum: five requests in order, one answer to each, whichever process gives it.

Each step takes what the party keeps (`PartyState`) and a request, checks everything that the coordinator shows, and
gives what the party keeps from then on and its reply. The same request gets the same bytes again; another one for a
phase that was answered is refused, and nothing changes. A secret is kept no longer than a later step needs it.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from collegium.errors import IdentityError
from collegium.protocol.secure_sum import keys, messages, shamir
from collegium.protocol.secure_sum.errors import (
    AskedTwice,
    BothSecretsAsked,
    ForgedSignature,
    InconsistentSurvivors,
    ReplayedRound,
    SumAborted,
    SwappedKeys,
    TooFewSurvivors,
    WrongGraph,
)
from collegium.protocol.secure_sum.hash_tree import HASH_BYTES, root_of
from collegium.protocol.secure_sum.messages import Phase, phase_of
from collegium.protocol.secure_sum.plan import holders_of, sampled
from collegium.protocol.secure_sum.setup import SumSetup
from collegium.protocol.secure_sum.state import PartyState
from collegium.protocol.v1 import secure_sum_pb2 as pb
from collegium_accounting.units import IntArray

RandomBytes = Callable[[int], bytes]


# More than 15 methods: a state machine: two for each phase.
class PartySum:
    """One party in one round.

    Parameters
    ----------
    setup : what was agreed; see `accept_parameters` for a proposal that came from outside. It serves once: whoever
        keeps the state gives no round that was begun a fresh one.
    name : this party's name on the roster.
    sign : signs bytes with the party's Ed25519 identity; the key itself stays where it is.
    values : this party's integers, shape ``[setup.length]``, each within ``[setup.low, setup.high]``; None once they
        were masked.
    noise : this party's share of noise, shape ``[setup.length]``; see `NoiseShare.draw`.
    random_bytes : source of all secrets of a step; the operating system's unless a test injects another.
    state : as the steps before left it.

    Raises
    ------
    IdentityError
        When the name is not on the roster.
    ValueOutOfRange, WrongLength
        When the values do not fit the set-up.
    """

    def __init__(  # noqa: PLR0913 -- what one sum is given once, by name
        self,
        setup: SumSetup,
        name: str,
        sign: Callable[[bytes], bytes],
        values: IntArray | None,
        noise: IntArray | None = None,
        random_bytes: RandomBytes = os.urandom,
        state: PartyState | None = None,
    ) -> None:
        if name not in setup.index:
            raise IdentityError(f"{name} is not on the roster of {setup.consortium}")
        self.setup = setup
        self.name = name
        self.state = state or PartyState()
        self._me = setup.index[name]
        self._sign = sign
        self._encoded = None if values is None else setup.encode(values, noise)
        self._random_bytes = random_bytes

    @property
    def opened(self) -> bytes:
        """Tells the sum that this party signed from every other that may be over other parties.

        On the complete graph every listed vector is in the sum: the names are enough. On a sparse one a listed party
        may be left out: the signed list goes with its transcript, which no other round has.
        """
        if not self.setup.plan.complete:
            return self.signed
        return "\n".join(self.setup.names[index] for index in np.flatnonzero(self._set("survivors"))).encode()

    @property
    def signed(self) -> bytes:
        """What this party signs of the vectors that are opened; it names the sum, as no other has its transcript."""
        state = self.state
        return keys.survivors_message(state.transcript, state.sharers, state.survivors)

    def _set(self, which: Literal["sharers", "senders", "survivors"]) -> NDArray[np.bool_]:
        return messages.unpack_set(getattr(self.state, which), self.setup.plan.parties, which)

    def handle(self, request: pb.SecureSumRequest) -> pb.SecureSumReply:
        """The reply to a request of the coordinator; `state` is then what must be kept before it leaves.

        Raises
        ------
        SecureSumViolation
            A subclass names what is wrong. Nothing has changed then.
        TooFewSurvivors
            When the coordinator goes on with fewer parties than the quorum.
        """
        if request.setup != self.setup.digest:
            raise ReplayedRound("the request belongs to another round, consortium, roster or vector than this one")
        phase, before = phase_of(request), self.state
        asked = hashlib.sha256(request.SerializeToString(deterministic=True)).digest()
        told, reply = before.answered.get(phase, (b"", b""))
        if told == asked:
            return pb.SecureSumReply.FromString(reply)
        if phase is not before.due:
            raise AskedTwice(f"{phase.name.lower()} was asked for when {before.due.name.lower()} was due")
        try:
            answer = self._answer(phase, request)
        except BaseException:
            self.state = before
            raise
        answer.setup = self.setup.digest
        if phase is not Phase.UNMASK:  # other signers get the same shares: they follow from the signed list
            kept = {} if phase is Phase.SIGN else self.state.answered
            answered = {**kept, phase: (asked, answer.SerializeToString(deterministic=True))}
            self.state = replace(self.state, due=Phase(phase + 1), answered=answered)
        return answer

    def _answer(self, phase: Phase, request: pb.SecureSumRequest) -> pb.SecureSumReply:
        if phase is Phase.ADVERTISE:
            return self._advertise(request.advertise_keys)
        if phase is Phase.SHARE:
            return self._share(request.share_keys)
        if phase is Phase.MASK:
            return self._mask(request.mask_input)
        if phase is Phase.SIGN:
            return self._sign_survivors(request.sign_survivors)
        return self._unmask(request.unmask)

    def _advertise(self, request: pb.AdvertiseKeys) -> pb.SecureSumReply:
        if request.parameters != self.setup.parameters():
            raise ReplayedRound("the parameters shown differ from those that were set up")
        channel, mask, nonce, self_seed = (self._random_bytes(32) for _ in range(4))
        channel_key = keys.public_key(X25519PrivateKey.from_private_bytes(channel))
        mask_key = keys.public_key(X25519PrivateKey.from_private_bytes(mask))
        signature = self._sign(keys.advert_message(self.setup.digest, self._me, channel_key, mask_key, nonce))
        advert = messages.Advert(channel_key, mask_key, nonce, signature).pack()
        self.state = replace(self.state, channel=channel, mask=mask, self_seed=self_seed, adverts={self._me: advert})
        return pb.SecureSumReply(keys_advertised=pb.KeysAdvertised(advert=advert))

    def _share(self, request: pb.ShareKeys) -> pb.SecureSumReply:
        plan, digest = self.setup.plan, self.setup.digest
        holders = np.flatnonzero(messages.unpack_set(request.holders, plan.parties, "holders")).tolist()
        if not set(holders) <= self._own_holders():
            raise WrongGraph(f"keys are shown of a party that {self.name} did not choose as a holder")
        if len(holders) < plan.threshold:
            raise TooFewSurvivors(f"{len(holders)} holders have keys; {plan.threshold} open a secret")
        self._take_adverts(holders, request.adverts)
        known = {party: self.state.adverts[party] for party in (*holders, self._me)}
        root = messages.fixed(request.root, HASH_BYTES, "root")
        if root_of(known, plan.parties, request.proof) != root:
            raise SwappedKeys(
                f"the tree of adverts lacks the keys that {self.name} advertised, or those that it is shown"
            )
        self.state = replace(self.state, transcript=digest + root)
        seed_shares = shamir.share(self.state.self_seed, plan.threshold, holders, self._random_bytes)
        key_shares = shamir.share(self.state.mask, plan.threshold, holders, self._random_bytes)
        own, sealed = X25519PrivateKey.from_private_bytes(self.state.channel), []
        for holder, seed_share, key_share in zip(holders, seed_shares, key_shares, strict=True):
            key = self._channel_key(own, holder, self._me, holder)
            sealed.append(keys.seal(key, seed_share + key_share))
        return pb.SecureSumReply(
            keys_shared=pb.KeysShared(
                self_seed_commitment=keys.commit(keys.SELF_SEED_COMMITMENT, digest, self._me, self.state.self_seed),
                shares=b"".join(sealed),
            )
        )

    def _mask(self, request: pb.MaskInput) -> pb.SecureSumReply:
        parties = self.setup.plan.parties
        sharers = messages.unpack_set(request.sharers, parties, "sharers")
        senders = messages.unpack_set(request.senders, parties, "senders")
        self._require_quorum(int(sharers.sum()), "parties that shared keys")
        holders = {holder for holder in self._own_holders() if sharers[holder]}
        if not sharers[self._me] or not holders <= set(self.state.adverts):
            raise WrongGraph("the sharers miss this party, or name a holder whose keys it was not shown")
        if senders[self._me] or (senders & ~sharers).any():
            raise WrongGraph("a share is passed on for a party that is not said to have shared keys")
        sending: list[int] = np.flatnonzero(senders).tolist()
        shares = messages.unpack_column(request.shares, len(sending), messages.SEALED_BYTES, "shares")
        self._take_adverts([sender for sender in sending if sender not in self.state.adverts], request.adverts)
        own, held = X25519PrivateKey.from_private_bytes(self.state.channel), {}
        for sender, sealed in zip(sending, shares, strict=True):
            if self._me not in self._holders_of(sender, self._advert(sender).graph_nonce):
                raise WrongGraph(f"{self.name} is not a holder that the nonce of {self.setup.names[sender]} chooses")
            key = self._channel_key(own, sender, sender, self._me)
            held[sender] = keys.open_sealed(key, sealed, self.setup.names[sender])
        vector = self._masked_vector(sorted(holders.union(sending)))
        signature = self._sign(keys.view_message(self.state.transcript, request.sharers))
        self.state = replace(
            self.state,
            channel=b"",
            mask=b"",
            self_seed=b"",
            adverts={},
            sharers=request.sharers,
            senders=request.senders,
            held=held,
        )
        return pb.SecureSumReply(
            input_masked=pb.InputMasked(ring_bits=self.setup.ring_bits, vector=vector, view_signature=signature)
        )

    def _masked_vector(self, peers: list[int]) -> bytes:
        """Values + self mask + masks shared with higher indices − masks shared with lower ones."""
        setup, state = self.setup, self.state
        if self._encoded is None:
            raise SumAborted("the vector of this round is gone; start a new round")
        self_key = keys.derive_key(state.self_seed, keys.SELF_MASK, setup.digest, self._me)
        vector = self._encoded + keys.mask(self_key, setup.length, setup.word)
        own = X25519PrivateKey.from_private_bytes(state.mask)
        for peer in peers:
            agreed = keys.agree(own, self._advert(peer).mask_key)
            low, high = min(self._me, peer), max(self._me, peer)
            key = keys.derive_key(agreed, keys.PAIRWISE_MASK, state.transcript, low, high)
            pair = keys.mask(key, setup.length, setup.word)
            (np.add if self._me == low else np.subtract)(vector, pair, out=vector)
        return vector.tobytes()

    def _sign_survivors(self, request: pb.SignSurvivors) -> pb.SecureSumReply:
        survivors = messages.unpack_set(request.survivors, self.setup.plan.parties, "survivors")
        self._require_quorum(int(survivors.sum()), "survivors")
        if not survivors[self._me] or (survivors & ~self._set("sharers")).any():
            raise InconsistentSurvivors("the survivors' list leaves this party out or names one that shared no keys")
        half = shamir.SHARE_BYTES
        opened = {owner: both[:half] if survivors[owner] else both[half:] for owner, both in self.state.held.items()}
        self.state = replace(self.state, survivors=request.survivors, held=opened)
        return pb.SecureSumReply(survivors_signed=pb.SurvivorsSigned(signature=self._sign(self.signed)))

    def _unmask(self, request: pb.Unmask) -> pb.SecureSumReply:
        parties = self.setup.plan.parties
        survivors = messages.unpack_set(request.survivors, parties, "survivors")
        dropped = messages.unpack_set(request.dropped, parties, "dropped")
        if (survivors & dropped).any() or not np.array_equal(survivors | dropped, self._set("sharers")):
            raise BothSecretsAsked("a party is named both alive and dropped, or neither; nothing is opened")
        if request.survivors != self.state.survivors:
            raise InconsistentSurvivors("the survivors' list differs from the one that this party signed")
        self._check_signatures(request)
        self._check_views(request)
        opened = [self.state.held[owner] for owner in np.flatnonzero(self._set("senders")).tolist()]
        return pb.SecureSumReply(unmasked=pb.Unmasked(shares=b"".join(opened)))

    def _check_signatures(self, request: pb.Unmask) -> None:
        """Enough survivors signed the very list that this party signed: all of the sample did (see `sampled`)."""
        plan = self.setup.plan
        signed = messages.unpack_set(request.signers, plan.parties, "signers")
        signers = np.flatnonzero(signed)
        if signers.size < plan.quorum or (signed & ~self._set("survivors")).any():
            raise InconsistentSurvivors(f"{signers.size} parties are said to have signed; {plan.quorum} survivors must")
        root = messages.fixed(request.root, HASH_BYTES, "root")
        sample = sampled(self.signed, request.signers, root, signers.size, plan.majority)
        column = messages.unpack_column(request.signatures, len(sample), messages.SIGNATURE_BYTES, "signatures")
        signatures = dict(zip(sample, column, strict=True))
        if root_of(signatures, signers.size, request.proof) != root:
            raise InconsistentSurvivors("the signatures shown are not those that the sample was drawn from")
        for position, signature in signatures.items():
            self._require_signed(int(signers[position]), signature, self.signed, "the survivors' list")

    def _check_views(self, request: pb.Unmask) -> None:
        """Everyone whose self seed is about to be opened masked its vector with the same parties as all others.

        Without this the coordinator could show one party a list of sharers without its honest neighbours, take
        its hardly masked vector, and have its self seed opened by exactly these neighbours.
        """
        owners = np.flatnonzero(self._set("survivors") & self._set("senders")).tolist()
        views = messages.unpack_column(request.view_signatures, len(owners), messages.SIGNATURE_BYTES, "views")
        seen = keys.view_message(self.state.transcript, self.state.sharers)
        for owner, signature in zip(owners, views, strict=True):
            self._require_signed(owner, signature, seen, "the list of sharers")

    def _require_signed(self, signer: int, signature: bytes, message: bytes, what: str) -> None:
        name = self.setup.names[signer]
        try:
            keys.verify(self.setup.roster[name], signature, message, name, what)
        except ForgedSignature as error:
            raise InconsistentSurvivors(f"{error}: another list was signed, or the signature is forged") from None

    def _require_quorum(self, count: int, whom: str) -> None:
        least = self.setup.plan.least_summed
        if count < least:
            raise TooFewSurvivors(f"{count} {whom} are left; {least} are needed to hide a single vector")

    def _channel_key(self, own: X25519PrivateKey, peer: int, sender: int, receiver: int) -> bytes:
        """The key that seals the one message from sender to receiver."""
        agreed = keys.agree(own, self._advert(peer).channel_key)
        return keys.derive_key(agreed, keys.CHANNEL, self.state.transcript, sender, receiver)

    def _take_adverts(self, parties: list[int], column: bytes) -> None:
        entries = messages.unpack_column(column, len(parties), messages.ADVERT_BYTES, "adverts")
        for peer, packed in zip(parties, entries, strict=True):
            messages.unpack_advert(packed, self.setup, peer)  # raises unless the party signed it for this sum
        self.state = replace(self.state, adverts={**self.state.adverts, **dict(zip(parties, entries, strict=True))})

    def _advert(self, party: int) -> messages.Advert:
        return messages.Advert.of(self.state.adverts[party])

    def _own_holders(self) -> set[int]:
        return set(self._holders_of(self._me, self._advert(self._me).graph_nonce).tolist())

    def _holders_of(self, owner: int, nonce: bytes) -> IntArray:
        plan = self.setup.plan
        return holders_of(owner, nonce, self.setup.digest, plan.parties, plan.neighbours)
