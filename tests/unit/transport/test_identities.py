"""Identity folders and certificates: what is bound to what, and each way in which a folder can be wrong."""

from __future__ import annotations

import os
import stat
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtensionOID, NameOID

from collegium.clock import utc_now
from collegium.errors import IdentityError, StorageError
from collegium.protocol import certificates
from collegium.protocol.certificates import Authority, read_certificate, read_subject, signing_request
from collegium.protocol.identities import (
    AUTHORITY,
    AUTHORITY_KEY,
    CERTIFICATE,
    SIGNING_KEY,
    TLS_KEY,
    Credentials,
    RenewedCredentials,
    create_identity,
    install_certificate,
    issue_kit,
    load_authority,
    save_authority,
)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("oaks")


@pytest.fixture
def kit(authority: Authority, tmp_path: Path) -> Path:
    issue_kit(authority, tmp_path / "ash", "ash", "party")
    return tmp_path / "ash"


def test_a_kit_loads_and_binds_name_tls_key_and_signing_key(authority: Authority, kit: Path) -> None:
    credentials = Credentials.load(kit, "party")
    assert credentials.name == "ash"
    assert credentials.subject.signing_key == credentials.signing_key.public_key().public_bytes_raw()
    assert 364 <= (credentials.subject.not_after - utc_now()).days <= 365


