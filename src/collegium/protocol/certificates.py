"""The X.509 certificates of a consortium: its authority, signing requests, and certificates of each role.

TLS keys are ECDSA P-256, because gRPC's TLS library takes no Ed25519 certificates. Each certificate also holds its
owner's Ed25519 signing key, in an extension that the owner has signed. One document thus binds name, TLS key and
signing key, and nobody can get a certificate for another's signing key. The functions here work on bytes;
`collegium.protocol.identities` reads and writes the files.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, get_args

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from collegium import signatures
from collegium.clock import utc_now
from collegium.data.task import PARTY_NAME
from collegium.data.values import check_party_name
from collegium.errors import IdentityError

Role = Literal["party", "coordinator"]

SIGNING_KEY_OID = x509.ObjectIdentifier("2.25.226015053978625745633806602240951590548")
"""The extension holds version byte 1, the Ed25519 public key (32 bytes) and its signature on the TLS key (64 bytes)."""
SIGNING_KEY_PURPOSE = b"collegium/v1/signing-key-of/"

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True)
class Subject:
    """What a certificate says about its holder."""

    name: str
    role: Role
    signing_key: bytes
    """Ed25519 public key, 32 bytes."""
    fingerprint: str
    """SHA-256 of the certificate, hexadecimal."""
    not_after: datetime


@dataclass(frozen=True)
class Authority:
    """The consortium's certificate authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | None = field(repr=False)
    """None where it is kept apart: what it signs then comes in files."""

    @classmethod
    def create(cls, consortium: str, *, days: int = AUTHORITY_DAYS, now: datetime | None = None) -> "Authority":
        now = now or utc_now()
        key = ec.generate_private_key(ec.SECP256R1())
        name = _common_name(f"{consortium} authority")
        certificate = (
            _builder(name, name, key.public_key(), now, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the authority's certificate, hexadecimal. A party compares it when it enrols."""
        return self.certificate.fingerprint(hashes.SHA256()).hex()

    def issue(
        self,
        request_pem: bytes,
        *,
        name: str,
        role: Role,
        hosts: Sequence[str] = (),
        days: int = CERTIFICATE_DAYS,
        now: datetime | None = None,
    ) -> bytes:
        """A certificate, PEM, for the keys in a signing request.

        ``name`` and ``role`` are the consortium's decision and must be what the request asks for.
        ``hosts`` are the DNS names and IP addresses by which others reach a coordinator. A coordinator's certificate
        is valid for a server only, every other certificate for a client only.
        Raises IdentityError if the request is malformed, asks for another name or role, or does not prove its keys,
        or if the authority's key is not here.
        """
        if self.key is None:
            raise IdentityError(f"the authority's key is kept apart: the request of {role} {name} is signed there")
        request = _load_request(request_pem)
        asked, asked_role, _ = _holder(request)
        if (asked, asked_role) != (name, role):
            raise IdentityError(f"the signing request is for {asked_role} {asked}, not for {role} {name}")
        usage = ExtendedKeyUsageOID.SERVER_AUTH if role == "coordinator" else ExtendedKeyUsageOID.CLIENT_AUTH
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        certificate = (
            # The name alone: the authority has checked nothing else that the request says about its maker.
            _builder(_common_name(name), self.certificate.subject, _tls_key(request), now or utc_now(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectAlternativeName([_uri(name, role), *map(_host, hosts)]), critical=False)
            .add_extension(authority_key, critical=False)
            .add_extension(_signing_extension(request.extensions), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)


def signing_request(
    name: str, role: Role, tls_key: ec.EllipticCurvePrivateKey, signing_key: Ed25519PrivateKey
) -> bytes:
    """A certificate signing request, PEM, that proves possession of both keys."""
    check_party_name(name, IdentityError)
    proof = signing_key.sign(_signing_statement(name, tls_key.public_key()))
    extension = x509.UnrecognizedExtension(
        SIGNING_KEY_OID, b"\x01" + signing_key.public_key().public_bytes_raw() + proof
    )
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_common_name(name))
        .add_extension(x509.SubjectAlternativeName([_uri(name, role)]), critical=False)
        .add_extension(extension, critical=False)
        .sign(tls_key, hashes.SHA256())
    )
    return request.public_bytes(serialization.Encoding.PEM)


def read_request(pem: bytes) -> tuple[str, Role, bytes]:
    """Name, role and Ed25519 signing key of a request. Raises IdentityError unless it proves both of its keys."""
    return _holder(_load_request(pem))


def pem_blocks(data: bytes) -> list[bytes]:
    """The requests or certificates that stand in a file one after the other, PEM."""
    return re.findall(rb"-----BEGIN [A-Z ]+-----[^-]+-----END [A-Z ]+-----\n?", data)


def read_certificate(pem: bytes) -> x509.Certificate:
    """The first certificate in ``pem``. Raises IdentityError if there is none."""
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise IdentityError("not a certificate in PEM form") from error


def read_subject(certificate: x509.Certificate) -> Subject:
    """Who holds a certificate. Raises IdentityError if Collegium did not make it.

    This does not check who issued it: `verify_issued` does, and TLS does on every connection.
    """
    try:
        name, role, signing_key = _holder(certificate)
    except ValueError as error:
        raise IdentityError("the certificate is malformed") from error
    fingerprint = certificate.fingerprint(hashes.SHA256()).hex()
    return Subject(name, role, signing_key, fingerprint, certificate.not_valid_after_utc)


def is_for(certificate: x509.Certificate, request_pem: bytes) -> bool:
    """Whether a certificate is for the TLS key of a request."""
    return certificate.public_key() == _load_request(request_pem).public_key()


def verify_issued(certificate: x509.Certificate, authority: x509.Certificate) -> None:
    """Raise IdentityError unless ``authority`` signed ``certificate``."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise IdentityError("the certificate was issued by another authority") from error


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _uri(name: str, role: Role) -> x509.UniformResourceIdentifier:
    return x509.UniformResourceIdentifier(f"urn:collegium:{role}:{name}")


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise IdentityError(f"{host!r} is neither a DNS name nor an IP address") from error


def _holder(document: x509.Certificate | x509.CertificateSigningRequest) -> tuple[str, Role, bytes]:
    """Name, role and signing key; IdentityError unless it names them as ours do, and the key proves itself.

    Name and role are in the alternative names; the subject's common name must repeat the name.
    """
    try:
        names = document.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = list(names.get_values_for_type(x509.UniformResourceIdentifier))
    except x509.ExtensionNotFound:
        uris = []
    common = [str(attribute.value) for attribute in document.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    for role in get_args(Role):
        prefix = f"urn:collegium:{role}:"
        if len(uris) == 1 and uris[0].startswith(prefix):
            name = uris[0].removeprefix(prefix)
            if PARTY_NAME.fullmatch(name) and common == [name]:
                value = _signing_extension(document.extensions).value
                return name, role, _checked_signing_key(value, name, _tls_key(document))
    raise IdentityError("the certificate names no party: it was not made by Collegium")


def _tls_key(document: x509.Certificate | x509.CertificateSigningRequest) -> ec.EllipticCurvePublicKey:
    key = document.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IdentityError("the key of the certificate or signing request is not ECDSA P-256")
    return key


def _signing_extension(extensions: x509.Extensions) -> x509.UnrecognizedExtension:
    try:
        value = extensions.get_extension_for_oid(SIGNING_KEY_OID).value
    except x509.ExtensionNotFound as error:
        raise IdentityError("the certificate carries no signing key: it was not made by Collegium") from error
    assert isinstance(value, x509.UnrecognizedExtension)
    return value


def _signing_statement(name: str, tls_key: ec.EllipticCurvePublicKey) -> bytes:
    public = tls_key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return SIGNING_KEY_PURPOSE + name.encode() + b"\x00" + public


def _checked_signing_key(value: bytes, name: str, tls_key: ec.EllipticCurvePublicKey) -> bytes:
    if len(value) != 97 or value[0] != 1:
        raise IdentityError("the signing key's extension is malformed")
    public, proof = value[1:33], value[33:]
    try:
        signatures.verify(public, proof, _signing_statement(name, tls_key))
    except InvalidSignature as error:
        raise IdentityError("the holder of the TLS key does not hold the signing key beside it") from error
    return public


def _load_request(pem: bytes) -> x509.CertificateSigningRequest:
    try:
        request = x509.load_pem_x509_csr(pem)
        request.public_key()
        request.extensions  # noqa: B018 -- parses them, so that a malformed one is refused here
    except (ValueError, TypeError) as error:
        raise IdentityError("not a certificate signing request in PEM form") from error
    if not request.is_signature_valid:
        raise IdentityError("the signature of the signing request is wrong")
    return request
