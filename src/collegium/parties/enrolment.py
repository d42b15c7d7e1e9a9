"""Enrolment as a party does it: keys made here, a signing request sent, a certificate and a roster received."""

import math
import re
import textwrap
import tomllib
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from collegium.data.task import Task
from collegium.data.values import check_party_name
from collegium.errors import ConfigurationError, IdentityError, StorageError
from collegium.parties.config import OwnRecords, PartyConfig
from collegium.parties.known_roster import KnownRoster, begin
from collegium.parties.policy import PolicyConfig
from collegium.protocol.codec import parse_json
from collegium.protocol.enrolment import Enrolled, request_certificate
from collegium.protocol.identities import Credentials, install_certificate
from collegium.protocol.roster import AnnouncedTerms, Roster
from collegium.settings import filled, toml_value, validate_config
from collegium.whole_files import write_whole

CREDENTIALS, ROSTER, PARTY, POLICY = "credentials", "roster.json", "party.toml", "policy.toml"
TASKS = "tasks.json"
"""What the consortium said, whenever this party enrolled, that it means to learn: it answers about nothing else."""

LIMITS = ("record_epsilon", "epsilon", "record_rho")
"""Settings of a policy that limit what answers may cost."""
ANNOUNCED = {
    *("sum_modes", "mechanisms", "pools", "questions", "minimum_noise_votes", "minimum_noise_sums", "queries", "delta"),
    *LIMITS,
}
"""Settings of a policy that follow from what a consortium announces."""

EXAMPLE_RECORDS = OwnRecords(source="records.csv")
"""What party.toml names where nobody has said yet where the records are."""

_TASKS = TypeAdapter(tuple[Task, ...])


@dataclass(frozen=True)
class Enrolment:
    """What enrolling left in the folder."""

    credentials: Credentials
    party_file: Path
    known: KnownRoster
    """With whom this party is summed as things stand: those of the parties that a person named who have enrolled."""
    refused: str | None
    """Why the announced roster, or a part of it, was not taken over."""
    told: Enrolled
    """What the coordinator said, by its own word: whom it expects, and what it means to ask now; a policy of an earlier
    enrolment may agree to less."""


def enrol(  # noqa: PLR0913 -- what a person was told or decides, by name
    address: str,
    name: str,
    code: str,
    fingerprint: str,
    folder: Path,
    *,
    parties: Collection[str] = (),
    records: OwnRecords = EXAMPLE_RECORDS,
) -> Enrolment:
    """Enrol, or renew the certificate where ``folder`` holds the keys of a party that is enrolled.

    Files that the institution may have edited are kept. ``parties`` are whom it agreed to be summed with, as a person
    typed them, and ``records`` its own; where ``party.toml`` is there already, it says both. Nothing of it comes from
    the coordinator. See `request_certificate` for what is checked before the code is sent, and for errors.

    Raises
    ------
    ConfigurationError
        If no parties are named, or twice: in ``party.toml`` and here.
    """
    named, least = _typed(folder / PARTY, parties)
    credentials = folder / CREDENTIALS
    answer, authority_pem = request_certificate(address, name, code, fingerprint, credentials)
    roster = parse_json(Roster, answer.roster_json, "a roster")
    enrolled = install_certificate(credentials, "party", answer.certificate_pem.encode(), authority_pem)
    roster.admit(enrolled.subject)
    begin(folder / ROSTER, roster.consortium, enrolled.subject)
    known = KnownRoster(folder / ROSTER, authority_pem, vouched={*named, name}, minimum_parties=least)
    refused: str | None = None
    try:
        known.take(answer.roster_json)
    except IdentityError as error:
        refused = str(error)
    keep_tasks(folder, answer.tasks)
    settings = filled(
        "collegium.parties",
        "party.toml",
        sessions=toml_value(answer.sessions),
        parties=toml_value(named),
        source=toml_value(records.source),
        query=f"\nquery = {toml_value(records.query)}" if records.query else "",
        label=f"label = {toml_value(records.label)}" if records.label else '# label = "y"  # the column of the class',
        whose=_whose(records),
    )
    for file, text in ((folder / PARTY, settings), (folder / POLICY, policy_text(answer.terms))):
        if not file.exists():
            write_whole(file, text)
    return Enrolment(enrolled, folder / PARTY, known, refused, answer)


def _typed(party_file: Path, parties: Collection[str]) -> tuple[list[str], int]:
    """Whom a person named, at the first enrolment or in the file that is there; and its ``minimum_parties``."""
    if party_file.exists():
        if parties:
            raise ConfigurationError(f"{party_file} is there already: name the parties in it, and leave --parties out")
        ours = PartyConfig.read(party_file)
        return list(ours.parties), ours.minimum_parties
    if not parties:
        raise ConfigurationError(
            "whom did this institution agree to be summed with? Name them: --parties clinic-1,clinic-2,... as it knows "
            "them; what the coordinator says of them does not count"
        )
    for name in parties:
        check_party_name(name, ConfigurationError)
    return list(parties), 1


def _whose(records: OwnRecords) -> str:
    """The line of party.toml that says whose a row is, or shows how to say it."""
    if records.group:
        return f"group = {toml_value(records.group)}"
    said = records.one_row_each
    return '# group = "id"' if said is None else f"one_row_each = {toml_value(said)}"


