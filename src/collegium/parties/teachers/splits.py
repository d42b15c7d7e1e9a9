"""Which teacher learns from which record, such that one record touches one teacher only.

The teacher is chosen by a keyed hash of the record's own identity (or of its group's, e.g. a
patient's), never by its position and never to balance counts: adding, removing or changing a record
then leaves every other record where it is. The key is the party's secret, so that nobody outside can
aim a record at a teacher.

What that gives: adding or removing one record touches one teacher. Replacing it touches one teacher
where an identity of its own stays (a column of record or patient numbers); a record known by its
content alone becomes another record, which is one removed and one added: at most two teachers.
"""

import contextlib
import hashlib
import hmac
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigurationError, StorageError
from collegium.limits import MAX_TEACHERS_PER_PARTY
from collegium.whole_files import storing, write_whole

KEY_BYTES = 32
KEY_FILE = "split.key"


def assign_teachers(identities: Iterable[bytes], teachers: int, key: bytes) -> NDArray[np.int64]:
    """The teacher of each record, shape ``[records]``, values from 0 to ``teachers - 1``.

    Parameters
    ----------
    identities : bytes of each record
        What a record is, or the group it belongs to. Equal identities share a teacher.
    teachers : int
        Number of teachers, 1 to 1,000.
    key : bytes
        The party's secret of 32 bytes.

    Raises
    ------
    ConfigurationError
        If the number of teachers or the key's length is not allowed.
    """
    if not 1 <= teachers <= MAX_TEACHERS_PER_PARTY:
        raise ConfigurationError(f"a party has 1 to {MAX_TEACHERS_PER_PARTY} teachers, not {teachers}")
    if len(key) != KEY_BYTES:
        raise ConfigurationError(f"a split key has {KEY_BYTES} bytes, not {len(key)}")
    chosen = [
        # 128 bits leave the remainder's bias below 1e-35.
        int.from_bytes(hmac.digest(key, b"collegium teacher\0" + identity, "sha256")[:16], "big") % teachers
        for identity in identities
    ]
    return np.array(chosen, dtype=np.int64)


def derive_key(key: bytes, purpose: str) -> bytes:
    """A 32-byte key for one purpose only, from the party's secret."""
    return hmac.digest(key, b"collegium purpose\0" + purpose.encode(), "sha256")


def simulated_key(run_seed: int, party: str) -> bytes:
    """The split key of a virtual party: the same for the same run seed and name, so that a run can be repeated.

    Only for simulations: whoever knows the seed knows the key.
    """
    return hashlib.sha256(f"collegium simulated split key\0{run_seed}\0{party}".encode()).digest()


def load_or_create_key(folder: Path) -> bytes:
    """The party's secret in ``folder``, created from the operating system's randomness at the first call.

    The file is readable by its owner only. A key that is there already is never replaced: another key
    would deal the records to other teachers.

    Raises
    ------
    StorageError
        If the key cannot be read or written, or is damaged.
    """
    path = folder / KEY_FILE
    with storing(f"use the key {path}"):
        folder.mkdir(parents=True, exist_ok=True)
        key = path.read_bytes() if path.exists() else _create_key(path)
    if len(key) != KEY_BYTES:
        raise StorageError(
            f"{path} is damaged: restore it from a backup; with another key records would change their teachers"
        )
    return key


def _create_key(path: Path) -> bytes:
    """Write a fresh key under a private name, then link it: two processes end with one and the same key."""
    own = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    write_whole(own, os.urandom(KEY_BYTES), mode=0o600)
    try:
        with contextlib.suppress(FileExistsError):  # another process was first: its key is the one
            os.link(own, path)
    finally:
        own.unlink()
    return path.read_bytes()
