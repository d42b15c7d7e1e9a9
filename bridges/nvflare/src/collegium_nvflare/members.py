"""The coordinator's own: authority, identity and members of a consortium whose sites join over NVFlare's channel."""

import logging

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.coordinator.membership.enrolment_service import keep_identity
from collegium.coordinator.membership.members import Member, Members
from collegium.coordinator.settings.consortium import ConsortiumConfig, ConsortiumFolder
from collegium.errors import CollegiumError, ConfigurationError, IdentityError
from collegium.protocol.certificates import Authority, read_request
from collegium.protocol.identities import AUTHORITY, load_authority, read_signing_key, save_authority
from collegium.protocol.roster import Roster
from collegium.whole_files import make_folder

logger = logging.getLogger("collegium.coordinator")


class JobMembers:
    """Certifies the keys of sites, each under the name by which NVFlare knows it, and keeps the first key of a name.

    Raises
    ------
    ConfigurationError, StorageError, IdentityError
        If the folder is another consortium's or cannot be used.
    """

    def __init__(self, config: ConsortiumConfig, place: ConsortiumFolder) -> None:
        self._config, self._place = config, place
        make_folder(place.path, mode=0o700)
        if not (place.authority / AUTHORITY).exists():
            save_authority(Authority.create(config.name), place.authority)
        self._authority = load_authority(place.authority)
        keep_identity(place, config, self._authority)
        place.members.change(lambda members: (members, None), first=Members(consortium=config.name))
        if place.members.read().consortium != config.name:
            raise ConfigurationError(f"{place.path} is the folder of {place.members.read().consortium!r}")

    @property
    def signing_key(self) -> Ed25519PrivateKey:
        """The coordinator's, which signs the ledger."""
        return read_signing_key(self._place.identity)

    @property
    def authority_pem(self) -> str:
        return self._authority.pem.decode()

    def roster(self) -> Roster:
        """The sites that joined, in this job or an earlier one, and are expected still."""
        return self._place.members.read().roster().only(self._config.consortium.parties)

    def certify(self, name: str, request_pem: bytes) -> str:
        """A certificate for the keys of a site, PEM.

        Raises IdentityError where the request is not of that site, or its name has another key already.
        """
        asked, role, key = read_request(request_pem)
        if (asked, role) != (name, "party"):
            raise IdentityError(f"the signing request is not for the site {name!r}")
        pem = self._authority.issue(request_pem, name=name, role="party", days=self._config.consortium.certificate_days)

        def enrolled(members: Members) -> tuple[Members, CollegiumError | None]:
            member = members.members.get(name, Member())
            others = {other.signing_key for known, other in members.members.items() if known != name}
            if member.signing_key not in (None, key.hex()) or key.hex() in (*others, *member.revoked_keys):
                return members, IdentityError(
                    f"{name} shows another key than before: restore its folder, or revoke it in a new consortium"
                )
            asking = members.with_member(name, member.model_copy(update={"request_pem": request_pem.decode()}))
            return asking.certified(pem.decode()), None

        error = self._place.members.change(enrolled)
        if error is not None:
            raise error
        return pem.decode()
