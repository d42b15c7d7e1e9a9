"""The party's own coins: which people take part in one question, known to nobody outside.

A coin is a keyed function of the question and of the person alone. So a question that comes again finds the same
sample and cannot be averaged, another question (another stage, ledger, run, input or features) a fresh one, and
a person who comes or goes changes nobody else's coin.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from collegium.parties.teachers.splits import derive_key
from collegium.protocol.messages import CountNearest

_NAME_BYTES = 16


def sample_names(run_id: str, body: CountNearest) -> list[bytes]:
    """What names the sample of each query: all that a label is released under, but neither round nor distances.

    So the counts by distance and the counts by class of one query are about the same people.
    """
    common = "|".join(
        (
            "collegium-sample-v1",
            run_id,
            body.ledger_id,
            body.terms.stage,
            body.terms.mechanism,
            repr(sorted(body.terms.parameters.items())),
            body.features.digest(),
            body.inputs.pool_sha256,
        )
    )
    return [f"{common}|{index}".encode() for index in body.inputs.indices]


class Sampler:
    """Draws Poisson samples of the people behind some records.

    Parameters
    ----------
    key : the party's secret of 32 bytes.
    identities : who each record is; those of equal identity are sampled together.
    """

    def __init__(self, key: bytes, identities: Sequence[bytes]) -> None:
        naming = derive_key(key, "sampled people")
        self._coins = derive_key(key, "sampling coins")
        numbers: dict[bytes, int] = {}
        self.person = np.array([numbers.setdefault(identity, len(numbers)) for identity in identities], dtype=np.int64)
        """Number of the one whose record it is, shape ``[records]``."""
        self._names = b"".join(hmac.digest(naming, identity, "sha256")[:_NAME_BYTES] for identity in numbers)

    def drawn(self, question: bytes, rate: float) -> NDArray[np.bool_]:
        """Who takes part, shape ``[people]``: each with probability ``rate`` (to 2^-64, never more), independently.

        AES-256 under a key of the question's own, on the people's distinct names: a pseudorandom function but for
        the absence of collisions, which 2^-128 per pair hides.
        """
        below = int(rate * 2.0**64)
        if below >= 2**64:
            return np.ones(len(self._names) // _NAME_BYTES, dtype=bool)
        key = hmac.digest(self._coins, question, "sha256")
        # One block per person and one key per question: no block is ever encrypted twice.
        encryptor = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
        coins = np.frombuffer(encryptor.update(self._names) + encryptor.finalize(), dtype="<u8")[::2]
        drawn: NDArray[np.bool_] = coins < np.uint64(below)
        return drawn
