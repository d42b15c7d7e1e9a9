"""An operator that makes up parties, or keys: it holds the authority, the announcements and the port of enrolment.

Each attack goes through real enrolment over TLS, and ends with a real party that is asked for a masked sum.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.liar import AtHand, liar_over
from support.party_requests import KEY, cast
from support.typist import typed

from collegium.clock import utc_now
from collegium.coordinator.membership.enrolment_service import EnrolmentService, Registrar
from collegium.coordinator.membership.members import Member, Members, MembersFile
from collegium.data import Examples, PoolStore, array_spec
from collegium.data.task import ImageInputs, Task, TeacherSettings
from collegium.data.values import PoolChunk
from collegium.errors import ConfigurationError, QuorumNotReached
from collegium.parties.config import OwnRecords, PartyConfig, known_roster, membership_of
from collegium.parties.enrolment import enrol
from collegium.parties.party import Party, unrestricted
from collegium.protocol.certificates import Authority
from collegium.protocol.enrolment import new_code
from collegium.protocol.identities import Credentials, issue_kit
from collegium.protocol.messages import Reply, Request
from collegium.protocol.replies import Failure, Prepared
from collegium.protocol.requests import Ask
from collegium.protocol.roster import AnnouncedLimits, AnnouncedTerms

FIVE = ("ash", "birch", "cedar", "fir", "oak")
RECORDS = OwnRecords(source="records.csv", one_row_each=True)
GHOSTS = tuple(f"ghost-{number:02d}" for number in range(16))
TASK = Task(classes=("a", "b"), inputs=ImageInputs(height=4, width=4))
POOL = np.random.default_rng(5).integers(0, 16, (8, 4, 4, 1)).astype(np.uint8)
LINEAR = TeacherSettings(kind="linear", per_party=1, options={"steps": 2})
TERMS = AnnouncedTerms(
    limits=AnnouncedLimits(epsilon=1.0, delta=1e-5, record_epsilon=2.0),
    sum_mode="masked",
    mechanism="lnmax",
    noise_votes=20.0,
    pools=(array_spec(POOL).sha256,),
    answers=8,
)


@dataclass
class Operator:
    """The authority, the members and an open port; institutions enrol in folders of this one."""

    folder: Path
    authority: Authority
    members: MembersFile
    address: str

    def enrol(self, name: str, parties: Collection[str] = FIVE) -> Path:
        """Enrol, or renew; the party's file."""
        code, renews = new_code(), (self.folder / name / "party.toml").exists()
        self.members.change(lambda members: (members.with_code(name, code, utc_now(), 1), None))
        named = () if renews else parties
        home, fingerprint = self.folder / name, self.authority.fingerprint
        return enrol(self.address, name, code, fingerprint, home, parties=named, records=RECORDS).party_file

    def makes_up(self, *names: str) -> dict[str, Credentials]:
        """Certify keys of its own under these names, as if somebody had enrolled."""
        kits = {name: issue_kit(self.authority, self.folder / "made-up" / name, name, "party") for name in names}
        for name, kit in kits.items():
            member = Member(certificate_pem=kit.certificate_pem.decode())
            self.members.change(lambda members, name=name, member=member: (members.with_member(name, member), None))  # type: ignore[misc]
        return kits

    def signing_keys(self) -> dict[str, bytes]:
        return self.members.read().roster().signing_keys()

    def announced(self) -> str:
        return self.members.read().roster().model_dump_json()


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    authority, members = Authority.create("ours"), MembersFile(tmp_path)
    issue_kit(authority, tmp_path / "coordinator", "coordinator", "coordinator", hosts=["localhost"])
    members.change(lambda found: (found, None), first=Members(consortium="ours"))
    registrar = Registrar(authority, members, sessions="localhost:7443", terms=TERMS, days=30)
    with closing(EnrolmentService(registrar, tmp_path / "coordinator")) as service:
        yield Operator(tmp_path, authority, members, f"localhost:{service.start('localhost:0')}")


def party_of(file: Path, announced: str | None = None) -> Party:
    """The institution's party as `serve` makes it, which the coordinator announced this roster to."""
    config = PartyConfig.read(file)
    credentials = Credentials.load(config.credentials, "party")
    known = known_roster(config, credentials)
    if known is not None and announced is not None:
        known.announced(announced)
    rng = np.random.default_rng(1)
    records = Examples(rng.integers(0, 16, (20, 4, 4, 1)).astype(np.uint8), rng.integers(0, 2, 20))
    config.folder.mkdir(exist_ok=True)
    pools = PoolStore(config.folder / "pools")
    membership = membership_of(config, credentials, known)
    return Party(
        credentials.name,
        records,
        TASK,
        folder=config.folder,
        pools=pools,
        split_key=KEY,
        policy=unrestricted,
        membership=membership,
    )


