"""The coordinator's side of one secure sum: it relays, waits, adds up, and opens the total alone.

It never holds a single vector: masked vectors are added on arrival. A reply that breaks the
protocol is refused with a named error, and its sender counts as dropped out from then on.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations, islice

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from collegium.protocol.secure_sum import keys, messages, shamir
from collegium.protocol.secure_sum.errors import (
    MalformedMessage,
    ReplayedRound,
    SumAborted,
    TooFewSurvivors,
    UnexpectedParty,
    WrongShare,
)
from collegium.protocol.secure_sum.hash_tree import HashTree
from collegium.protocol.secure_sum.messages import Phase, phase_of
from collegium.protocol.secure_sum.plan import holders_of, sampled
from collegium.protocol.secure_sum.setup import RingArray, SumSetup
from collegium.protocol.secure_sum.state import Collected, packed, unpacked
from collegium.protocol.v1 import secure_sum_pb2 as pb
from collegium_accounting.units import IntArray

MAX_CHOICES_OF_SHARES = 500
"""So many choices of holders are tried for one secret."""


@dataclass(frozen=True, eq=False)
class SumResult:
    """The total and whose vectors it holds.

    Parameters
    ----------
    total : exact integer sum (with the parties' noise, if they add any), shape ``[length]``.
    survivors : names of the parties whose vectors are in it.
    """

    total: IntArray
    survivors: tuple[str, ...]


class Opening:
    """Has one list of survivors signed, then takes the shares of all who signed; `CoordinatorSum` asks and waits.

    What it needs for that, `Collected`, can be kept. Another process then opens the same sum with the same list, at
    once or a day later: the parties give the same bytes again. Shares that were opened are never kept.
    """

    def __init__(self, collected: Collected) -> None:
        self.collected, self._setup = collected, collected.setup
        self.survivors = collected.members(collected.survivors)
        """Who is asked to sign, ascending."""
        self._sharers = collected.members(collected.sharers)
        self._senders = {index: unpacked(senders) for index, senders in collected.senders.items()}
        self.signatures: dict[int, bytes] = {}
        """Under the list, by survivor."""
        self._opened: defaultdict[int, dict[int, bytes]] = defaultdict(dict)
        self._liars: set[int] = set()
        """Holders without whose shares a secret opens that does not open with them."""

    def take_signature(self, index: int, signature: bytes) -> None:
        """Take one survivor's signature; raises ForgedSignature."""
        name = self._setup.names[index]
        keys.verify(self._setup.roster[name], signature, self.collected.signed, name, "the survivors' list")
        self.signatures[index] = signature

    def request_shares(self) -> dict[int, pb.SecureSumRequest]:
        """What each party that signed is asked then, by its index."""
        plan, collected, survivors = self._setup.plan, self.collected, set(self.survivors)
        signers = sorted(self.signatures)
        signatures = [self.signatures[index] for index in signers]
        bitmap = messages.pack_set(np.array(signers, dtype=np.int64), plan.parties)
        dropped = np.array([index for index in self._sharers if index not in survivors], dtype=np.int64)
        tree = HashTree(signatures)
        shown = sampled(collected.signed, bitmap, tree.root, len(signatures), plan.majority)
        message = pb.Unmask(
            survivors=collected.survivors,
            dropped=messages.pack_set(dropped, plan.parties),
            signers=bitmap,
            root=tree.root,
            signatures=b"".join(signatures[position] for position in shown),
            proof=tree.proof(shown),
        )
        requests = {}
        for signer in signers:
            message.view_signatures = b"".join(collected.views[j] for j in self._senders[signer] if j in survivors)
            requests[signer] = pb.SecureSumRequest(setup=self._setup.digest, unmask=message)
        return requests

    def take_shares(self, index: int, message: pb.Unmasked) -> None:
        """Take the shares that one signer opens; raises MalformedMessage."""
        owners = self._senders[index]
        shares = messages.unpack_column(message.shares, len(owners), shamir.SHARE_BYTES, "opened shares")
        for owner, opened in zip(owners, shares, strict=True):
            self._opened[owner][index] = opened

    def result(self) -> SumResult:
        """The total.

        Raises
        ------
        TooFewSurvivors
            If a secret cannot be recovered.
        WrongShare, ImpossibleTotal
            When a dishonest party has spoiled the sum.
        """
        setup, names, threshold = self._setup, self._setup.names, self._setup.plan.threshold
        if short := [owner for owner in self._sharers if len(self._opened[owner]) < threshold]:
            raise TooFewSurvivors(
                f"the secret of {names[short[0]]} and {len(short) - 1} more cannot be recovered: "
                f"fewer than {threshold} of their holders answered"
            )
        total, survivors = self.collected.total.copy(), set(self.survivors)
        for owner in self._sharers:
            if owner in survivors:
                opens = partial(self._is_self_seed, owner)
                secret = self._open_secret(owner, opens, "self seed do not open its commitment")
                key = keys.derive_key(secret, keys.SELF_MASK, setup.digest, owner)
                np.subtract(total, keys.mask(key, setup.length, setup.word), out=total)
            else:
                self._remove_pairwise_masks(total, owner, survivors)
        return SumResult(setup.decode(total, len(survivors)), self.collected.parties)

    def _open_secret(self, owner: int, fits: Callable[[bytes], bool], otherwise: str) -> bytes:
        """The secret of ``owner`` that ``fits`` what it committed to; WrongShare where its shares give no such secret.

        Where the first shares do not, up to two holders at a time are left out, so that a few liars stop no round.
        """
        opened, threshold = self._opened[owner], self._setup.plan.threshold
        trusted = [holder for holder in sorted(opened) if holder not in self._liars]
        choices = chain.from_iterable(combinations(trusted, count) for count in range(3))
        for left_out in islice(choices, MAX_CHOICES_OF_SHARES):
            holders = tuple(holder for holder in trusted if holder not in left_out)[:threshold]
            if len(holders) == threshold:
                with suppress(WrongShare):
                    secret = shamir.open_secret(holders, [opened[holder] for holder in holders])
                    if fits(secret):
                        self._liars.update(left_out)
                        return secret
        raise WrongShare(f"the shares of {self._setup.names[owner]}'s {otherwise}")

    def _is_self_seed(self, owner: int, secret: bytes) -> bool:
        committed = keys.commit(keys.SELF_SEED_COMMITMENT, self._setup.digest, owner, secret)
        return committed == self.collected.commitments[owner]

    def _is_mask_key(self, owner: int, secret: bytes) -> bool:
        return keys.public_key(X25519PrivateKey.from_private_bytes(secret)) == self.collected.mask_keys[owner]

    def _remove_pairwise_masks(self, total: RingArray, owner: int, survivors: set[int]) -> None:
        """Take the masks that survivors share with a drop-out out of the sum."""
        setup, collected = self._setup, self.collected
        opens = partial(self._is_mask_key, owner)
        secret = self._open_secret(owner, opens, "mask key do not open the key it advertised")
        private = X25519PrivateKey.from_private_bytes(secret)
        peers = (set(self._senders[owner]) | set(unpacked(collected.holders[owner]))) & survivors
        for peer in peers:
            agreed = keys.agree(private, collected.mask_keys[peer])
            low, high = min(owner, peer), max(owner, peer)
            key = keys.derive_key(agreed, keys.PAIRWISE_MASK, collected.transcript, low, high)
            pair = keys.mask(key, setup.length, setup.word)
            # The surviving peer added this mask if its index is the lower one.
            (np.subtract if peer == low else np.add)(total, pair, out=total)


# More than 15 methods: a state machine: two for each phase.
class CoordinatorSum:
    """One round: ``requests()``, ``accept()`` for each reply, ``close_phase()``, five times; then ``result``."""

    def __init__(self, setup: SumSetup) -> None:
        self.setup = setup
        self.phase = Phase.ADVERTISE
        self._failed = False
        self._result: SumResult | None = None
        self._asked: set[int] = set(range(setup.plan.parties))
        self._answered: set[int] = set()
        parameters = pb.AdvertiseKeys(parameters=setup.parameters())
        self._shared_request = pb.SecureSumRequest(setup=setup.digest, advertise_keys=parameters)
        self._own_requests: dict[int, pb.SecureSumRequest] = {}
        self._adverts: dict[int, messages.Advert] = {}
        self._holders: dict[int, IntArray] = {}
        """Of each party those that advertised keys."""
        self._seed_commitments: dict[int, bytes] = {}
        self._sealed: dict[int, list[bytes]] = {}
        self._senders: dict[int, list[int]] = {}
        self._sum: RingArray = np.zeros(setup.length, dtype=setup.word)
        self._views: dict[int, bytes] = {}
        self._opening: Opening | None = None

    @classmethod
    def resumed(cls, collected: Collected) -> "CoordinatorSum":
        """The same sum again, before survivors are asked to sign."""
        self = cls(collected.setup)
        self.phase = Phase.SIGN
        self._begin_opening(collected)
        self._asked = set(self.opening.survivors)
        return self

    @property
    def opening(self) -> Opening:
        """How the sum is opened, once all masked vectors are there; SumAborted before.

        Keep what was ``collected``, and `resumed` goes on from it.
        """
        if self._opening is None:
            raise SumAborted("the masked vectors are not collected yet")
        return self._opening

    def requests(self) -> dict[str, pb.SecureSumRequest]:
        """The current phase's request for every party that it concerns, answered or not."""
        self._require_running()
        names = self.setup.names
        return {names[i]: self._own_requests.get(i, self._shared_request) for i in sorted(self._asked)}

    @property
    def result(self) -> SumResult:
        """The total; raises SumAborted before the last phase is closed."""
        if self._result is None:
            raise SumAborted("the sum is not finished: close all five phases first")
        return self._result

    def accept(self, party: str, reply: pb.SecureSumReply) -> None:
        """Take one party's reply to this phase's request.

        Raises
        ------
        UnexpectedParty
            When the party was not asked in this phase or has answered (its first answer stands).
        SecureSumViolation
            When the reply breaks the protocol; the party then counts as dropped out.
        """
        self._require_running()
        index = self.setup.index.get(party, -1)
        if index not in self._asked or index in self._answered:
            raise UnexpectedParty(f"{party} was not asked in this phase, or has answered it already")
        try:
            if reply.setup != self.setup.digest:
                raise ReplayedRound(f"the reply of {party} belongs to another round")
            if phase_of(reply) is not self.phase:
                raise MalformedMessage(f"{party} answered another phase than {self.phase.name.lower()}")
            self._take(index, reply)
        except Exception:
            self._asked.discard(index)
            raise
        self._answered.add(index)

    def close_phase(self) -> None:
        """Go on with those who answered; whoever did not has dropped out.

        Raises
        ------
        TooFewSurvivors
            When fewer than the quorum are left, or a secret cannot be recovered.
        WrongShare, ImpossibleTotal
            When a dishonest party has spoiled the sum. No total is released.
        """
        self._require_running()
        try:
            self._close()
        except Exception:
            self._failed = True
            raise

    def _require_running(self) -> None:
        if self._failed or self.phase is Phase.DONE:
            raise SumAborted("this sum is finished or has failed; start a new round")

    def _close(self) -> None:
        plan, left = self.setup.plan, len(self._answered)
        needed = plan.least_summed if self.phase <= Phase.MASK else plan.quorum
        if left < needed and self.phase is not Phase.UNMASK:
            raise TooFewSurvivors(
                f"{left} of {plan.parties} parties answered {self.phase.name.lower()}; {needed} are needed"
            )
        order = np.array(sorted(self._answered), dtype=np.int64)
        if self.phase is Phase.ADVERTISE:
            self._prepare_share_keys(order)
        elif self.phase is Phase.SHARE:
            self._prepare_mask_input(order)
        elif self.phase is Phase.MASK:
            self._prepare_sign_survivors(order)
        elif self.phase is Phase.SIGN:
            self._own_requests = self.opening.request_shares()
        else:
            self._result = self.opening.result()
        self.phase = Phase(self.phase + 1)
        self._asked, self._answered = self._answered, set()

    def _take(self, index: int, reply: pb.SecureSumReply) -> None:
        if self.phase is Phase.ADVERTISE:
            self._take_advert(index, reply.keys_advertised)
        elif self.phase is Phase.SHARE:
            self._take_shares(index, reply.keys_shared)
        elif self.phase is Phase.MASK:
            self._take_vector(index, reply.input_masked)
        elif self.phase is Phase.SIGN:
            self.opening.take_signature(index, reply.survivors_signed.signature)
        else:
            self.opening.take_shares(index, reply.unmasked)

    def _take_advert(self, index: int, message: pb.KeysAdvertised) -> None:
        self._adverts[index] = messages.unpack_advert(message.advert, self.setup, index)

    def _prepare_share_keys(self, participants: IntArray) -> None:
        plan, digest = self.setup.plan, self.setup.digest
        advertised = np.zeros(plan.parties, dtype=np.bool_)
        advertised[participants] = True
        tree = HashTree([self._adverts[i].pack() if i in self._adverts else b"" for i in range(plan.parties)])
        self._transcript = digest + tree.root
        for i in participants.tolist():
            holders = holders_of(i, self._adverts[i].graph_nonce, digest, plan.parties, plan.neighbours)
            shown = self._holders[i] = holders[advertised[holders]]
            message = pb.ShareKeys(
                holders=messages.pack_set(shown, plan.parties),
                adverts=self._packed_adverts(shown),
                root=tree.root,
                proof=tree.proof([i, *shown.tolist()]),
            )
            self._own_requests[i] = pb.SecureSumRequest(setup=digest, share_keys=message)

    def _packed_adverts(self, parties: Iterable[int]) -> bytes:
        return b"".join(self._adverts[int(i)].pack() for i in parties)

    def _take_shares(self, index: int, message: pb.KeysShared) -> None:
        name = self.setup.names[index]
        count = self._holders[index].size
        sealed = messages.unpack_column(message.shares, count, messages.SEALED_BYTES, f"shares of {name}")
        self._seed_commitments[index] = messages.fixed(
            message.self_seed_commitment, messages.KEY_BYTES, "self_seed_commitment"
        )
        self._sealed[index] = sealed

    def _prepare_mask_input(self, sharers: IntArray) -> None:
        parties, digest = self.setup.plan.parties, self.setup.digest
        inbox: dict[int, list[tuple[int, bytes]]] = {i: [] for i in sharers.tolist()}
        for sender in sharers.tolist():
            for holder, sealed in zip(self._holders[sender].tolist(), self._sealed.pop(sender), strict=True):
                if holder in inbox:
                    inbox[holder].append((sender, sealed))
        sharers_bitmap = messages.pack_set(sharers, parties)
        self._sharers, self._sharers_bitmap = sharers, sharers_bitmap
        for receiver, entries in inbox.items():
            senders = self._senders[receiver] = [sender for sender, _ in entries]
            known = set(self._holders[receiver].tolist())
            message = pb.MaskInput(
                sharers=sharers_bitmap,
                senders=messages.pack_set(np.array(senders, dtype=np.int64), parties),
                shares=b"".join(sealed for _, sealed in entries),
                adverts=self._packed_adverts(sender for sender in senders if sender not in known),
            )
            self._own_requests[receiver] = pb.SecureSumRequest(setup=digest, mask_input=message)

    def _take_vector(self, index: int, message: pb.InputMasked) -> None:
        name = self.setup.names[index]
        vector = messages.unpack_vector(message, self.setup)
        seen = keys.view_message(self._transcript, self._sharers_bitmap)
        keys.verify(self.setup.roster[name], message.view_signature, seen, name, "the list of sharers")
        self._views[index] = message.view_signature
        np.add(self._sum, vector, out=self._sum)

    def _prepare_sign_survivors(self, survivors: IntArray) -> None:
        sharers = self._sharers.tolist()
        collected = Collected(
            self.setup,
            self._sum,
            self._transcript,
            self._sharers_bitmap,
            messages.pack_set(survivors, self.setup.plan.parties),
            dict(self._views),
            {i: self._seed_commitments[i] for i in sharers},
            {i: self._adverts[i].mask_key for i in sharers},
            {i: packed(self._senders[i]) for i in sharers},
            {i: packed(self._holders[i]) for i in sharers},
        )
        self._begin_opening(collected)

    def _begin_opening(self, collected: Collected) -> None:
        self._opening = Opening(collected)
        self._own_requests.clear()
        message = pb.SignSurvivors(survivors=collected.survivors)
        self._shared_request = pb.SecureSumRequest(setup=self.setup.digest, sign_survivors=message)
