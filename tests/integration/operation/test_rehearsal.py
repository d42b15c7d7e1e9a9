"""A rehearsal: the whole run over real sessions on invented records, which no side can mistake for a study."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.sessions import fake_coordinator
from support.sums_scene import POOL
from support.table_consortium import NAMES, TableConsortium
from support.typist import typed, typing
from support.waiting import PATIENCE_S, comes_true

from collegium.coordinator.service.rehearsal import Rehearsed
from collegium.errors import OtherPurpose
from collegium.limits import PROTOCOL_VERSION
from collegium.models.students import is_rehearsed
from collegium.parties.rehearsal import RehearsalOpening
from collegium.privacy.ledger.witness import Witness, followed, listed
from collegium.protocol.identities import Credentials
from collegium.protocol.rehearsals import rehearsal_of
from collegium.protocol.v1 import collegium_pb2 as pb


@pytest.fixture
def scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[TableConsortium]:
    with closing(TableConsortium(tmp_path, capsys, hidden=True)) as scene:
        yield scene


def held(folder: Path) -> dict[Path, bytes]:
    """What is on the disk, but for the rehearsal's own folder, and for locks, which are empty."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.stat().st_size)
    return {file: file.read_bytes() for file in files if "rehearsal" not in file.parts}


def test_a_rehearsal_is_the_whole_run_and_changes_no_book(
    scene: TableConsortium, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its commands: each party in a thread, as its records and its own folder of state do not matter to it."""
    scene.enrol(*NAMES)
    before = {name: held(scene.folder / name) for name in ("consortium", *NAMES)}
    with typing(capsys) as typist:
        parties = [
            typist.begin(name, f"collegium party rehearse {scene.folder / name}/party.toml --records 40")
            for name in NAMES
        ]
        done = json.loads(typist.type(f"collegium consortium rehearse {scene.path} --wait 0 --json"))
        for one in parties:
            one.join(PATIENCE_S)
        assert typist.ended == dict.fromkeys(NAMES, 0)
    assert done["ready"] and done["parties"] == dict.fromkeys(NAMES), done
    assert min(one["sent"] for one in done["traffic"].values()) > POOL.nbytes // 2
    assert {"hold_pool", "votes", "student"} <= done["seconds"].keys()
    assert is_rehearsed(Path(done["student"]))
    assert {name: held(scene.folder / name) for name in before} == before, "no ledger, no book, no roster changed"
    run = scene.served / "rehearsal" / "run"
    for file in (run / "report.html", run / "MODEL_CARD.md"):
        assert "learned from invented records" in file.read_text(), file
    (scene.folder / "new.csv").write_text("c0,c1,c2\n0.1,0.2,0.3\n")
    status, _, err = typed(capsys, "student", "predict", done["student"], scene.folder / "new.csv")
    assert status == 0 and "invented records" in err
    assert "is a rehearsal on invented records" in typed(capsys, "statement", run)[2]
    assert json.loads((run / "run.json").read_text())["name"] == rehearsal_of("trial")


def test_who_is_not_ready_is_named_with_what_failed(scene: TableConsortium) -> None:
    scene.enrol("ash", "birch")
    policy = scene.folder / "ash" / "policy.toml"
    policy.write_text(policy.read_text().replace("minimum_noise_sums = ", "minimum_noise_sums = 9"))
    scene.attend("ash", scene.opening("ash"), rehearses=True)
    scene.attend("birch", scene.opening("birch", rehearses=False), rehearses=False)
    done: Rehearsed = scene.rehearse(patience_s=0.5)

    def both_came() -> bool:
        nonlocal done
        wrong = [done.parties[name] or "" for name in ("ash", "birch")]
        if any("did not connect" in one for one in wrong):
            done = scene.rehearse(patience_s=2 * PATIENCE_S / 100)
            return False
        return True

    assert comes_true(both_came)
    assert not done.ready and done.failed is not None and "no more came within" in done.failed
    assert done.parties["birch"] == "it serves its records; it must run party rehearse"
    assert done.parties["cedar"] == "it has not enrolled" and done.parties["ash"] is None
    assert "rehearsal    NOT READY" in "\n".join(done.lines())


def test_a_policy_that_refuses_shows_in_the_rehearsal(scene: TableConsortium) -> None:
    scene.enrol(*NAMES)
    for name in NAMES:
        policy = scene.folder / name / "policy.toml"
        policy.write_text(policy.read_text().replace("minimum_noise_sums = ", "minimum_noise_sums = 9"))
        scene.attend(name, scene.opening(name), rehearses=True)
    done = scene.rehearse()
    assert not done.ready and all(wrong is not None and "refused-noise" in wrong for wrong in done.parties.values())


def test_a_party_that_serves_its_records_answers_nothing_in_a_rehearsal(
    scene: TableConsortium, caplog: pytest.LogCaptureFixture
) -> None:
    """The operator says "rehearsal": the party is not even opened, so that it can neither read a record nor answer."""
    scene.enrol("ash")
    opened: list[object] = []
    task = scene.config.task.model_dump_json()
    welcome = pb.Welcome(protocol_version=PROTOCOL_VERSION, consortium="trial", task_json=task, rehearsal=True)
    request = pb.Request(request_id="1", run_id=rehearsal_of("trial"), describe=pb.DescribeRequest())
    said = [pb.FromCoordinator(welcome=welcome), pb.FromCoordinator(request=request)]
    credentials = Credentials.load(scene.served / "coordinator", "coordinator")
    with fake_coordinator(credentials, *(one.SerializeToString() for one in said)) as address:
        scene.attend("ash", opened.append, rehearses=False, address=address)
        assert comes_true(lambda: OtherPurpose.study in caplog.text)
    assert opened == []


def test_a_party_that_rehearses_is_never_in_a_study(scene: TableConsortium) -> None:
    scene.enrol(*NAMES)
    refused: list[str] = []
    service = scene.service(on_event=lambda event: refused.append(event.detail) if event.kind == "refused" else None)
    with service.listening():
        scene.attend("ash", scene.opening("ash"), rehearses=True)
        assert comes_true(lambda: any("this party waits for a rehearsal" in one for one in refused))
        assert service._sessions.parties.names() == []


def test_nothing_that_is_signed_in_a_rehearsal_is_of_use_in_a_study(scene: TableConsortium) -> None:
    scene.enrol("ash")
    opening = scene.opening("ash")
    assert isinstance(opening, RehearsalOpening) and opening._membership is not None
    assert opening._membership.consortium == rehearsal_of("trial"), "it is a part of all that is signed for a sum"
    head, agreed = "1:" + "0" * 64, listed({})
    key = scene.credentials("ash").signing_key.public_key().public_bytes_raw()
    assert not Witness(key, head, opening._signer.sign(followed(head, agreed)), agreed).holds
    assert Witness(key, head, scene.credentials("ash").signing_key.sign(followed(head, agreed)), agreed).holds


def test_no_consortium_is_called_as_a_rehearsal(scene: TableConsortium, capsys: pytest.CaptureFixture[str]) -> None:
    scene.path.write_text(scene.path.read_text().replace('"trial"', '"trial-rehearsal"'))
    assert "is that of a rehearsal" in typed(capsys, "provision", scene.path, "--check")[2]
