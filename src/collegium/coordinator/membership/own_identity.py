"""The coordinator's own certificate: made, and made anew before it ends or when the consortium's host changes."""

from __future__ import annotations

from datetime import timedelta

from cryptography.x509 import SubjectAlternativeName

from collegium.clock import utc_now
from collegium.coordinator.settings.consortium import ConsortiumConfig, ConsortiumFolder
from collegium.protocol.certificates import Authority, Role, read_certificate
from collegium.protocol.identities import CERTIFICATE, issue_kit

RENEW_BEFORE = timedelta(days=30)
"""It is made anew when it has less than this left."""

_COORDINATOR: Role = "coordinator"


def keep_identity(folder: ConsortiumFolder, config: ConsortiumConfig, authority: Authority) -> bool:
    """Make the certificate where it is missing, ends soon or is for another host; whether it was made.

    The keys stay, so that parties know it as before and the ledger's signatures go on.
    """
    held = folder.identity / CERTIFICATE
    host = config.consortium.host
    if held.exists():
        certificate = read_certificate(held.read_bytes())
        named = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
        known = {str(name.value) for name in named}
        if host in known and certificate.not_valid_after_utc - utc_now() > RENEW_BEFORE:
            return False
    days = max(config.consortium.certificate_days, RENEW_BEFORE.days + 1)
    issue_kit(authority, folder.identity, _COORDINATOR, _COORDINATOR, hosts=[host], days=days)
    return True
