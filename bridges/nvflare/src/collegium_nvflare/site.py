"""A site as a party: its two files, its keys, and what it does when it joins, is admitted and is asked."""

from pathlib import Path

from collegium.data.task import Task
from collegium.errors import ConfigurationError, IdentityError
from collegium.parties.config import PartyConfig
from collegium.parties.enrolment import TASKS, enrolled_tasks, keep_tasks
from collegium.parties.known_roster import KnownRoster, begin
from collegium.parties.opening import Opening
from collegium.parties.session import Answers
from collegium.protocol.codec import parse_json
from collegium.protocol.identities import AUTHORITY, Credentials, create_identity, install_certificate
from collegium.protocol.roster import Roster
from collegium.whole_files import make_private, read_whole, remove_stale_temp_files, write_whole

STATE = Path("state")
TASK = "task.json"
"""What a job means to learn, in its configuration."""


class SiteConfig(PartyConfig):
    """party.toml of a site: whom it is summed with and its records; the rest follows from NVFlare's job."""

    coordinator: str = "the server of NVFlare's federation"
    folder: Path = STATE
    credentials: Path = STATE / "credentials"
    roster: Path | None = STATE / "roster.json"
    policy: Path | None = Path("policy.toml")


class Site:
    """The party ``name`` of one job.

    Parameters
    ----------
    file : its party.toml.
    task : what the job means to learn. The first one is agreed to by serving it; another one is refused.

    Raises
    ------
    ConfigurationError, StorageError
        If a file is missing or wrong.
    """

    def __init__(self, name: str, file: Path, task: Task) -> None:
        self._name, self._file, self._task = name, file, task
        self._config = SiteConfig.read(file)
        self._config.data.require_decision()
        known = enrolled_tasks(file.parent)
        if known and task not in known:
            raise ConfigurationError(
                f"the job's task is none that this institution agreed to: to agree to it, remove {file.parent / TASKS}"
            )
        make_private(self._config.folder)
        remove_stale_temp_files(self._config.folder)
        self._known: KnownRoster | None = None
        self._party: Answers | None = None

    def join(self) -> bytes:
        """A signing request for this site's keys, PEM; they are made where there are none."""
        return create_identity(self._config.credentials, self._name, "party")

    def admitted(self, certificate_pem: str, authority_pem: str, roster_json: str) -> str:
        """Take in who this party is and who takes part, and open it; returns the digest of the roster as it has it.

        Raises
        ------
        IdentityError
            If another authority certified it before, or the certificate does not fit its keys.
        ConfigurationError, StorageError, DataError
            If the party cannot be opened.
        """
        if (self._config.credentials / AUTHORITY).exists():
            self._require(authority_pem)
        credentials = install_certificate(
            self._config.credentials, "party", certificate_pem.encode(), authority_pem.encode()
        )
        assert self._config.roster is not None
        begin(self._config.roster, parse_json(Roster, roster_json, "a roster").consortium, credentials.subject)
        opening = Opening(self._file, self._config, credentials)
        assert opening.known is not None
        opening.known.announced(roster_json)
        self._party = opening(self._task)
        keep_tasks(self._file.parent, (self._task,))
        return opening.known.roster.digest

    def party(self, authority_pem: str) -> Answers:
        """What answers a job of this authority; after a restart of the site in the middle of a job, from its files.

        Raises IdentityError for a job of another authority than the one that certified this party.
        """
        self._require(authority_pem)
        if self._party is None:
            credentials = Credentials.load(self._config.credentials, "party")
            self._party = Opening(self._file, self._config, credentials)(self._task)
        return self._party

    def _require(self, authority_pem: str) -> None:
        kept = self._config.credentials / AUTHORITY
        if read_whole(kept) != authority_pem.encode():
            raise IdentityError(
                f"the job's authority is another than before: ask the consortium why, and to follow it remove {kept}"
            )


def read_task(file: Path) -> Task:
    """The task that a job carries."""
    return parse_json(Task, file.read_text(encoding="utf-8"), "a task")


def write_task(task: Task, file: Path) -> None:
    """Leave the task where `read_task` finds it."""
    write_whole(file, task.model_dump_json(indent=1) + "\n")
