"""The folder that holds one identity: keys, certificate and the authority it trusts.

    authority.pem     the consortium's certificate authority
    certificate.pem   this party's (or the coordinator's) certificate
    tls-key.pem       ECDSA P-256, mode 0600, never leaves the folder
    signing-key.pem   Ed25519, mode 0600, never leaves the folder

Enrolment is `create_identity` (makes the keys, returns the signing request), the authority's
`issue`, and `install_certificate`. A new certificate for the same signing key replaces the old one.
"""

import logging
import os
import stat
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.clock import utc_now
from collegium.errors import CollegiumError, IdentityError, StorageError
from collegium.protocol.certificates import (
    CERTIFICATE_DAYS,
    CLOCK_SKEW,
    Authority,
    Role,
    Subject,
    read_certificate,
    read_subject,
    signing_request,
    verify_issued,
)
from collegium.whole_files import make_folder, write_whole

logger = logging.getLogger("collegium.identities")

_Key = TypeVar("_Key", ec.EllipticCurvePrivateKey, Ed25519PrivateKey)

AUTHORITY, CERTIFICATE = "authority.pem", "certificate.pem"
TLS_KEY, SIGNING_KEY, AUTHORITY_KEY = "tls-key.pem", "signing-key.pem", "authority-key.pem"


@dataclass(frozen=True)
class Credentials:
    """A checked identity, ready for TLS and for signing."""

    subject: Subject
    authority_pem: bytes = field(repr=False)
    certificate_pem: bytes = field(repr=False)
    tls_key_pem: bytes = field(repr=False)
    signing_key: Ed25519PrivateKey = field(repr=False)

    @property
    def name(self) -> str:
        return self.subject.name

    @classmethod
    def load(cls, folder: Path, role: Role, *, now: datetime | None = None, expired: bool = False) -> "Credentials":
        """Read and check a folder. An IdentityError says which file is wrong and what to do.

        ``expired`` takes a certificate that has expired, for what needs no connection.
        """
        authority_pem = _read(folder / AUTHORITY)
        certificate_pem = _read(folder / CERTIFICATE)
        try:
            certificate, authority = read_certificate(certificate_pem), read_certificate(authority_pem)
            subject = read_subject(certificate)
            verify_issued(certificate, authority)
        except IdentityError as error:
            raise IdentityError(f"{folder}: {error}; ask the consortium for a new {CERTIFICATE}") from error
        if _tls_key(folder).public_key() != certificate.public_key():
            raise IdentityError(f"{folder / TLS_KEY} is not the key of {CERTIFICATE}: restore the one, or enrol again")
        signing_key = read_signing_key(folder)
        if signing_key.public_key().public_bytes_raw() != subject.signing_key:
            raise IdentityError(f"{folder / SIGNING_KEY} is not the key in {CERTIFICATE}: restore it, or enrol again")
        if subject.role != role:
            raise IdentityError(f"{folder} holds the identity of a {subject.role}; a {role}'s is needed here")
        credentials = cls(subject, authority_pem, certificate_pem, _read(folder / TLS_KEY), signing_key)
        if not expired:
            credentials.check_validity(now)
        return credentials

    def check_validity(self, now: datetime | None = None) -> None:
        """Raise IdentityError if the certificate or the authority's has expired or is not valid yet."""
        now = now or utc_now()
        for whose, pem in (("the certificate", self.certificate_pem), ("the authority", self.authority_pem)):
            certificate = read_certificate(pem)
            if now > certificate.not_valid_after_utc:
                expired = certificate.not_valid_after_utc.date().isoformat()
                remedy = "enrol again, with the same folder and no code"
                if pem is self.authority_pem:
                    remedy = "ask the consortium, which has to start anew"
                raise IdentityError(f"{whose} of {self.name} expired on {expired}: {remedy}")
            if now < certificate.not_valid_before_utc - CLOCK_SKEW:
                raise IdentityError(f"{whose} of {self.name} is not valid yet: check this machine's clock")


class RenewedCredentials:
    """The credentials in a folder, read again whenever its certificate was replaced. Safe for threads.

    A new certificate that cannot be used is reported once, and the earlier one stays in use.
    """

    def __init__(self, folder: Path, role: Role) -> None:
        self._folder, self._role = folder, role
        self._lock = threading.Lock()
        self._stamp = self._stamped()
        self._credentials = Credentials.load(folder, role)

    def __call__(self) -> Credentials:
        with self._lock:
            if (stamp := self._stamped()) != self._stamp:
                self._stamp = stamp
                try:
                    self._credentials = Credentials.load(self._folder, self._role)
                except CollegiumError as error:
                    logger.error("%s; going on with the certificate from before", error)
                else:
                    logger.info("a new certificate, valid until %s", self._credentials.subject.not_after.date())
            return self._credentials

    def _stamped(self) -> tuple[int, int] | None:
        try:
            state = (self._folder / CERTIFICATE).stat()
        except OSError:
            return None
        return state.st_mtime_ns, state.st_ino


