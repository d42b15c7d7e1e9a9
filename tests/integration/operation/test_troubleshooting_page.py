"""docs/troubleshooting.md: every line that it shows is one that the software prints, `…` standing for what varies."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from support.consortium import NAMES, Scene
from support.pages import blocks_of, text_of_page
from support.processes import interrupt, killed_at_the_end, read_until, start_collegium

from collegium.clock import utc_now
from collegium.coordinator.cli.coordinator_cli import say
from collegium.coordinator.cli.serving import shown_at
from collegium.coordinator.membership.enrolment_service import EnrolmentService, Registrar
from collegium.coordinator.rounds.rounds import outcome_of, require_quorum
from collegium.coordinator.run.open_run import LOST
from collegium.coordinator.run.run_record import LabelsRecord, RunRecord
from collegium.coordinator.service.coordinator_service import CoordinatorService
from collegium.coordinator.settings.consortium import ConsortiumConfig, ConsortiumFolder
from collegium.coordinator.settings.run_config import load_public
from collegium.coordinator.students import fit_student
from collegium.coordinator.watching.live_state import LiveState
from collegium.data import DataSource, load
from collegium.data.task import Task, TeacherSettings
from collegium.errors import CollegiumError, FewPartiesRefused, LedgerRefused
from collegium.parties.cli import enrol as enrol_command
from collegium.parties.enrolment import enrol
from collegium.parties.policy import Policy, PolicyConfig
from collegium.parties.session import PartySession
from collegium.protocol.identities import SIGNING_KEY, Credentials, create_identity, install_certificate, load_authority
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.messages import Reply, Request
from collegium.protocol.question import PoolRange, QuestionTerms
from collegium.protocol.replies import Failure
from collegium.protocol.requests import Ask
from collegium.protocol.roster import AnnouncedLimits, AnnouncedTerms
from collegium.settings import read_config
from collegium.whole_files import exclusive

PAGE = text_of_page("troubleshooting.md")
QUOTED = [line for block in blocks_of(PAGE, "text") for line in block.splitlines()]
NOW = utc_now()


class NeverAsked:
    """Answers for a party that must not be asked."""

    def handle(self, request: Request) -> Reply:
        raise AssertionError(request)


def line_of(action: Callable[[], object]) -> str:
    """The line with which the command line ends when this goes wrong."""
    with pytest.raises(CollegiumError) as caught:
        action()
    return f"{type(caught.value).__name__}: {caught.value}"


def served(scene: Scene) -> None:
    with CoordinatorService(scene.config, load_public(scene.config.run, None), wait_s=0).listening():
        raise AssertionError("it listens")


@contextmanager
def coordinator_of(scene: Scene) -> Iterator[list[str]]:
    """A real process that serves, and the last line of its log so far."""
    with killed_at_the_end() as started:
        serving = start_collegium("coordinator", "serve", scene.path.name, folder=scene.folder)
        started.append(serving)
        yield [read_until(serving.stderr, "that a round needs are connected").strip().partition(" ")[2]]
        err = interrupt(serving).err
        assert err.strip().endswith("Nothing is lost: run the same command again, and it goes on."), err


def enrolment_lines(scene: Scene) -> Iterator[str]:
    """What a party reads that is not let in, or no longer."""
    address, folder, right = scene.config.consortium.enrolment, scene.folder, scene.fingerprint
    code = scene.code_for("ash")
    yield line_of(lambda: enrol(address, "ash", code, "0" * 64, folder / "ash", parties=NAMES))
    yield line_of(lambda: enrol(address, "ash", "0" * 32, right, folder / "ash", parties=NAMES))
    scene.members.change(lambda members: (members.with_code("birch", code, NOW - timedelta(days=2), 1), None))
    yield line_of(lambda: enrol(address, "birch", code, right, folder / "birch", parties=NAMES))
    credentials = enrol(address, "ash", code, right, folder / "ash", parties=NAMES).credentials
    key = folder / "ash" / "credentials" / SIGNING_KEY
    key.chmod(0o644)
    yield line_of(lambda: Credentials.load(folder / "ash" / "credentials", "party"))
    key.chmod(0o600)
    scene.members.change(lambda members: (members.without("ash"), None))
    # Until the coordinator has read the change it may still be let in; it is not asked anything, and then cut off.
    session = PartySession(lambda task: NeverAsked(), lambda: credentials, scene.config.consortium.address)
    yield line_of(session.run)
    again = scene.code_for("ash")
    yield line_of(lambda: enrol(address, "ash", again, right, folder / "ash"))


def certificate_lines(scene: Scene) -> Iterator[str]:
    """What is wrong with a certificate's days."""
    authority = load_authority(scene.folder / "consortium" / "authority")
    for name, days in (("birch", 2), ("cedar", -400)):
        request = create_identity(scene.folder / name, name, "party")
        issued = authority.issue(request, name=name, role="party", days=365, now=NOW + timedelta(days=days))
        yield line_of(
            lambda name=name, issued=issued: install_certificate(  # type: ignore[misc]
                scene.folder / name, "party", issued, authority.pem
            )
        )


