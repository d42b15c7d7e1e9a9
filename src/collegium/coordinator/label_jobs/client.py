"""How a student outside calls the label job service: over TLS with its own certificate, until a call gets through."""

import logging
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from numpy.typing import NDArray

from collegium import limits
from collegium.data import PoolStore
from collegium.data.values import ArraySpec
from collegium.errors import CollegiumError, ProtocolViolation, Unreachable
from collegium.protocol.channels import (
    Backoff,
    channel_credentials,
    channel_options,
    error_of,
    explain_failure,
    patience,
    require_version,
)
from collegium.protocol.grpc_tls13 import grpc
from collegium.protocol.identities import Credentials
from collegium.protocol.label_jobs import (
    SERVICE,
    JobServiceDescription,
    JobStatus,
    LabelJob,
    piece_from_bytes,
)
from collegium.protocol.v1 import label_jobs_pb2 as jobs_pb

logger = logging.getLogger("collegium.student")

ANSWER_S = 120.0
"""How long the answer of one message may take."""

Result = TypeVar("Result")


class LabelJobClient:
    """A student's connection to the coordinator. A call that is cut off is made again, after a wait.

    Every method raises what the coordinator answers. A coordinator that cannot be reached is waited for; one that was
    never reached and is not this consortium's (IdentityError), or speaks no TLS 1.3 (ProtocolViolation), is not.

    Parameters
    ----------
    load_credentials : called before every connection, so that a renewed certificate is taken up.
    address : ``host:port``; the host is the name that the coordinator's certificate must carry.
    sleep, uniform : the waiting and its jitter, for tests.
    """

    def __init__(
        self,
        load_credentials: Callable[[], Credentials],
        address: str,
        *,
        backoff: Backoff = Backoff(),  # noqa: B008 -- frozen
        sleep: Callable[[float], object] | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._load_credentials, self._address = load_credentials, address
        self._backoff, self._uniform = backoff, uniform
        self._sleep = sleep or threading.Event().wait
        self._reached = False

    def describe(self) -> JobServiceDescription:
        """What the consortium has to offer; VersionMismatch when it speaks another version of the protocol."""
        question = jobs_pb.DescribeJobService(protocol_version=limits.PROTOCOL_VERSION).SerializeToString()

        def ask(call: _Call) -> bytes:
            for data in call("Describe", question, timeout_s=ANSWER_S):
                return data
            raise Unreachable("the coordinator ended the call without an answer")

        said = JobServiceDescription.from_bytes(self._patiently(ask))
        require_version(said.protocol_version, "the coordinator", "this student")
        return said

    def hold_pool(
        self, spec: ArraySpec, store: PoolStore, on_received: Callable[[int, int], None] = lambda done, total: None
    ) -> NDArray[Any]:
        """The pool, fetched into ``store`` from the byte that it has reached; ``on_received`` hears of bytes."""

        def fetch(call: _Call) -> NDArray[Any]:
            while not (state := store.state(spec)).complete:
                question = jobs_pb.PoolFrom(sha256=spec.sha256, offset_bytes=state.received_bytes)
                for data in call("FetchPool", question.SerializeToString()):
                    piece = piece_from_bytes(data)
                    if piece.pool != spec:
                        raise ProtocolViolation("the coordinator sent a piece of another pool")
                    on_received(store.accept(piece).received_bytes, spec.size_bytes)
                if store.state(spec).received_bytes <= state.received_bytes and not store.holds(spec):
                    raise Unreachable("the coordinator sent nothing of the pool")
            return store.open(spec.sha256)

        return self._patiently(fetch)

    def order(self, job: LabelJob, on_status: Callable[[JobStatus], None]) -> JobStatus:
        """Queue the job, once however often this is called, and wait until it has ended; its state, with the labels.

        ``on_status`` is called whenever something is new.
        """

        def listen(call: _Call) -> JobStatus:
            told: JobStatus | None = None
            for data in call("Order", job.to_bytes()):
                status = JobStatus.from_bytes(data)
                if status != told:
                    on_status(told := status)
                if status.ended:
                    return status
            raise Unreachable("the coordinator ended the call")

        return self._patiently(listen)

    def _patiently(self, work: "Callable[[_Call], Result]") -> Result:
        """Do it over a connection of its own, and again while the coordinator cannot be reached."""
        failures = 0
        while True:
            credentials = self._load_credentials()
            options = channel_options(self._address)
            call = None
            try:
                with grpc.secure_channel(self._address, channel_credentials(credentials), options) as channel:
                    call = _Call(channel)
                    return work(call)
            except Unreachable as error:
                answered = call is not None and call.answered
                self._reached |= answered
                failures = 1 if answered else failures + 1
                said: CollegiumError = error
                if not answered:
                    said = explain_failure(self._address, credentials)
                    if not isinstance(said, Unreachable) and not self._reached:
                        raise said from None
                delay_s = self._backoff.delay_s(failures, self._uniform)
                logger.warning("%s; trying again in %.1f s", said, delay_s)
                self._sleep(delay_s)


class _Call:
    """Calls a method of the label job service; yields the answers' bytes."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self.answered = False

    def __call__(self, method: str, question: bytes, *, timeout_s: float | None = None) -> Iterator[bytes]:
        multi: Any = self._channel.unary_stream(
            f"/{SERVICE}/{method}", request_serializer=bytes, response_deserializer=bytes
        )
        call: Any = multi(question, timeout=timeout_s)
        # A connection that is never made must not hang a call that has no time limit.
        waiting = patience(call.cancel)
        try:
            for data in call:
                waiting.cancel()
                self.answered = True
                yield data
        except grpc.RpcError as error:
            raise error_of(error.code(), error.details(), error.trailing_metadata()) from None
        finally:
            waiting.cancel()
            call.cancel()
