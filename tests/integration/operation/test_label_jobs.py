"""Students from outside: their jobs over real sockets, under one budget, beside real parties in one process."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from support.consortium import NAMES, Scene
from support.label_jobs import JobScene, Order, jobs_served_by
from support.members import PATIENCE_S

from collegium.clock import utc_now
from collegium.coordinator.label_jobs.ordering import LabelJobClient, enrol_student
from collegium.coordinator.label_jobs.servicer import MAX_CALLS_PER_STUDENT
from collegium.coordinator.membership.enrolment_service import RENEW_BEFORE
from collegium.coordinator.run.run_folder import read_labels
from collegium.errors import (
    IdentityError,
    PoolMismatch,
    ProtocolViolation,
    Refused,
    Unreachable,
)
from collegium.limits import PROTOCOL_VERSION
from collegium.parties.session import PartySession
from collegium.protocol.certificates import Authority
from collegium.protocol.channels import channel_credentials, channel_options, error_of
from collegium.protocol.grpc_tls13 import grpc
from collegium.protocol.identities import Credentials, issue_kit, load_authority
from collegium.protocol.label_jobs import MAX_QUESTION_BYTES, LabelJob
from collegium.protocol.v1 import label_jobs_pb2 as jobs_pb

STUDENTS = """\
own_run = false
students = [{ name = "lab" }, { name = "firm", queries = 7 }]
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobScene]:
    with jobs_served_by(Scene(tmp_path_factory.mktemp("service"), settings=STUDENTS)) as service:
        for name in ("lab", "firm"):
            service.enrol(name)
        yield service


@pytest.fixture(scope="module")
def served(service: JobScene) -> dict[str, Order]:
    """Three jobs that waited in the queue before any party came."""
    orders = {
        "first": service.order("lab", "first", [4, 2, 9, 7], note="pilot"),
        "second": service.order("firm", "second", [9, 1, 4]),
        "third": service.order("lab", "third", [1, 30]),
    }
    for name in NAMES[:3]:
        service.scene.join(name)
    for order in orders.values():
        order.delivered()
    return orders


def test_every_job_is_done_and_brings_its_own_inputs(served: dict[str, Order]) -> None:
    for order in served.values():
        delivery = order.delivered()
        assert delivery.status.state == "done"
        assert set(delivery.labels) == set(order.positions)
        assert dict(read_labels(order.folder / "labels.csv")) == delivery.labels
        assert delivery.pool.shape == (100, 8, 8, 1)


def test_what_jobs_share_is_paid_once_and_has_one_label(served: dict[str, Order], service: JobScene) -> None:
    first, second, third = (served[name].delivered().labels for name in ("first", "second", "third"))
    assert {at: second[at] for at in (9, 4)} == {at: first[at] for at in (9, 4)}
    assert third[1] == second[1]
    paid, labels = service.ledger()
    assert paid == len(labels) == len({4, 2, 9, 7, 1, 30})


def test_who_came_first_is_served_first(served: dict[str, Order]) -> None:
    assert [order.heard[0].ahead for order in served.values()] == [0, 1, 2]
    assert {order.heard[0].state for order in list(served.values())[1:]} == {"queued"}
    assert [order.heard[-1].state for order in served.values()] == ["done"] * 3


def test_the_status_shows_students_and_jobs_and_the_one_budget(served: dict[str, Order], service: JobScene) -> None:
    found = service.status()
    jobs = [(job["student"], job["state"], job["labelled"], job["note"]) for job in found["jobs"]]
    assert jobs[:3] == [("lab", "done", 4, "pilot"), ("firm", "done", 3, ""), ("lab", "done", 2, "")]
    assert found["students"]["firm"] == {"membership": "enrolled", "inputs_limit": 7, "inputs_asked": 3}
    assert found["privacy"]["epsilon_budget"] == 60.0 and found["privacy"]["epsilon_spent"] > 0
    asked = sum(job["rounds"] for job in found["jobs"])
    assert found["rounds"] == found["round_seconds"]["count"] == asked >= 3 and found["own_rounds"] == 0
    assert {found["parties"][name]["rounds_asked"] for name in NAMES[:3]} == {asked}


def test_the_same_folder_asks_for_nothing_twice(served: dict[str, Order], service: JobScene) -> None:
    jobs = len(service.status()["jobs"])
    again = service.order("lab", "first", served["first"].positions).delivered()
    assert again.labels == served["first"].delivered().labels
    assert len(service.status()["jobs"]) == jobs
    other = service.order("lab", "first", [5])
    other.join(PATIENCE_S)
    assert "holds a job that asks for other inputs" in str(other.outcome)


def test_a_student_is_held_to_its_limit_and_others_are_not(served: dict[str, Order], service: JobScene) -> None:
    over = service.order("firm", "over", [40, 41, 42, 43, 44])
    over.join(PATIENCE_S)
    assert isinstance(over.outcome, Refused) and "7 inputs altogether" in str(over.outcome)
    paid, _ = service.ledger()
    assert service.order("firm", "within", [1, 4, 9, 2, 7]).delivered().status.state == "done"
    assert service.ledger()[0] == paid, "all of them were paid for before"


