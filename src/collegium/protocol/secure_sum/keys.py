"""Every key of the secure sum: derived by HKDF-SHA-256 under a label of its own, bound to one transcript.

The labels are the complete list of purposes; docs/research/secure-sum.md prints it. The primitives are those
of ``cryptography``; a key is used for one keystream or one sealed message, so nonces are zero.
"""

import hashlib
import struct
from functools import lru_cache

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from collegium import signatures
from collegium.protocol.secure_sum.errors import ForgedSignature, GarbledShare, SwappedKeys

PREFIX = b"collegium/v1/secure-sum/"
CHANNEL = PREFIX + b"share-channel"
PAIRWISE_MASK = PREFIX + b"pairwise-mask"
SELF_MASK = PREFIX + b"self-mask"
GRAPH = PREFIX + b"graph"
SELF_SEED_COMMITMENT = PREFIX + b"self-seed-commitment"
ADVERT_SIGNATURE = PREFIX + b"sign-advert"
VIEW_SIGNATURE = PREFIX + b"sign-view"
SURVIVORS_SIGNATURE = PREFIX + b"sign-survivors"
SAMPLE = PREFIX + b"sample"

_ZERO_NONCE = bytes(12)
_ZERO_NONCE_16 = bytes(16)


def derive_key(secret: bytes, purpose: bytes, transcript: bytes, *parties: int) -> bytes:
    """32 bytes for one purpose, one transcript and an ordered list of parties (RFC 5869)."""
    info = purpose + transcript + struct.pack(f"<{len(parties)}I", *parties)
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(secret)


def commit(purpose: bytes, setup: bytes, party: int, secret: bytes) -> bytes:
    """SHA-256 commitment of ``party`` to a 32-byte secret; hiding because the secret is uniform."""
    return hashlib.sha256(purpose + setup + struct.pack("<I", party) + secret).digest()


def public_key(private: X25519PrivateKey) -> bytes:
    """Raw public half."""
    return private.public_key().public_bytes_raw()


def agree(private: X25519PrivateKey, public: bytes) -> bytes:
    """X25519; raises SwappedKeys for a degenerate public key (of small order)."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise SwappedKeys("a public key is degenerate: no secret can be agreed with it") from None


def keystream(key: bytes, length: int) -> bytes:
    """``length`` bytes of ChaCha20 under a key that is used once."""
    return Cipher(algorithms.ChaCha20(key, _ZERO_NONCE_16), mode=None).encryptor().update(_zeros(length))


@lru_cache(maxsize=8)
def _zeros(length: int) -> bytes:
    return bytes(length)


def mask(key: bytes, length: int, word: np.dtype[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """A uniform vector of ring elements, shape ``[length]``."""
    return np.frombuffer(keystream(key, length * word.itemsize), dtype=word)


def seal(key: bytes, plaintext: bytes) -> bytes:
    """ChaCha20-Poly1305 under a key that seals one message; 16 bytes longer than the plaintext."""
    return ChaCha20Poly1305(key).encrypt(_ZERO_NONCE, plaintext, None)


def open_sealed(key: bytes, ciphertext: bytes, sender: str) -> bytes:
    """The plaintext; raises GarbledShare naming the sender."""
    try:
        return ChaCha20Poly1305(key).decrypt(_ZERO_NONCE, ciphertext, None)
    except InvalidTag:
        raise GarbledShare(f"the share from {sender} cannot be opened: garbage, or meant for another party") from None


def advert_message(setup: bytes, party: int, channel_key: bytes, mask_key: bytes, graph_nonce: bytes) -> bytes:
    """What a party signs when it advertises its keys."""
    return ADVERT_SIGNATURE + setup + struct.pack("<I", party) + channel_key + mask_key + graph_nonce


def view_message(transcript: bytes, sharers: bytes) -> bytes:
    """What a party signs with its masked vector: with whom, by its own knowledge, the vector is masked."""
    return VIEW_SIGNATURE + transcript + sharers


def survivors_message(transcript: bytes, sharers: bytes, survivors: bytes) -> bytes:
    """What a survivor signs: the adverts, who shared keys and who sent a vector (two equally long bitmaps)."""
    return SURVIVORS_SIGNATURE + transcript + sharers + survivors


def verify(identity: bytes, signature: bytes, message: bytes, signer: str, what: str) -> None:
    """Raises ForgedSignature unless ``signature`` is the signer's."""
    try:
        signatures.verify(identity, signature, message)
    except (InvalidSignature, ValueError):
        raise ForgedSignature(f"the signature of {signer} under {what} is not valid for this round") from None
