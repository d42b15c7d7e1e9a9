"""The coordinator's side of one secure sum: it relays, waits, adds up, and opens the total alone.

It never holds a single vector: masked vectors are added on arrival. A reply that breaks the
protocol is refused with a named error, and its sender counts as dropped out from then on.
"""

from collections.abc import Iterable

import numpy as np

from collegium.protocol.secure_sum import keys, messages
from collegium.protocol.secure_sum.errors import (
    MalformedMessage,
    ReplayedRound,
    SumAborted,
    TooFewSurvivors,
    UnexpectedParty,
)
from collegium.protocol.secure_sum.hash_tree import HashTree
from collegium.protocol.secure_sum.messages import Phase, phase_of
from collegium.protocol.secure_sum.opening import Collected, Opening, SumResult, packed
from collegium.protocol.secure_sum.plan import holders_of
from collegium.protocol.secure_sum.setup import RingArray, SumSetup
from collegium.protocol.v1 import secure_sum_pb2 as pb
from collegium_accounting.units import IntArray


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
        self.collected: Collected | None = None
        """What the opening needs, once all masked vectors are there; keep it, and `resumed` goes on from it."""
        self._opening: Opening | None = None

    @classmethod
    def resumed(cls, collected: Collected) -> "CoordinatorSum":
        """The same sum again, before survivors are asked to sign."""
        self = cls(collected.setup)
        self.phase, self.collected = Phase.SIGN, collected
        self._begin_opening(collected)
        self._asked = set(self.opening.survivors)
        return self

    @property
    def opening(self) -> Opening:
        """How the sum is opened; SumAborted before all masked vectors are there."""
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
        self.collected = Collected(
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
        self._begin_opening(self.collected)

    def _begin_opening(self, collected: Collected) -> None:
        self._opening = Opening(collected)
        self._own_requests.clear()
        self._shared_request = self._opening.request_signatures()