def test_a_job_is_shown_to_its_own_student_alone(served: dict[str, Order], service: JobScene) -> None:
    firm = service.client(service.scene.folder / "keys-firm")
    job_id = served["first"].heard[0].job_id
    with pytest.raises(Refused, match="queued with other inputs"):
        firm.order(LabelJob(job_id, firm.describe().pool.sha256, (4, 2, 9, 7)), lambda status: pytest.fail("shown"))


def test_inputs_that_are_not_in_the_pool_are_refused(served: dict[str, Order], service: JobScene) -> None:
    lab = service.client(service.scene.folder / "keys-lab")
    with pytest.raises(PoolMismatch, match="100 inputs"):
        lab.order(LabelJob("ab" * 16, lab.describe().pool.sha256, (100,)), print)
    with pytest.raises(PoolMismatch, match="ask anew"):
        lab.order(LabelJob("ab" * 16, "0" * 64, (1,)), print)


# -- who may call ----------------------------------------------------------------------------------


def test_a_party_cannot_ask_for_labels(served: dict[str, Order], service: JobScene) -> None:
    keys = service.scene.folder / "ash" / "credentials"
    client = LabelJobClient(lambda: Credentials.load(keys, "party"), service.address)
    with pytest.raises(IdentityError, match="certificate of a party, not of a student"):
        client.describe()


def test_a_student_cannot_attend_as_a_party(served: dict[str, Order], service: JobScene) -> None:
    keys = service.scene.folder / "keys-lab"
    session = PartySession(
        lambda task: pytest.fail("let in"), lambda: Credentials.load(keys, "student"), service.address
    )
    with pytest.raises(IdentityError, match="certificate of a student, not of a party"):
        session.run()


def test_a_student_that_was_never_enrolled_is_refused(service: JobScene, tmp_path: Path) -> None:
    """Its certificate is of the right authority, as one that was issued for a trial would be."""
    authority = load_authority(service.scene.folder / "consortium" / "authority")
    issue_kit(authority, tmp_path, "stranger", "student")
    with pytest.raises(IdentityError, match="stranger is no student"):
        service.client(tmp_path).describe()
    issue_kit(authority, tmp_path / "other", "lab", "student")
    with pytest.raises(IdentityError, match="another signing key"):
        service.client(tmp_path / "other").describe()


def test_another_authority_gets_no_connection_at_all(service: JobScene, tmp_path: Path) -> None:
    issue_kit(Authority.create("trial"), tmp_path, "lab", "student")
    with pytest.raises(IdentityError, match="not the one of this consortium"):
        service.client(tmp_path).describe()


def test_a_student_enrols_by_its_own_code_alone(service: JobScene, tmp_path: Path) -> None:
    """Neither does a party's code make a student, nor a student's a party."""
    from collegium.parties.enrolment import enrol

    where, fingerprint = service.scene.config.consortium.enrolment, service.scene.fingerprint
    with pytest.raises(IdentityError, match="join code is wrong"):
        enrol_student(where, "oak", service.scene.code_for("oak"), fingerprint, tmp_path / "oak")
    code = service.scene.code_for("firm")
    with pytest.raises(IdentityError, match="join code is wrong"):
        enrol(where, "firm", code, fingerprint, tmp_path / "firm")


# -- what is sent ----------------------------------------------------------------------------------


@contextmanager
def raw(service: JobScene) -> Iterator[Callable[..., list[bytes]]]:
    """Bytes to a method of the service, and what comes back."""
    credentials = Credentials.load(service.scene.folder / "keys-lab", "student")
    options = [*channel_options(service.address), ("grpc.max_send_message_length", -1)]
    with grpc.secure_channel(service.address, channel_credentials(credentials), options) as channel:

        def ask(method: str, *messages: bytes) -> list[bytes]:
            call = channel.stream_stream(
                f"/collegium.v1.LabelJobService/{method}", request_serializer=bytes, response_deserializer=bytes
            )(iter(messages), timeout=PATIENCE_S)
            try:
                return list(call)
            except grpc.RpcError as error:
                raise error_of(error.code(), error.details(), error.trailing_metadata()) from None

        yield ask


def test_what_is_malformed_or_too_long_is_refused_and_the_service_goes_on(service: JobScene) -> None:
    long = jobs_pb.LabelJob(job_id="ab" * 16, pool_sha256="0" * 64, note="x" * (MAX_QUESTION_BYTES + 1))
    twice = jobs_pb.LabelJob(job_id="ab" * 16, pool_sha256="0" * 64, positions=[3, 3])
    with raw(service) as ask:
        for method, question, words in (
            ("Describe", b"\xff\xff\xff", "no message of this protocol"),
            ("Order", long.SerializeToString(), "at most"),
            ("Order", twice.SerializeToString(), "each input once"),
            ("Order", jobs_pb.LabelJob(job_id="ab" * 16, pool_sha256="0" * 64).SerializeToString(), "asks for 1 to"),
            ("Order", jobs_pb.LabelJob(job_id="../../etc").SerializeToString(), "hexadecimal"),
        ):
            with pytest.raises(ProtocolViolation, match=words):
                ask(method, question)
        with pytest.raises(ProtocolViolation, match="before its question"):
            ask("Order")
        with pytest.raises(Unreachable):  # gRPC's own limit ends the call
            ask("Order", bytes(80 * 1024 * 1024))
        assert ask("Describe", jobs_pb.DescribeJobService(protocol_version=PROTOCOL_VERSION).SerializeToString())