def unreachable_lines(scene: Scene, caplog: pytest.LogCaptureFixture) -> Iterator[str]:
    """Nobody listens at either port."""
    address, fingerprint = scene.config.consortium.enrolment, scene.fingerprint
    yield line_of(lambda: enrol(address, "oak", "0" * 32, fingerprint, scene.folder / "oak", parties=NAMES))
    authority = load_authority(scene.folder / "consortium" / "authority")
    request = create_identity(scene.folder / "oak", "oak", "party")
    certificate = authority.issue(request, name="oak", role="party")
    credentials = install_certificate(scene.folder / "oak", "party", certificate, authority.pem)
    session = PartySession(
        lambda task: NeverAsked(),
        lambda: credentials,
        scene.config.consortium.address,
        sleep=lambda delay_s: session.stop(),
    )
    with caplog.at_level(logging.WARNING, "collegium.party"):
        assert session.run() == "stopped"
    yield caplog.messages[-1]


TERMS = AnnouncedTerms(
    limits=AnnouncedLimits(epsilon=1.0, delta=1e-5, record_epsilon=2.0),
    sum_mode="masked",
    mechanism="gnmax",
    noise_votes=2.0,
    pools=("ab" * 32,),
    answers=24,
)


def listening_lines(scene: Scene) -> Iterator[str]:
    """A second coordinator beside the one that serves, and two addresses that are taken."""
    folder, settings = ConsortiumFolder(scene.folder / "consortium"), scene.config.consortium
    yield line_of(lambda: exclusive(folder.lock, f"another process serves {folder.path}; stop it first").__enter__())
    authority = load_authority(folder.authority)
    registrar = Registrar(authority, scene.members, sessions=settings.address, terms=TERMS, days=1)
    yield line_of(lambda: EnrolmentService(registrar, folder.identity).start(settings.enrolment))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        yield line_of(lambda: shown_at(place, scene.config, LiveState(), 0).__enter__())


def file_lines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What is wrong with the files that somebody wrote."""
    columns = [{"kind": "number", "name": "age", "low": 0, "high": 100}]
    task = Task.model_validate({"classes": ["yes", "no"], "inputs": {"kind": "table", "columns": columns}})
    (folder / "clinic.csv").write_text("age,ill,weight\n40,yes,60\n50,perhaps,70\n")
    (folder / "other.csv").write_text("weight,ill\n60,yes\n")
    for source in (
        {"source": "none.csv"},
        {"source": "clinic.csv", "label": "diagnosis"},
        {"source": "clinic.csv", "label": "ill"},
        {"source": "other.csv"},
    ):
        yield line_of(lambda source=source: load(DataSource.model_validate(source), task, data_root=folder))  # type: ignore[misc]
    yield line_of(lambda: enrol_command("localhost:1", "ash", "0" * 64, folder / "new", data="none.csv"))
    (folder / "wrong").mkdir()
    monkeypatch.chdir(folder / "wrong")
    given = (folder / "consortium.toml").read_text()
    for text in (
        given.replace("quorum", "qourum"),
        given.replace("classes =", "multilabel =").replace('["0"', 'false # ["0"'),
    ):
        Path("consortium.toml").write_text(text)
        yield line_of(lambda: read_config(Path("consortium.toml"), ConsortiumConfig))
    inputs = np.zeros((4, *task.inputs.shape), dtype=np.float32)
    yield line_of(lambda: fit_student("supervised", inputs, [], [], task, seed=0))
    yield line_of(lambda: fit_student("supervised", inputs, [0, 1], [1, 1], task, seed=0))


def refusals() -> Iterator[str]:
    """What a party's policy says, as the coordinator shows it."""
    terms = QuestionTerms("gnmax", {"sigma": 2.0}, sum_mode="masked")
    asked = CastVotes(terms, "ledger", TeacherSettings(kind="linear"), PoolRange("0" * 64, (0,)), classes=2)
    hour = NOW.hour
    for policy in (
        PolicyConfig(minimum_noise_votes=10),
        PolicyConfig(sum_modes=("masked+noised",)),
        PolicyConfig(pools=()),
        PolicyConfig(hours_utc=((hour + 2) % 24, (hour + 3) % 24)),
    ):
        with pytest.raises(CollegiumError) as caught:
            Policy(policy, lambda: NOW)(Request("request-1", "run-1", Ask("round-1", asked)))
        yield outcome_of(Failure.of(caught.value))
    for refused in (FewPartiesRefused(""), LedgerRefused("")):
        yield outcome_of(Failure.of(refused))


def left_out() -> str:
    """What is said of an input whose one exact sum cannot be asked for again."""
    return LOST % 1


def test_every_line_on_the_page_is_printed(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    poor = tmp_path / "poor"
    poor.mkdir()
    said = [line_of(lambda: served(Scene(poor, epsilon=0.1)))]
    scene = Scene(tmp_path)
    said += [*certificate_lines(scene), *unreachable_lines(scene, caplog), left_out(), *refusals()]
    said.append(line_of(lambda: require_quorum({"ash": "answered", "oak": said[-1]}, 2)))
    with coordinator_of(scene) as waiting:
        said += [*waiting, *enrolment_lines(scene), *listening_lines(scene)]
    said += file_lines(tmp_path, monkeypatch)
    stopped = said[0].removeprefix("BudgetExceeded: ")
    labels = LabelsRecord(asked=30, answered=21, abstained=0, left_out=9, stopped=stopped, per_class=[])
    say(RunRecord.model_construct(state="finished", labels=labels), ConsortiumFolder(tmp_path), as_json=False)
    said += capsys.readouterr().out.splitlines()
    unseen = [line for line in QUOTED if not any(re.fullmatch(as_pattern(line), one) for one in said)]
    assert not unseen, "\n".join([*unseen, "", *said])


def as_pattern(line: str) -> str:
    return re.escape(line).replace("…", ".+")