class Silent:
    """A party that says that it has prepared what it is asked, and takes no part in the sum."""

    def handle(self, request: Request) -> Reply:
        prepared = isinstance(request.body, Ask)
        body = Prepared(request.body.round_id) if prepared else Failure("unreachable", "silent")  # type: ignore[union-attr]
        return Reply(request.request_id, body)


def said_to_a_sum(operator: Operator, party: Party) -> str | None:
    """With which code a party refuses a sum over the roster of the operator, and all whom it admits; None if not."""
    liar = liar_over(
        AtHand({name: Silent() for name in operator.signing_keys()} | {party.name: party}), operator.signing_keys()
    )
    pool = array_spec(POOL)
    liar.ask({party.name: PoolChunk(pool, 0, POOL.tobytes())})
    with pytest.raises(QuorumNotReached):
        liar.total(cast(pool, (0, 1), classes=2, settings=LINEAR, sum_mode="masked"))
    return liar.refusals().get(party.name)


def shown(file: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(typed(capsys, "party", "show", file, "--json")[1]))


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before it enrols", "before it renews", "before a round"])
def test_sixteen_ghosts_are_in_no_sum_of_an_institution_that_named_five(
    when: str, operator: Operator, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: operator.enrol(name) for name in FIVE[1:]}
    if when == "before it enrols":
        operator.makes_up(*GHOSTS)
    file = operator.enrol("ash")
    if when != "before it enrols":
        operator.makes_up(*GHOSTS)
    if when == "before it renews":
        operator.enrol("ash")
    party = party_of(file, operator.announced())
    assert said_to_a_sum(operator, party) == "unnamed-parties"
    facts = shown(file, capsys)
    assert facts["parties_named"].split(", ") == list(FIVE) and facts["summed_with"].split(", ") == list(FIVE[1:])
    party_of(files["oak"], operator.announced())
    assert facts["roster_digest"] == shown(files["oak"], capsys)["roster_digest"], "they compare one thing"


def test_nobody_enrols_without_naming_whom_it_is_summed_with(operator: Operator) -> None:
    with pytest.raises(ConfigurationError, match="Name them: --parties"):
        operator.enrol("ash", parties=())
    assert not (operator.folder / "ash").exists(), "nothing was sent"


@pytest.mark.parametrize("when", ["at a renewal", "before a round"])
def test_a_swapped_key_is_in_no_sum_until_a_person_accepts_it(
    when: str, operator: Operator, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: operator.enrol(name) for name in FIVE}
    party_of(files["ash"], operator.announced())
    digest = shown(files["ash"], capsys)["roster_digest"]
    swapped = operator.makes_up("birch")["birch"].subject.signing_key.hex()
    if when == "at a renewal":
        operator.enrol("ash")
    party = party_of(files["ash"], operator.announced())
    assert said_to_a_sum(operator, party) == "unnamed-parties"
    assert shown(files["ash"], capsys)["roster_digest"] == digest
    assert typed(capsys, "party", "accept-key", files["ash"], "birch", swapped)[0] == 0
    party = party_of(files["ash"], operator.announced())
    assert said_to_a_sum(operator, party) is None, "it begins the sum, and lacks the others"
    assert shown(files["ash"], capsys)["roster_digest"] == operator.members.read().roster().digest != digest


def test_a_name_that_its_institution_strikes_out_is_summed_with_no_more(
    operator: Operator, capsys: pytest.CaptureFixture[str]
) -> None:
    file = {name: operator.enrol(name) for name in FIVE}["ash"]
    party_of(file, operator.announced())
    file.write_text(file.read_text().replace(', "oak"]', "]"))
    assert shown(file, capsys)["summed_with"] == "birch, cedar, fir"
    assert said_to_a_sum(operator, party_of(file, operator.announced())) == "unnamed-parties"
    file.write_text(file.read_text().replace("\nparties = [", "\nparties = []  # ["))
    with pytest.raises(ConfigurationError, match="names nobody under parties"):
        party_of(file)
