"""Ed25519 signatures: each that is right is checked once in the life of a process."""

from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


@lru_cache(maxsize=8192)
def verify(public_key: bytes, signature: bytes, message: bytes) -> None:
    """Raise InvalidSignature unless the holder of the key signed the message, ValueError for what is no public key.

    Only that a signature was right is remembered, under all three. A ledger's file is opened again and again, and a
    process that plays many parties sees the same message many times.
    """
    Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
