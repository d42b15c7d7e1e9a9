"""A party's side of one secure sum: five requests in order, one reply each, then nothing more.

It owns the round's secrets (two X25519 keys, a graph nonce, a self-mask seed), checks everything
the coordinator shows before it answers, and forgets them on the last reply or on the first error.
"""

import os
from collections.abc import Callable, MutableSet

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

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
from collegium.protocol.v1 import secure_sum_pb2 as pb
from collegium_accounting.units import IntArray

RandomBytes = Callable[[int], bytes]


class _Secrets:
    """The secrets of a party, which leave its process only as shares, or never."""

    def __init__(self, random_bytes: RandomBytes) -> None:
        self.channel = X25519PrivateKey.from_private_bytes(random_bytes(32))
        self.mask_bytes = random_bytes(32)
        self.mask = X25519PrivateKey.from_private_bytes(self.mask_bytes)
        self.graph_nonce = random_bytes(32)
        self.self_seed = random_bytes(32)
        self.held: dict[int, tuple[bytes, bytes]] = {}
        """Shares of others: owner → (of its self seed, of its mask key)."""


class PartySum:
    """One party in one round.

    Parameters
    ----------
    setup : what was agreed; see `accept_parameters` for a proposal that came from outside.
    name : this party's name on the roster.
    sign : signs bytes with the party's Ed25519 identity; the key itself stays where it is.
    values : this party's integers, shape ``[setup.length]``, each within ``[setup.low, setup.high]``.
    used_rounds : round ids that this party has begun; a round found there is refused, a new one is added.
        Give a durable set, or a round can be run again after a restart.
    noise : this party's share of noise, shape ``[setup.length]``; see `NoiseShare.draw`.
    random_bytes : source of all secrets; the operating system's unless a test injects another.

    Raises
    ------
    IdentityError
        When the name is not on the roster.
    ValueOutOfRange, WrongLength
        When the values do not fit the set-up.
    """

    def __init__(
        self,
        setup: SumSetup,
        name: str,
        sign: Callable[[bytes], bytes],
        values: IntArray,
        used_rounds: MutableSet[str],
        noise: IntArray | None = None,
        random_bytes: RandomBytes = os.urandom,
    ) -> None:
        if name not in setup.index:
            raise IdentityError(f"{name} is not on the roster of {setup.consortium}")
        self.setup = setup
        self.name = name
        self._me = setup.index[name]
        self._sign = sign
        self._encoded = setup.encode(values, noise)
        self._used_rounds = used_rounds
        self._random_bytes = random_bytes
        self._next = Phase.ADVERTISE
        self._secrets: _Secrets | None = None
        self._adverts: dict[int, messages.Advert] = {}
        """Of the other parties that this one shares a mask with; their signatures are verified."""

    @property
    def done(self) -> bool:
        """Whether this party has answered everything or given up."""
        return self._next is Phase.DONE

    @property
    def opened(self) -> bytes:
        """Tells the sum that this party signed from every other that may be over other parties.

        On the complete graph every listed vector is in the sum: the names are enough. On a sparse one a listed party
        may be left out: the signed list goes with its transcript, which no other round has.
        """
        if not self.setup.plan.complete:
            return self._signed
        return "\n".join(self.setup.names[index] for index in np.flatnonzero(self._survivors)).encode()

    def handle(self, request: pb.SecureSumRequest) -> pb.SecureSumReply:
        """The reply to the coordinator's next request.

        Raises
        ------
        SecureSumViolation
            A subclass names what is wrong. The party has then forgotten its secrets and answers no more.
        TooFewSurvivors
            When the coordinator goes on with fewer parties than the quorum.
        """
        if self._next is Phase.DONE and self._secrets is None:
            raise SumAborted(f"{self.name} has finished or abandoned this sum; start a new round")
        try:
            reply = self._answer(request)
        except Exception:
            self._forget()
            raise
        reply.setup = self.setup.digest
        if self._next is Phase.DONE:
            self._forget()
        return reply

    def _forget(self) -> None:
        self._secrets = None
        self._encoded = self._encoded[:0]
        self._next = Phase.DONE

    def _answer(self, request: pb.SecureSumRequest) -> pb.SecureSumReply:
        if request.setup != self.setup.digest:
            raise ReplayedRound("the request belongs to another round, consortium, roster or vector than this one")
        phase = phase_of(request)
        if phase is not self._next:
            raise AskedTwice(f"{phase.name.lower()} was asked for when {self._next.name.lower()} was due")
        self._next = Phase(phase + 1)
        if phase is Phase.ADVERTISE:
            return self._advertise(request.advertise_keys)
        secrets = self._secrets
        if secrets is None:
            raise SumAborted("the secrets of this round are gone; start a new round")
        if phase is Phase.SHARE:
            return self._share(request.share_keys, secrets)
        if phase is Phase.MASK:
            return self._mask(request.mask_input, secrets)
        if phase is Phase.SIGN:
            return self._sign_survivors(request.sign_survivors)
        return self._unmask(request.unmask, secrets)

    def _advertise(self, request: pb.AdvertiseKeys) -> pb.SecureSumReply:
        if request.parameters != self.setup.parameters():
            raise ReplayedRound("the parameters shown differ from those that were set up")
        if self.setup.round_id in self._used_rounds:
            raise ReplayedRound(f"round {self.setup.round_id} has been run before; a round id serves once")
        self._used_rounds.add(self.setup.round_id)
        secrets = self._secrets = _Secrets(self._random_bytes)
        digest = self.setup.digest
        channel_key, mask_key = keys.public_key(secrets.channel), keys.public_key(secrets.mask)
        signature = self._sign(keys.advert_message(digest, self._me, channel_key, mask_key, secrets.graph_nonce))
        self._advert = messages.Advert(channel_key, mask_key, secrets.graph_nonce, signature).pack()
        return pb.SecureSumReply(keys_advertised=pb.KeysAdvertised(advert=self._advert))

    def _share(self, request: pb.ShareKeys, secrets: _Secrets) -> pb.SecureSumReply:
        plan, digest = self.setup.plan, self.setup.digest
        self._holders = set(self._holders_of(self._me, secrets.graph_nonce).tolist())
        holders = np.flatnonzero(messages.unpack_set(request.holders, plan.parties, "holders")).tolist()
        if not set(holders) <= self._holders:
            raise WrongGraph(f"keys are shown of a party that {self.name} did not choose as a holder")
        if len(holders) < plan.threshold:
            raise TooFewSurvivors(f"{len(holders)} holders have keys; {plan.threshold} open a secret")
        self._take_adverts(holders, request.adverts)
        known = {holder: self._adverts[holder].pack() for holder in holders} | {self._me: self._advert}
        root = messages.fixed(request.root, HASH_BYTES, "root")
        if root_of(known, plan.parties, request.proof) != root:
            raise SwappedKeys(
                f"the tree of adverts lacks the keys that {self.name} advertised, or those that it is shown"
            )
        self._transcript = digest + root
        seed_shares = shamir.share(secrets.self_seed, plan.threshold, holders, self._random_bytes)
        key_shares = shamir.share(secrets.mask_bytes, plan.threshold, holders, self._random_bytes)
        sealed = []
        for holder, seed_share, key_share in zip(holders, seed_shares, key_shares, strict=True):
            key = self._channel_key(holder, secrets, self._me, holder)
            sealed.append(keys.seal(key, seed_share + key_share))
        return pb.SecureSumReply(
            keys_shared=pb.KeysShared(
                self_seed_commitment=keys.commit(keys.SELF_SEED_COMMITMENT, digest, self._me, secrets.self_seed),
                shares=b"".join(sealed),
            )
        )

    def _mask(self, request: pb.MaskInput, secrets: _Secrets) -> pb.SecureSumReply:
        parties = self.setup.plan.parties
        sharers = messages.unpack_set(request.sharers, parties, "sharers")
        senders = messages.unpack_set(request.senders, parties, "senders")
        self._require_quorum(int(sharers.sum()), "parties that shared keys")
        holders = {holder for holder in self._holders if sharers[holder]}
        if not sharers[self._me] or not holders <= set(self._adverts):
            raise WrongGraph("the sharers miss this party, or name a holder whose keys it was not shown")
        if senders[self._me] or (senders & ~sharers).any():
            raise WrongGraph("a share is passed on for a party that is not said to have shared keys")
        self._sharers, self._sharers_bitmap, self._senders = sharers, request.sharers, senders
        sending: list[int] = np.flatnonzero(senders).tolist()
        shares = messages.unpack_column(request.shares, len(sending), messages.SEALED_BYTES, "shares")
        self._take_adverts([sender for sender in sending if sender not in self._adverts], request.adverts)
        for sender, sealed in zip(sending, shares, strict=True):
            if self._me not in self._holders_of(sender, self._adverts[sender].graph_nonce):
                raise WrongGraph(f"{self.name} is not a holder that the nonce of {self.setup.names[sender]} chooses")
            key = self._channel_key(sender, secrets, sender, self._me)
            opened = keys.open_sealed(key, sealed, self.setup.names[sender])
            secrets.held[sender] = (opened[: shamir.SHARE_BYTES], opened[shamir.SHARE_BYTES :])
        vector = self._masked_vector(sorted(holders.union(sending)), secrets)
        signature = self._sign(keys.view_message(self._transcript, request.sharers))
        return pb.SecureSumReply(
            input_masked=pb.InputMasked(ring_bits=self.setup.ring_bits, vector=vector, view_signature=signature)
        )

    def _masked_vector(self, peers: list[int], secrets: _Secrets) -> bytes:
        """Values + self mask + masks shared with higher indices − masks shared with lower ones."""
        setup = self.setup
        self_key = keys.derive_key(secrets.self_seed, keys.SELF_MASK, setup.digest, self._me)
        vector = self._encoded + keys.mask(self_key, setup.length, setup.word)
        for peer in peers:
            agreed = keys.agree(secrets.mask, self._adverts[peer].mask_key)
            low, high = min(self._me, peer), max(self._me, peer)
            key = keys.derive_key(agreed, keys.PAIRWISE_MASK, self._transcript, low, high)
            pair = keys.mask(key, setup.length, setup.word)
            (np.add if self._me == low else np.subtract)(vector, pair, out=vector)
        self._encoded = self._encoded[:0]
        return vector.tobytes()

    def _sign_survivors(self, request: pb.SignSurvivors) -> pb.SecureSumReply:
        survivors = messages.unpack_set(request.survivors, self.setup.plan.parties, "survivors")
        self._require_quorum(int(survivors.sum()), "survivors")
        if not survivors[self._me] or (survivors & ~self._sharers).any():
            raise InconsistentSurvivors("the survivors' list leaves this party out or names one that shared no keys")
        self._survivors = survivors
        self._signed = keys.survivors_message(self._transcript, self._sharers_bitmap, request.survivors)
        return pb.SecureSumReply(survivors_signed=pb.SurvivorsSigned(signature=self._sign(self._signed)))

    def _unmask(self, request: pb.Unmask, secrets: _Secrets) -> pb.SecureSumReply:
        parties = self.setup.plan.parties
        survivors = messages.unpack_set(request.survivors, parties, "survivors")
        dropped = messages.unpack_set(request.dropped, parties, "dropped")
        if (survivors & dropped).any() or not np.array_equal(survivors | dropped, self._sharers):
            raise BothSecretsAsked("a party is named both alive and dropped, or neither; nothing is opened")
        if not np.array_equal(survivors, self._survivors):
            raise InconsistentSurvivors("the survivors' list differs from the one that this party signed")
        self._check_signatures(request)
        self._check_views(request)
        opened = [secrets.held[owner][0 if survivors[owner] else 1] for owner in np.flatnonzero(self._senders).tolist()]
        return pb.SecureSumReply(unmasked=pb.Unmasked(shares=b"".join(opened)))

    def _check_signatures(self, request: pb.Unmask) -> None:
        """Enough survivors signed the very list that this party signed: all of the sample did (see `sampled`)."""
        plan = self.setup.plan
        signed = messages.unpack_set(request.signers, plan.parties, "signers")
        signers = np.flatnonzero(signed)
        if signers.size < plan.quorum or (signed & ~self._survivors).any():
            raise InconsistentSurvivors(f"{signers.size} parties are said to have signed; {plan.quorum} survivors must")
        root = messages.fixed(request.root, HASH_BYTES, "root")
        sample = sampled(self._signed, request.signers, root, signers.size, plan.majority)
        column = messages.unpack_column(request.signatures, len(sample), messages.SIGNATURE_BYTES, "signatures")
        signatures = dict(zip(sample, column, strict=True))
        if root_of(signatures, signers.size, request.proof) != root:
            raise InconsistentSurvivors("the signatures shown are not those that the sample was drawn from")
        for position, signature in signatures.items():
            self._require_signed(int(signers[position]), signature, self._signed, "the survivors' list")

    def _check_views(self, request: pb.Unmask) -> None:
        """Everyone whose self seed is about to be opened masked its vector with the same parties as all others.

        Without this the coordinator could show one party a list of sharers without its honest neighbours, take
        its hardly masked vector, and have its self seed opened by exactly these neighbours.
        """
        owners = np.flatnonzero(self._survivors & self._senders).tolist()
        views = messages.unpack_column(request.view_signatures, len(owners), messages.SIGNATURE_BYTES, "views")
        seen = keys.view_message(self._transcript, self._sharers_bitmap)
        for owner, signature in zip(owners, views, strict=True):
            self._require_signed(owner, signature, seen, "the list of sharers")

    def _require_signed(self, signer: int, signature: bytes, message: bytes, what: str) -> None:
        name = self.setup.names[signer]
        try:
            keys.verify(self.setup.roster[name], signature, message, name, what)
        except ForgedSignature as error:
            raise InconsistentSurvivors(f"{error}: another list was signed, or the signature is forged") from None

    def _require_quorum(self, count: int, whom: str) -> None:
        quorum = self.setup.plan.quorum
        if count < quorum:
            raise TooFewSurvivors(f"{count} {whom} are left; {quorum} are needed to hide a single vector")

    def _channel_key(self, peer: int, secrets: _Secrets, sender: int, receiver: int) -> bytes:
        """The key that seals the one message from sender to receiver."""
        agreed = keys.agree(secrets.channel, self._adverts[peer].channel_key)
        return keys.derive_key(agreed, keys.CHANNEL, self._transcript, sender, receiver)

    def _take_adverts(self, parties: list[int], column: bytes) -> None:
        entries = messages.unpack_column(column, len(parties), messages.ADVERT_BYTES, "adverts")
        for peer, packed in zip(parties, entries, strict=True):
            self._adverts[peer] = messages.unpack_advert(packed, self.setup, peer)

    def _holders_of(self, owner: int, nonce: bytes) -> IntArray:
        plan = self.setup.plan
        return holders_of(owner, nonce, self.setup.digest, plan.parties, plan.neighbours)