def create_identity(folder: Path, name: str, role: Role) -> bytes:
    """Make the keys that the folder lacks, and return a signing request for them, PEM.

    Keys that are there already are kept.
    """
    make_folder(folder, mode=0o700)
    if not (folder / SIGNING_KEY).exists():
        write_whole(folder / SIGNING_KEY, _key_pem(Ed25519PrivateKey.generate()), mode=0o600)
    if not (folder / TLS_KEY).exists():
        write_whole(folder / TLS_KEY, _key_pem(ec.generate_private_key(ec.SECP256R1())), mode=0o600)
    return signing_request(name, role, _tls_key(folder), read_signing_key(folder))


def install_certificate(folder: Path, role: Role, certificate_pem: bytes, authority_pem: bytes) -> Credentials:
    """Write an issued certificate beside its keys. If it does not fit them, raise IdentityError and write nothing."""
    certificate = read_certificate(certificate_pem)
    verify_issued(certificate, read_certificate(authority_pem))
    if _tls_key(folder).public_key() != certificate.public_key():
        raise IdentityError(f"the certificate is not for the key in {folder}")
    write_whole(folder / AUTHORITY, authority_pem)
    write_whole(folder / CERTIFICATE, certificate_pem)
    return Credentials.load(folder, role)


def issue_kit(
    authority: Authority,
    folder: Path,
    name: str,
    role: Role,
    *,
    hosts: Sequence[str] = (),
    days: int = CERTIFICATE_DAYS,
) -> Credentials:
    """Make and certify an identity in one step, for trials, tests and the coordinator's own identity."""
    request = create_identity(folder, name, role)
    certificate = authority.issue(request, name=name, role=role, hosts=hosts, days=days)
    return install_certificate(folder, role, certificate, authority.pem)


def save_authority(authority: Authority, folder: Path, passphrase: bytes | None = None) -> None:
    """Write the authority's certificate and key, if it has it, encrypted if there is a passphrase.

    Raises StorageError if an authority is there already.
    """
    if (folder / AUTHORITY).exists():
        raise StorageError(
            f"{folder} holds an authority already: with a new one every certificate would become invalid"
        )
    make_folder(folder, mode=0o700)
    if authority.key is not None:
        write_whole(folder / AUTHORITY_KEY, _key_pem(authority.key, passphrase), mode=0o600)
    write_whole(folder / AUTHORITY, authority.pem)


def read_authority(path: Path) -> Authority:
    """An authority of which only the certificate is here; IdentityError where the file holds none."""
    return Authority(read_certificate(_read(path)), None)


def load_authority(folder: Path, passphrase: bytes | None = None) -> Authority:
    """The authority saved in a folder, without its key where that is kept apart.

    Raises IdentityError if it is missing, its key does not fit or the passphrase is another.
    """
    certificate = read_authority(folder / AUTHORITY).certificate
    if not (folder / AUTHORITY_KEY).exists():
        return Authority(certificate, None)
    key = _private_key(folder / AUTHORITY_KEY, ec.EllipticCurvePrivateKey, passphrase)  # type: ignore[type-abstract]
    if key.public_key() != certificate.public_key():
        raise IdentityError(f"{folder / AUTHORITY_KEY} is not the key of {AUTHORITY}")
    return Authority(certificate, key)


def read_signing_key(folder: Path) -> Ed25519PrivateKey:
    """The Ed25519 key of an identity."""
    return _private_key(folder / SIGNING_KEY, Ed25519PrivateKey)  # type: ignore[type-abstract]


def _tls_key(folder: Path) -> ec.EllipticCurvePrivateKey:
    return _private_key(folder / TLS_KEY, ec.EllipticCurvePrivateKey)  # type: ignore[type-abstract]


def _key_pem(key: ec.EllipticCurvePrivateKey | Ed25519PrivateKey, passphrase: bytes | None = None) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        encryption = serialization.BestAvailableEncryption(passphrase)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def _private_key(path: Path, kind: type[_Key], passphrase: bytes | None = None) -> _Key:
    """The private key in a file that nobody else can read."""
    pem = _read(path)
    if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise IdentityError(f"others can read {path}: run chmod 600 on it, and enrol again if it may have been copied")
    try:
        key = serialization.load_pem_private_key(pem, password=passphrase)
    except (ValueError, TypeError) as error:
        wanted = "an unencrypted private key in PEM form" if passphrase is None else "a key under this passphrase"
        raise IdentityError(f"{path} is not {wanted}") from error
    if not isinstance(key, kind):
        raise IdentityError(f"{path} holds no {kind.__name__}: restore it, or move it away and enrol again")
    return key


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise IdentityError(f"{path} is missing: enrol first, or name the folder with the credentials") from error
    except OSError as error:
        raise IdentityError(f"cannot read {path}: {error.strerror}") from error