def test_a_student_holds_a_few_calls_open_and_no_more(service: JobScene) -> None:
    """Calls that never send their question count as well."""
    credentials = Credentials.load(service.scene.folder / "keys-firm", "student")
    hold = threading.Event()
    with ExitStack() as stack:
        calls = []
        for _ in range(MAX_CALLS_PER_STUDENT + 1):
            channel = stack.enter_context(
                grpc.secure_channel(service.address, channel_credentials(credentials), channel_options(service.address))
            )
            stack.callback(hold.set)

            def silence() -> Iterator[bytes]:
                hold.wait(PATIENCE_S)
                yield b""

            multi = channel.stream_stream(
                "/collegium.v1.LabelJobService/Describe", request_serializer=bytes, response_deserializer=bytes
            )
            calls.append(multi(silence(), timeout=PATIENCE_S))
        ended = threading.Semaphore(0)
        for call in calls:
            if not call.add_callback(ended.release):  # it has ended already: nobody would be called
                ended.release()
        assert ended.acquire(timeout=PATIENCE_S)
        refused = [call for call in calls if call.done()]
        assert refused and "calls open already" in (refused[0].details() or "")
        assert len(refused) == 1


# -- what else may happen --------------------------------------------------------------------------


def test_a_certificate_that_ends_soon_is_made_anew_and_shown_while_everybody_stays_connected(
    served: dict[str, Order], service: JobScene
) -> None:
    consortium = service.scene.folder / "consortium"
    before = shown_by(service)
    authority, identity = load_authority(consortium / "authority"), consortium / "coordinator"
    issue_kit(authority, identity, "coordinator", "coordinator", hosts=["localhost"], days=5)
    deadline = time.monotonic() + PATIENCE_S
    while shown_by(service).not_valid_after_utc - utc_now() < RENEW_BEFORE:
        assert time.monotonic() < deadline
        time.sleep(0.1)  # between two looks at the condition
    assert shown_by(service) != before and shown_by(service).public_key() == before.public_key()
    assert service.order("lab", "renewed", [50, 51]).delivered().status.state == "done"
    assert all(party.ended == [] for party in service.scene.parties.values())
    assert service.ledger()[0] > 0, "the ledger is signed by the same key as before"
    assert service.enrol("lab", service.scene.folder / "keys-lab"), "the enrolment port goes on as well"


def shown_by(service: JobScene) -> x509.Certificate:
    """The certificate that the port shows to whoever connects now."""
    context = ssl.create_default_context(cafile=str(service.scene.folder / "keys-lab" / "authority.pem"))
    port = int(service.address.rpartition(":")[2])
    with (
        socket.create_connection(("localhost", port), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        shown = secured.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown)


def test_a_revoked_student_is_refused_and_its_waiting_job_is_stopped(tmp_path: Path) -> None:
    with jobs_served_by(Scene(tmp_path, settings=STUDENTS)) as service:
        service.enrol("lab")
        service.enrol("firm")
        service.order("lab", "blocking", [1])  # no party is here: it runs until one comes
        waiting = service.order("firm", "waiting", [2])
        service.scene.members.change(lambda members: (members.without("firm"), None))
        waiting.join(PATIENCE_S)
        assert isinstance(waiting.outcome, IdentityError)
        for name in NAMES[:3]:
            service.scene.join(name)
        assert service.order("lab", "later", [1, 3]).delivered().status.state == "done"
        jobs = [(job["student"], job["state"], job["reason"]) for job in service.status()["jobs"]]
        assert jobs == [("lab", "done", ""), ("firm", "stopped", "firm is no longer admitted"), ("lab", "done", "")]
        assert service.ledger()[0] == 2, "what the revoked student asked for was not paid"


def test_a_job_beyond_the_budget_is_stopped_and_what_is_labelled_stays_free(tmp_path: Path) -> None:
    with jobs_served_by(Scene(tmp_path, settings=STUDENTS, epsilon=5.0)) as service:
        service.enrol("lab")
        for name in NAMES[:3]:
            service.scene.join(name)
        order = service.order("lab", "much", list(range(40)))
        delivery = order.delivered()
        assert delivery.status.state == "stopped" and "budget.epsilon" in delivery.status.reason
        got = delivery.status.labelled
        assert 0 < got < 40 and len(delivery.labels) == got
        paid, labels = service.ledger()
        assert paid == len(labels) == got
        none = service.order("lab", "more", [60, 61]).delivered()
        assert none.status.state == "stopped" and none.labels == {}
        free = service.order("lab", "again", sorted(delivery.labels)).delivered()
        assert free.status.state == "done" and free.labels == delivery.labels
        assert service.ledger()[0] == paid