def keep_tasks(folder: Path, tasks: Collection[Task]) -> None:
    """Note that the party in ``folder`` enrolled for these tasks too; StorageError if the file cannot be used."""
    kept = [*enrolled_tasks(folder), *tasks]
    kept = [task for number, task in enumerate(kept) if task not in kept[:number]]
    write_whole(folder / TASKS, _TASKS.dump_json(tuple(kept)).decode() + "\n")


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


def policy_text(terms: AnnouncedTerms, show: str = "collegium party show party.toml") -> str:
    """A policy file that agrees to what was announced and to nothing weaker; never to sums in the clear.

    ``show`` is the command that prints it beside what was answered.
    """
    values = {name: toml_value(value) for name, value in terms.policy().items()}
    floors = "\n".join(
        f"{name} = {value}" for name, value in values.items() if name.startswith("minimum_") or name == "questions"
    )
    limits = "\n".join(f"{name} = {values[name]}" for name in LIMITS if name in values)
    said = "\n".join(f"# {line}" for line in textwrap.wrap(promised(terms), 118))
    return filled("collegium.parties", "policy.toml", floors=floors, limits=limits, promised=said, show=show, **values)


def promised(terms: AnnouncedTerms) -> str:
    """What was announced, and what the policy that enrolment writes allows, in one sentence."""
    told, names = terms.limits, {"record": "one record", "party": "one institution"}
    allowed = [
        f"{most:g} for {names[unit]}"
        for unit, most in (("record", told.record_epsilon), ("party", told.party_epsilon))
        if most
    ]
    if told.record_rho is not None:
        allowed.append(f"rho {told.record_rho:g} for records near public inputs")
    return (
        f"announced was epsilon {told.epsilon:g} for {names[told.unit]} at delta {told.delta:g}; allowed is "
        f"{' and '.join(allowed) or 'nothing'}: what is planned and, for a crash, its costliest release once more, as "
        f"this party counts it; no party counts for more than {terms.most_records:,} records"
    )


def not_agreed_to(
    policy: PolicyConfig, asked: Mapping[str, Any], answered: int, spent: Mapping[str, float] = {}
) -> dict[str, Any]:
    """The settings that a policy needs for what is asked, and does not have.

    ``asked`` are settings that agree to it (`AnnouncedTerms.policy`). ``answered`` queries are behind the policy, and
    ``spent`` of each of its limits, by their names.
    """
    needed = dict(asked)
    for name in {"sum_modes", "mechanisms", "pools", "questions"} & needed.keys():
        there = getattr(policy, name)
        lacking = [] if there is None else [one for one in needed[name] if one not in there]
        needed[name] = [*there, *lacking] if lacking else None
    for name in ("minimum_noise_votes", "minimum_noise_sums"):
        if name in needed and 0 < policy.noise_floor(summed=name == "minimum_noise_sums") <= needed[name]:
            needed[name] = None
    if needed.get("minimum_noise_votes") is not None and policy.minimum_noise_sums is None:
        floor = needed.get("minimum_noise_sums")  # that of votes was one of sums too, which nobody asked to lower
        needed["minimum_noise_sums"] = (policy.minimum_noise_votes or None) if floor is None else floor
    needed.pop("delta", None)  # an account keeps the one that it was begun with
    for name in needed.keys() & {*LIMITS}:
        most = getattr(policy, name)
        needed[name] = math.ceil((needed[name] + spent.get(name, 0.0)) * 1e4) / 1e4
        if most is None or most >= needed[name]:
            needed[name] = None
    if "queries" in needed:
        needed["queries"] += answered
        if policy.queries is None or policy.queries >= needed["queries"]:
            needed["queries"] = None
    return {name: value for name, value in needed.items() if value is not None}


def agreeing(file: Path, text: str, changes: Mapping[str, Any]) -> str:
    """The text of a policy file with these settings in place of its own; its comments stay.

    Raises ConfigurationError where a setting is written over several lines, or its name in quotation marks, so that no
    line can be put in its place.
    """
    wanted = validate_config({**tomllib.loads(text), **changes}, PolicyConfig, str(file))
    for name, value in changes.items():
        line, there = f"{name} = {toml_value(value)}", re.search(rf"^[ \t]*{name}[ \t]*=(.*)$", text, re.MULTILINE)
        if there is None:
            text = f"{text.rstrip()}\n{line}\n"
        else:
            text = f"{text[: there.start()]}{line}{_comment(there[1])}{text[there.end() :]}"
    with suppress(tomllib.TOMLDecodeError):
        if validate_config(tomllib.loads(text), PolicyConfig, str(file)) == wanted:
            return text
    raise ConfigurationError(
        f"{file} has a setting over several lines, or in quotation marks: write these yourself: {', '.join(changes)}"
    )


def _comment(value: str) -> str:
    """The comment that stands behind a value of TOML on its line, with two blanks before it; empty where none does."""
    for place in (place for place, letter in enumerate(value) if letter == "#"):
        with suppress(tomllib.TOMLDecodeError):
            tomllib.loads(f"value = {value[:place]}")
            return f"  {value[place:]}"
    return ""
