"""Parties that enrol at a served consortium and attend it in threads of this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from collegium.clock import utc_now
from collegium.coordinator.membership.members import MembersFile
from collegium.coordinator.settings.consortium import ConsortiumConfig
from collegium.data import DataSource, PoolStore, load
from collegium.data.task import Task
from collegium.parties.config import PartyConfig, known_roster, membership_of
from collegium.parties.enrolment import enrol
from collegium.parties.known_roster import KnownRoster
from collegium.parties.party import Party, unrestricted
from collegium.parties.session import Answers, PartySession
from collegium.protocol.enrolment import new_code
from collegium.protocol.identities import Credentials, load_authority
from collegium.protocol.messages import Request
from support.waiting import PATIENCE_S


@dataclass
class Member:
    """A party in a thread of this process."""

    session: PartySession
    thread: threading.Thread
    known: KnownRoster
    parties: list[Party] = field(default_factory=list)
    """The party that answers, once the coordinator has said what the task is."""
    ended: list[str | Exception] = field(default_factory=list)


def fingerprint_of(served: Path) -> str:
    """The authority's, from the consortium's folder."""
    return load_authority(served / "authority").fingerprint


def code_for(served: Path, name: str) -> str:
    """A fresh code with which ``name`` may enrol."""
    code = new_code()
    MembersFile(served).change(lambda members: (members.with_code(name, code, utc_now(), 1), None))
    return code


def join(
    config: ConsortiumConfig,
    name: str,
    *,
    code: str,
    fingerprint: str,
    folder: Path,
    first: int,
    policy: Callable[[Request], None] | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
    stays: bool = False,
) -> Member:
    """Enrol into ``folder`` and serve 200 of the shuffled digits, from the ``first`` on.

    ``stays`` is that of `PartySession`; ``policy`` and ``random_bytes``, the source of a secure sum, are those
    of `Party` and `Membership`.
    """
    done = enrol(config.consortium.enrolment, name, code, fingerprint, folder, parties=config.consortium.parties)
    party = PartyConfig.read(done.party_file)
    known = known_roster(party, done.credentials)
    assert known is not None
    source = DataSource(source="digits", split="all", shuffle_seed=0, start=first, stop=first + 200)

    def open_party(task: Task) -> Answers:
        membership = replace(membership_of(party, done.credentials, known), random_bytes=lambda _: random_bytes)
        pools = PoolStore(party.folder / "pools")
        examples = load(source, task, data_root=None)
        member.parties.append(
            Party(
                name,
                examples,
                task,
                folder=party.folder,
                pools=pools,
                device="cpu",
                membership=membership,
                policy=policy or unrestricted,
            )
        )
        return member.parties[-1]

    session = PartySession(
        open_party,
        lambda: Credentials.load(party.credentials, "party"),
        party.coordinator,
        on_roster=known.announced,
        stays=stays,
    )
    member = Member(session, threading.Thread(target=lambda: member.ended.append(_end_of(session)), daemon=True), known)
    party.folder.mkdir(parents=True, exist_ok=True)
    member.thread.start()
    return member


def leave(members: Iterable[Member]) -> None:
    """End what still attends."""
    for member in members:
        member.session.stop()
        member.thread.join(PATIENCE_S)


def _end_of(session: PartySession) -> str | Exception:
    try:
        return session.run()
    except Exception as error:
        return error
