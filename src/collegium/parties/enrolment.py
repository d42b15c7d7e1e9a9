"""Enrolment as a party does it: keys made here, a signing request sent, a certificate and a roster received."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from collegium.data.task import Task
from collegium.errors import StorageError
from collegium.parties.policy import FEW_PARTIES, PolicyConfig
from collegium.protocol.codec import parse_json
from collegium.protocol.enrolment import request_certificate
from collegium.protocol.identities import Credentials, install_certificate
from collegium.protocol.roster import AnnouncedTerms, Roster
from collegium.settings import filled, toml_value
from collegium.whole_files import write_whole
from collegium_accounting.mechanisms import SumMode

CREDENTIALS, ROSTER, PARTY, POLICY = "credentials", "roster.json", "party.toml", "policy.toml"
TASKS = "tasks.json"
"""What the consortium said, whenever this party enrolled, that it means to learn: it answers about nothing else."""

_TASKS = TypeAdapter(tuple[Task, ...])


@dataclass(frozen=True)
class Enrolment:
    """What enrolling left in the folder."""

    credentials: Credentials
    party_file: Path
    parties: tuple[str, ...]
    """Names on the roster so far, this one included; what was known before is replaced."""
    roster_digest: str
    """What institutions compare by telephone."""
    few_parties: bool
    """Whether the consortium means to sum the votes of fewer than five parties exactly."""
    terms: AnnouncedTerms
    """What the consortium means to ask now; a policy of an earlier enrolment may agree to less."""


def enrol(
    address: str,
    name: str,
    code: str,
    fingerprint: str,
    folder: Path,
    *,
    data: str = "records.csv",
    label: str | None = None,
    group: str | None = None,
) -> Enrolment:
    """Enrol, or renew the certificate where ``folder`` holds the keys of a party that is enrolled.

    Files that the institution may have edited are kept. See `request_certificate` for what is checked before the
    code is sent, and for errors.
    """
    credentials = folder / CREDENTIALS
    answer, authority_pem = request_certificate(address, name, "party", code, fingerprint, credentials)
    roster = parse_json(Roster, answer.roster_json, "a roster")
    roster.require_certified(authority_pem)
    enrolled = install_certificate(credentials, "party", answer.certificate_pem.encode(), authority_pem)
    roster.admit(enrolled.subject)
    roster.save(folder / ROSTER)
    tasks = [*enrolled_tasks(folder), *(task for task in answer.tasks)]
    tasks = [task for number, task in enumerate(tasks) if task not in tasks[:number]]
    write_whole(folder / TASKS, _TASKS.dump_json(tuple(tasks)).decode() + "\n")
    settings = filled(
        "collegium.parties",
        "party.toml",
        sessions=toml_value(answer.sessions),
        parties=toml_value(list(answer.expected)),
        source=toml_value(data),
        label=f"label = {toml_value(label)}" if label else '# label = "y"  # the column of the class',
        group=f"group = {toml_value(group)}" if group else '# group = "id"  # rows of one patient, for one teacher',
    )
    for file, text in ((folder / PARTY, settings), (folder / POLICY, policy_text(answer.terms))):
        if not file.exists():
            write_whole(file, text)
    few = answer.terms.sum_mode == SumMode.MASKED and len(answer.expected) < FEW_PARTIES
    return Enrolment(enrolled, folder / PARTY, tuple(roster.admitted()), roster.digest, few, answer.terms)


def enrolled_tasks(folder: Path) -> tuple[Task, ...]:
    """The tasks that the party in ``folder`` enrolled for; none where it never did.

    Raises
    ------
    StorageError
        If the file cannot be read, or holds something else.
    """
    file = folder / TASKS
    try:
        return _TASKS.validate_json(file.read_bytes()) if file.exists() else ()
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot read {file}: enrol again in the same folder, which writes it anew") from error


def policy_text(terms: AnnouncedTerms) -> str:
    """A policy file that agrees to what was announced and to nothing weaker; never to sums in the clear."""
    values = {name: toml_value(value) for name, value in terms.policy().items()}
    floors = "\n".join(
        f"{name} = {value}" for name, value in values.items() if name.startswith("minimum_") or name == "questions"
    )
    return filled("collegium.parties", "policy.toml", floors=floors, **values)


def not_agreed_to(policy: PolicyConfig, terms: AnnouncedTerms, answered: int) -> list[str]:
    """The lines that a policy needs for what is announced, and does not have; ``answered`` queries are behind it."""
    needed = terms.policy()
    for name in {"sum_modes", "mechanisms", "pools", "questions"} & needed.keys():
        there = getattr(policy, name)
        lacking = [] if there is None else [one for one in needed[name] if one not in there]
        needed[name] = [*there, *lacking] if lacking else None
    for name in ("minimum_noise_votes", "minimum_noise_sums"):
        if name in needed and 0 < policy.noise_floor(summed=name == "minimum_noise_sums") <= needed[name]:
            needed[name] = None
    needed["queries"] += answered
    if policy.queries is None or policy.queries >= needed["queries"]:
        needed["queries"] = None
    return [f"{name} = {toml_value(value)}" for name, value in needed.items() if value is not None]
