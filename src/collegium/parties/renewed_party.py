"""A party whose policy file is read again where somebody has edited it: what it says holds from the next request on."""

import logging
from collections.abc import Callable
from pathlib import Path

from collegium.errors import CollegiumError
from collegium.logs import event
from collegium.parties.policy import PolicyConfig
from collegium.parties.session import Answers
from collegium.protocol.messages import Reply, Request
from collegium.protocol.requests import SecureSumStep

logger = logging.getLogger("collegium.party")


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