def test_private_keys_are_for_the_owner_alone(kit: Path) -> None:
    for name in (TLS_KEY, SIGNING_KEY):
        assert stat.S_IMODE((kit / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(kit.stat().st_mode) == 0o700


def test_nothing_secret_in_the_text_of_credentials(authority: Authority, kit: Path) -> None:
    credentials = Credentials.load(kit, "party")
    secret = (kit / TLS_KEY).read_text().splitlines()[1]
    assert secret not in repr(credentials) and "PRIVATE" not in repr(credentials)
    assert "PrivateKey" not in repr(authority)


@pytest.mark.parametrize("name", [AUTHORITY, CERTIFICATE, TLS_KEY, SIGNING_KEY])
def test_a_missing_file_is_named(kit: Path, name: str) -> None:
    (kit / name).unlink()
    with pytest.raises(IdentityError, match=rf"{name} is missing"):
        Credentials.load(kit, "party")


@pytest.mark.parametrize("name", [AUTHORITY, CERTIFICATE, TLS_KEY, SIGNING_KEY])
def test_a_damaged_file_is_an_identity_error(kit: Path, name: str) -> None:
    (kit / name).write_bytes(b"-----BEGIN NOTHING-----\n")
    with pytest.raises(IdentityError):
        Credentials.load(kit, "party")


def test_keys_that_were_exchanged_or_a_folder_in_the_place_of_a_file_are_named(kit: Path) -> None:
    (kit / SIGNING_KEY).write_bytes((kit / TLS_KEY).read_bytes())
    with pytest.raises(IdentityError, match="holds no Ed25519PrivateKey: restore it"):
        Credentials.load(kit, "party")
    (kit / CERTIFICATE).unlink()
    (kit / CERTIFICATE).mkdir()
    with pytest.raises(IdentityError, match=rf"cannot read .*{CERTIFICATE}: Is a directory"):
        Credentials.load(kit, "party")


def test_a_new_certificate_that_cannot_be_used_is_told_once_and_the_earlier_one_stays(
    authority: Authority, kit: Path, caplog: pytest.LogCaptureFixture
) -> None:
    renewed, good = RenewedCredentials(kit, "party"), (kit / CERTIFICATE).read_bytes()
    before = renewed()
    for spoil in (lambda: (kit / CERTIFICATE).write_bytes(b"edited"), (kit / CERTIFICATE).unlink):
        caplog.clear()
        spoil()
        assert renewed() is before and renewed() is before
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "going on with the certificate from before" in caplog.text
    (kit / CERTIFICATE).write_bytes(good)
    assert renewed().certificate_pem == good and renewed() is not before


@pytest.mark.parametrize("name", [TLS_KEY, SIGNING_KEY])
def test_a_key_that_others_can_read_is_not_used(kit: Path, name: str) -> None:
    os.chmod(kit / name, 0o640)
    with pytest.raises(IdentityError, match="chmod 600"):
        Credentials.load(kit, "party")


@pytest.mark.parametrize("name", [TLS_KEY, SIGNING_KEY])
def test_another_s_key_does_not_fit(authority: Authority, kit: Path, tmp_path: Path, name: str) -> None:
    issue_kit(authority, tmp_path / "birch", "birch", "party")
    (kit / name).write_bytes((tmp_path / "birch" / name).read_bytes())
    with pytest.raises(IdentityError, match=rf"{name} is not the"):
        Credentials.load(kit, "party")


def test_a_certificate_of_another_authority_does_not_load(kit: Path) -> None:
    (kit / AUTHORITY).write_bytes(Authority.create("oaks").pem)
    with pytest.raises(IdentityError, match="another authority"):
        Credentials.load(kit, "party")


def test_an_expired_certificate_is_dated(kit: Path) -> None:
    late = utc_now() + timedelta(days=366)
    with pytest.raises(IdentityError, match=r"the certificate of ash expired on \d{4}-\d\d-\d\d"):
        Credentials.load(kit, "party", now=late)
    with pytest.raises(IdentityError, match="not valid yet"):
        Credentials.load(kit, "party", now=utc_now() - timedelta(days=1))


def test_an_expired_authority_is_noticed(tmp_path: Path) -> None:
    old = Authority.create("oaks", days=1)
    issue_kit(old, tmp_path, "ash", "party", days=30)
    with pytest.raises(IdentityError, match="the authority of ash expired"):
        Credentials.load(tmp_path, "party", now=utc_now() + timedelta(days=2))


def test_a_party_s_kit_is_no_coordinator_s(kit: Path) -> None:
    with pytest.raises(IdentityError, match="identity of a party"):
        Credentials.load(kit, "coordinator")


def test_a_request_is_issued_only_for_what_it_asks(authority: Authority, tmp_path: Path) -> None:
    request = create_identity(tmp_path, "ash", "party")
    for name, role in (("birch", "party"), ("ash", "coordinator")):
        with pytest.raises(IdentityError, match="signing request is for party ash"):
            authority.issue(request, name=name, role=role)  # type: ignore[arg-type]


def test_what_a_request_says_besides_the_name_does_not_reach_the_certificate(authority: Authority) -> None:
    tls_key, signing_key = ec.generate_private_key(ec.SECP256R1()), Ed25519PrivateKey.generate()
    plain = x509.load_pem_x509_csr(signing_request("ash", "party", tls_key, signing_key))
    boasting = x509.CertificateSigningRequestBuilder(
        x509.Name([*plain.subject, x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Ministry of Health")]),
        list(plain.extensions),
    )
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    request = boasting.add_extension(constraints, critical=True).sign(tls_key, hashes.SHA256())
    pem = authority.issue(request.public_bytes(serialization.Encoding.PEM), name="ash", role="party")
    certificate = read_certificate(pem)
    assert certificate.subject == plain.subject
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_nobody_gets_another_s_signing_key_certified(authority: Authority) -> None:
    """The planted theft: the victim's public key and proof, beside the thief's TLS key."""
    victim = x509.load_pem_x509_csr(
        signing_request("ash", "party", ec.generate_private_key(ec.SECP256R1()), Ed25519PrivateKey.generate())
    )
    thief = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(victim.subject)
    for extension in victim.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    stolen = builder.sign(thief, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    with pytest.raises(IdentityError, match="does not hold the signing key"):
        authority.issue(stolen, name="ash", role="party")


def asked_for(tls_key: Any, *extensions: x509.Extension[Any], common_name: str = "ash") -> bytes:
    """A request with these extensions."""
    builder = x509.CertificateSigningRequestBuilder(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]), list(extensions)
    )
    return builder.sign(tls_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_a_request_with_another_key_name_or_extension_is_refused(authority: Authority) -> None:
    tls_key, signing_key = ec.generate_private_key(ec.SECP256R1()), Ed25519PrivateKey.generate()
    names, signing = x509.load_pem_x509_csr(signing_request("ash", "party", tls_key, signing_key)).extensions
    value = signing.value.public_bytes()
    newer, longer = (
        x509.Extension(signing.oid, False, x509.UnrecognizedExtension(signing.oid, other))
        for other in (b"\x02" + value[1:], value + b"\0")
    )
    for request, told in (
        (asked_for(ec.generate_private_key(ec.SECP384R1()), names, signing), "is not ECDSA P-256"),
        (asked_for(rsa.generate_private_key(65537, 2048), names, signing), "is not ECDSA P-256"),
        (asked_for(tls_key, names, signing, common_name="oak"), "names no party: it was not made by Collegium"),
        (asked_for(tls_key, names), "carries no signing key"),
        (asked_for(tls_key, names, newer), "the signing key's extension is malformed"),
        (asked_for(tls_key, names, longer), "the signing key's extension is malformed"),
    ):
        with pytest.raises(IdentityError, match=told):
            authority.issue(request, name="ash", role="party")
    assert authority.issue(asked_for(tls_key, names, signing), name="ash", role="party")


def test_a_request_that_was_changed_after_it_was_signed_is_refused(authority: Authority) -> None:
    pem = signing_request("ash", "party", ec.generate_private_key(ec.SECP256R1()), Ed25519PrivateKey.generate())
    der = x509.load_pem_x509_csr(pem).public_bytes(serialization.Encoding.DER)
    edited = x509.load_der_x509_csr(der.replace(b"ash", b"oak")).public_bytes(serialization.Encoding.PEM)
    with pytest.raises(IdentityError, match="the signature of the signing request is wrong"):
        authority.issue(edited, name="oak", role="party")


def test_a_certificate_with_names_that_cannot_be_read_is_malformed(authority: Authority) -> None:
    assert authority.key is not None
    now, name = utc_now(), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ash")])
    garbled = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"garbage")
    builder = x509.CertificateBuilder(name, name, authority.key.public_key(), 1, now, now + timedelta(days=1))
    with pytest.raises(IdentityError, match="the certificate is malformed"):
        read_subject(builder.add_extension(garbled, critical=False).sign(authority.key, hashes.SHA256()))


def test_an_authority_whose_key_is_kept_apart_signs_nothing(authority: Authority, tmp_path: Path) -> None:
    request = create_identity(tmp_path, "ash", "party")
    with pytest.raises(IdentityError, match="key is kept apart: the request of party ash is signed there"):
        Authority(authority.certificate, None).issue(request, name="ash", role="party")


def test_a_host_that_is_no_name_of_one_is_refused(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="'h\xf6st' is neither a DNS name nor an IP address"):
        issue_kit(authority, tmp_path, "coordinator", "coordinator", hosts=["h\xf6st"])


def test_a_proof_is_for_one_name_alone() -> None:
    key, signing = ec.generate_private_key(ec.SECP256R1()), Ed25519PrivateKey.generate()
    statements = {certificates._signing_statement(name, key.public_key()) for name in ("ash", "birch")}
    assert len(statements) == 2
    assert signing_request("ash", "party", key, signing) != signing_request("birch", "party", key, signing)


@pytest.mark.parametrize(
    "pem", [b"", b"garbage", b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"]
)
def test_garbage_is_no_signing_request(authority: Authority, pem: bytes) -> None:
    with pytest.raises(IdentityError, match="not a certificate signing request"):
        authority.issue(pem, name="ash", role="party")


@pytest.mark.parametrize("name", ["", "Ash", "ash_1", "-ash", "a" * 64, "ash\n"])
def test_a_bad_name_is_refused_before_any_certificate(tmp_path: Path, name: str) -> None:
    with pytest.raises(IdentityError, match="not a name"):
        create_identity(tmp_path, name, "party")


def test_a_foreign_certificate_names_no_party() -> None:
    with pytest.raises(IdentityError, match="not made by Collegium"):
        read_subject(Authority.create("elms").certificate)


def test_certificates_are_good_for_their_role_alone(authority: Authority, tmp_path: Path) -> None:
    for role, usage in (("party", "clientAuth"), ("coordinator", "serverAuth")):
        kit = issue_kit(authority, tmp_path / role, "ash", role)  # type: ignore[arg-type]
        certificate = read_certificate(kit.certificate_pem)
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert [item._name for item in usages] == [usage]
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_renewal_keeps_the_signing_key_and_may_change_the_tls_key(authority: Authority, kit: Path) -> None:
    before = Credentials.load(kit, "party")
    (kit / TLS_KEY).unlink()
    after = issue_kit(authority, kit, "ash", "party")
    assert after.subject.signing_key == before.subject.signing_key
    assert after.subject.fingerprint != before.subject.fingerprint


def test_a_certificate_for_other_keys_is_not_installed(authority: Authority, kit: Path, tmp_path: Path) -> None:
    before = (kit / CERTIFICATE).read_bytes()
    other = create_identity(tmp_path / "other", "ash", "party")
    with pytest.raises(IdentityError, match="not for the key"):
        install_certificate(kit, "party", authority.issue(other, name="ash", role="party"), authority.pem)
    assert (kit / CERTIFICATE).read_bytes() == before


def test_an_authority_is_saved_once_and_found_again(authority: Authority, tmp_path: Path) -> None:
    save_authority(authority, tmp_path)
    assert load_authority(tmp_path).fingerprint == authority.fingerprint
    with pytest.raises(StorageError, match="holds an authority already"):
        save_authority(Authority.create("oaks"), tmp_path)


def test_an_authority_with_the_key_of_another_does_not_load(authority: Authority, tmp_path: Path) -> None:
    for name, one in (("ours", authority), ("theirs", Authority.create("oaks"))):
        save_authority(one, tmp_path / name)
    (tmp_path / "ours" / AUTHORITY_KEY).write_bytes((tmp_path / "theirs" / AUTHORITY_KEY).read_bytes())
    with pytest.raises(IdentityError, match=rf"{AUTHORITY_KEY} is not the key of {AUTHORITY}"):
        load_authority(tmp_path / "ours")
