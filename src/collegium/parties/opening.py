"""A party from its own files: its records, its policy and answer book, and with whom it is summed.

The policy file is read again where somebody has edited it: what it says holds from the next request on.
"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.data.loading.sources import data_root
from collegium.data.task import Task
from collegium.errors import CollegiumError, ColumnMissing, ConfigurationError, DataError
from collegium.logs import event
from collegium.parties.answer_book import FILE, AnswerBook
from collegium.parties.config import PartyConfig, known_roster, membership_of, policy_of, require_limits
from collegium.parties.enrolment import enrolled_tasks
from collegium.parties.known_ledger import KnownLedger
from collegium.parties.policy import Policy, PolicyConfig
from collegium.parties.records_known import RecordsKnown, changed_since
from collegium.parties.session import Answers
from collegium.protocol.identities import Credentials
from collegium.protocol.messages import Reply, Request
from collegium.protocol.requests import SecureSumStep

if TYPE_CHECKING:
    from collegium.data import Examples

logger = logging.getLogger("collegium.party")


class Opening:
    """Opens the party of ``file``, whatever carries its requests.

    Parameters
    ----------
    file : party.toml; the tasks that its institution enrolled for lie beside it.
    config : what that file says.
    credentials : the party's own.

    Raises
    ------
    ConfigurationError, StorageError
        What cannot be used is said before anybody is dialled.
    """

    def __init__(self, file: Path, config: PartyConfig, credentials: Credentials) -> None:
        self._file, self._config, self._credentials = file, config, credentials
        self._signer = self._signing()
        self.known = known_roster(config, credentials)
        self._membership = membership_of(config, credentials, self.known)
        self._book(self._policy_in_force()).close()
        if config.noise_seed is not None:
            logger.warning("NOT PRIVATE: this party's noise follows from noise_seed")
        if self.known is not None:
            logger.info("%s", self.known)

    @property
    def name(self) -> str:
        """The party's."""
        return self._credentials.name

    def __call__(self, task: Task) -> Answers:
        """The party for the consortium's task.

        Raises
        ------
        ConfigurationError
            If it is none that the institution enrolled for.
        DataError
            If its records are not what the task needs.
        """
        if (known_tasks := enrolled_tasks(self._file.parent)) and task not in known_tasks:
            raise ConfigurationError(
                "the consortium's task is none that this institution enrolled for: enrol again in the same folder to "
                "agree to it"
            )
        from collegium.data import PoolStore
        from collegium.parties.party import Party

        config, name = self._config, self._credentials.name
        records = self._records(task)
        now = RecordsKnown.of(records, task)

        def opened(policy: PolicyConfig) -> Party:
            account = self._book(policy)
            if (changed := account.answers_with(now)) is not None:
                logger.warning("%s", changed, extra=event("records-changed"))
            return Party(
                name,
                records,
                task,
                folder=config.folder,
                pools=PoolStore(config.folder / "pools", keep=policy.pools),
                device=config.device,
                threads=config.threads,
                disk_bytes=int(config.features_disk_gb * 1e9),
                policy=Policy(policy),
                account=account,
                allowed_imports=policy.teacher_imports,
                own_teacher=config.teacher,
                membership=self._membership,
                ledger=KnownLedger(account, self._signer.sign),
                record_rho=policy.record_rho,
                persons=bool(config.data.persons),
                progress=lambda ready, wanted: logger.info(
                    "teachers ready: %d of %d", ready, wanted, extra=event("teachers-ready", ready=ready, wanted=wanted)
                ),
            )

        return RenewedParty(config.policy, self._policy_in_force, opened)

    def _policy_in_force(self) -> PolicyConfig:
        config, policy = self._config, policy_of(self._config)
        require_limits(policy, len({*config.parties, self._credentials.name}) if config.parties else 0)
        if config.noise_seed is not None and not policy.seeded_noise:
            raise ConfigurationError(
                f"{self._file}: noise_seed protects nobody: the policy must set seeded_noise = true"
            )
        return policy

    def _book(self, policy: PolicyConfig) -> AnswerBook:
        return AnswerBook(self._config.folder, self._credentials.name, policy, self._signer)

    def _signing(self) -> Ed25519PrivateKey:
        """What the party's own books, and what it saw of the coordinator's ledger, are signed with."""
        return self._credentials.signing_key

    def _records(self, task: Task) -> "Examples":
        """What questions are answered from."""
        logger.info("loading the records of %s", self._credentials.name)
        return records_of(self._config, task)


class RenewedParty:
    """Answers as the party that ``opened`` makes of the policy in force; a sum that is under way goes on as it began.

    Parameters
    ----------
    file : the policy's; None where the party has the default one.
    read : the policy as the file has it; raises CollegiumError for one that cannot be served.
    opened : the party under a policy. It finds what it answered before in its answer book, as after a restart.

    Raises
    ------
    CollegiumError
        What ``read`` and ``opened`` raise at first. Later the policy from before stays in force, and a line says why.
    """

    def __init__(
        self, file: Path | None, read: Callable[[], PolicyConfig], opened: Callable[[PolicyConfig], Answers]
    ) -> None:
        self._file, self._read, self._opened = file, read, opened
        self._seen, self._policy = self._contents(), read()
        self._party = opened(self._policy)

    def handle(self, request: Request) -> Reply:
        """The answer to a request under the policy as its file has it now."""
        if not isinstance(request.body, SecureSumStep):
            self._look()
        return self._party.handle(request)

    def _look(self) -> None:
        if (contents := self._contents()) == self._seen:
            return
        self._seen = contents
        try:
            policy = self._read()
            if policy == self._policy:
                return
            self._party, self._policy = self._opened(policy), policy
        except CollegiumError as error:
            logger.error("the edited policy is NOT in force, the one before is: %s", error)
        else:
            logger.info("the edited policy %s is in force now", self._file, extra=event("policy-changed"))

    def _contents(self) -> bytes | None:
        try:
            return None if self._file is None else self._file.read_bytes()
        except OSError:
            return None


def records_of(config: PartyConfig, task: Task) -> "Examples":
    """The institution's records; ColumnMissing where their file's header lacks a column, whatever its rows hold."""
    from collegium.data import load
    from collegium.data.loading.loading import lacks_columns

    root = data_root(config.data_root)
    try:
        return load(config.data, task, data_root=root)
    except DataError as error:
        if lacks_columns(config.data, task, root):
            raise ColumnMissing(str(error)) from error
        raise DataError(str(error)) from error  # never ColumnMissing, which would be told: rows may have a part in it


def records_changed(config: PartyConfig, tasks: Iterable[Task]) -> str | None:
    """That the records changed since they answered for one of the tasks, or cannot be read; None where they did not."""
    book = config.folder / FILE
    for task in tasks if book.exists() else ():
        try:
            changed = changed_since(book, RecordsKnown.of(records_of(config, task), task))
        except DataError as error:
            return f"the records cannot be read now: {error}"
        if changed is not None:
            return changed
    return None
