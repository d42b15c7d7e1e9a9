"""How the coordinator opens a sum whose masked vectors it has: it has one list signed, and asks for shares.

What it needs for that, `Collected`, can be kept. Another process then opens the same sum with the same list, at once or
a day later: the parties give the same bytes again. Shares that were opened are never kept.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, combinations, islice
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from collegium.protocol.secure_sum import keys, messages, shamir
from collegium.protocol.secure_sum.errors import TooFewSurvivors, WrongShare
from collegium.protocol.secure_sum.hash_tree import HashTree
from collegium.protocol.secure_sum.plan import sampled
from collegium.protocol.secure_sum.setup import RingArray, SumSetup
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


@dataclass(frozen=True, eq=False)
class Collected:
    """The masked vectors of a sum, added up, and what opens it together with the parties' shares.

    Parameters
    ----------
    total : the sum of the masked vectors, shape ``[length]``; it tells nothing without the shares.
    transcript : tells the keys that were shown to the parties.
    sharers, survivors : the parties that shared keys, and those whose vectors are in the sum; bitmaps.
    views, commitments, mask_keys : of each sharer, by its index, its signature under the list of sharers (survivors
        alone), its commitment to its self seed, and its public mask key.
    senders, holders : of each sharer, the parties whose shares it holds, and those that hold its own; see `packed`.
    """

    setup: SumSetup
    total: RingArray
    transcript: bytes
    sharers: bytes
    survivors: bytes
    views: Mapping[int, bytes]
    commitments: Mapping[int, bytes]
    mask_keys: Mapping[int, bytes]
    senders: Mapping[int, bytes]
    holders: Mapping[int, bytes]

    def about(self) -> dict[str, Any]:
        """All but ``total``, as JSON has it."""
        by_party = {name: {str(index): one.hex() for index, one in getattr(self, name).items()} for name in _BY_PARTY}
        return {
            **self.setup.about(),
            **{name: getattr(self, name).hex() for name in _TEXTS},
            **by_party,
        }

    @classmethod
    def of(cls, about: Mapping[str, Any], total: RingArray) -> "Collected":
        """What `about` told of."""
        fields: dict[str, Any] = {name: bytes.fromhex(about[name]) for name in _TEXTS}
        fields |= {name: {int(i): bytes.fromhex(one) for i, one in about[name].items()} for name in _BY_PARTY}
        return cls(SumSetup.of(about), total, **fields)

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the survivors, sorted."""
        return tuple(self.setup.names[index] for index in self.members(self.survivors))

    def members(self, bitmap: bytes) -> list[int]:
        """The indices of a set of parties, ascending."""
        indices: list[int] = np.flatnonzero(messages.unpack_set(bitmap, self.setup.plan.parties, "parties")).tolist()
        return indices

    @cached_property
    def signed(self) -> bytes:
        """What survivors sign."""
        return keys.survivors_message(self.transcript, self.sharers, self.survivors)


def packed(parties: Sequence[int] | IntArray) -> bytes:
    """The indices of some parties, four bytes each."""
    return np.asarray(parties, dtype="<u4").tobytes()


def _unpacked(parties: bytes) -> list[int]:
    indices: list[int] = np.frombuffer(parties, dtype="<u4").tolist()
    return indices


_TEXTS = "transcript", "sharers", "survivors"
_BY_PARTY = "views", "commitments", "mask_keys", "senders", "holders"


class Opening:
    """Has one list of survivors signed, then takes the shares of all who signed; `CoordinatorSum` asks and waits."""

    def __init__(self, collected: Collected) -> None:
        self._collected, self._setup = collected, collected.setup
        self.survivors = collected.members(collected.survivors)
        """Who is asked to sign, ascending."""
        self._sharers = collected.members(collected.sharers)
        self._senders = {index: _unpacked(senders) for index, senders in collected.senders.items()}
        self.signatures: dict[int, bytes] = {}
        """Under the list, by survivor."""
        self._opened: defaultdict[int, dict[int, bytes]] = defaultdict(dict)
        self._liars: set[int] = set()
        """Holders without whose shares a secret opens that does not open with them."""

    def request_signatures(self) -> pb.SecureSumRequest:
        """What all survivors are asked first."""
        message = pb.SignSurvivors(survivors=self._collected.survivors)
        return pb.SecureSumRequest(setup=self._setup.digest, sign_survivors=message)

    def take_signature(self, index: int, signature: bytes) -> None:
        """Take one survivor's signature; raises ForgedSignature."""
        name = self._setup.names[index]
        keys.verify(self._setup.roster[name], signature, self._collected.signed, name, "the survivors' list")
        self.signatures[index] = signature

    def request_shares(self) -> dict[int, pb.SecureSumRequest]:
        """What each party that signed is asked then, by its index."""
        plan, collected, survivors = self._setup.plan, self._collected, set(self.survivors)
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
        total, survivors = self._collected.total.copy(), set(self.survivors)
        for owner in self._sharers:
            if owner in survivors:
                secret = self._open_secret(owner, partial(self._is_self_seed, owner))
                if secret is None:
                    raise WrongShare(f"the shares of {names[owner]}'s self seed do not open its commitment")
                key = keys.derive_key(secret, keys.SELF_MASK, setup.digest, owner)
                np.subtract(total, keys.mask(key, setup.length, setup.word), out=total)
            else:
                self._remove_pairwise_masks(total, owner, survivors)
        return SumResult(setup.decode(total, len(survivors)), self._collected.parties)

    def _open_secret(self, owner: int, fits: Callable[[bytes], bool]) -> bytes | None:
        """The secret of ``owner`` that ``fits`` what it committed to; None where its shares give no such secret.

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
        return None

    def _is_self_seed(self, owner: int, secret: bytes) -> bool:
        committed = keys.commit(keys.SELF_SEED_COMMITMENT, self._setup.digest, owner, secret)
        return committed == self._collected.commitments[owner]

    def _is_mask_key(self, owner: int, secret: bytes) -> bool:
        return keys.public_key(X25519PrivateKey.from_private_bytes(secret)) == self._collected.mask_keys[owner]

    def _remove_pairwise_masks(self, total: RingArray, owner: int, survivors: set[int]) -> None:
        """Take the masks that survivors share with a drop-out out of the sum."""
        setup, collected = self._setup, self._collected
        secret = self._open_secret(owner, partial(self._is_mask_key, owner))
        if secret is None:
            raise WrongShare(f"the shares of {setup.names[owner]}'s mask key do not open the key it advertised")
        private = X25519PrivateKey.from_private_bytes(secret)
        peers = (set(self._senders[owner]) | set(_unpacked(collected.holders[owner]))) & survivors
        for peer in peers:
            agreed = keys.agree(private, collected.mask_keys[peer])
            low, high = min(owner, peer), max(owner, peer)
            key = keys.derive_key(agreed, keys.PAIRWISE_MASK, collected.transcript, low, high)
            pair = keys.mask(key, setup.length, setup.word)
            # The surviving peer added this mask if its index is the lower one.
            (np.subtract if peer == low else np.add)(total, pair, out=total)
