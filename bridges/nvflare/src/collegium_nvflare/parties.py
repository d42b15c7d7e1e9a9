"""The sites of a job as the parties of a run: every request is one NVFlare task for one site."""

import math
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping

from nvflare.apis.controller_spec import ClientTask, SendOrder, Task, TaskCompletionStatus
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from collegium.coordinator.rounds.rounds import OnReply
from collegium.errors import CollegiumError, Unreachable
from collegium.limits import MAX_REPLY_BYTES
from collegium.protocol.messages import Reply, Request
from collegium.protocol.replies import Failure, ReplyBody
from collegium.protocol.requests import RequestBody
from collegium_nvflare import tasks

LOOK_AGAIN_S = 0.5
"""How often whoever waits for sites looks whether the job was aborted."""


class NVFlareParties:
    """`Parties` over the tasks of a controller.

    A site is there from the moment when it first asks for a task. One that lets a deadline pass, or that is dead, as
    NVFlare says, is away until it asks again.

    Parameters
    ----------
    controller : gives the tasks.
    abort : whoever waits gets Unreachable once it is triggered.
    run_id, authority_pem : go with every request.
    """

    def __init__(
        self, controller: Controller, context: FLContext, abort: Signal, *, run_id: str, authority_pem: str
    ) -> None:
        self._controller, self._context, self._abort = controller, context, abort
        self._run_id, self._authority_pem = run_id, authority_pem
        self._here: set[str] = set()
        self._changed = threading.Condition()

    def seen(self, name: str) -> None:
        """Note that a site asked for a task."""
        with self._changed:
            if name not in self._here:
                self._here.add(name)
                self._changed.notify_all()

    def names(self) -> list[str]:
        """Sites that can be asked now, sorted."""
        with self._changed:
            return sorted(self._here)

    def wait(self) -> None:
        """Wait a moment, or until another site is there; Unreachable where the job was aborted."""
        with self._changed:
            self._changed.wait(LOOK_AGAIN_S)
        self._go_on()

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        """See `Parties.ask`."""
        request_id = secrets.token_hex(16)
        encoded: dict[int, bytes] = {}  # a body that all get is written once
        for body in requests.values():
            if id(body) not in encoded:
                encoded[id(body)] = Request(request_id, self._run_id, body).to_bytes()
        replies: dict[str, ReplyBody] = {}

        def take(name: str, result: Shareable | Failure) -> None:
            replies[name] = result if isinstance(result, Failure) else _reply_in(result, request_id)
            if on_reply is not None:
                on_reply(name, replies[name])

        def carried(body: RequestBody) -> Shareable:
            content: dict[str, str | bytes] = {tasks.DATA: encoded[id(body)], tasks.AUTHORITY: self._authority_pem}
            return tasks.carrying(**content)

        data = {name: carried(body) for name, body in requests.items()}
        self.give(tasks.REQUEST, data, timeout_s=timeout_s, take=take)
        return replies

    def give(
        self,
        task: str,
        data: Mapping[str, Shareable],
        *,
        timeout_s: float,
        take: Callable[[str, Shareable | Failure], None],
    ) -> None:
        """Give each site its task, and ``take`` (site, result or failure) on this thread, once for every site."""
        done: queue.SimpleQueue[tuple[str, Shareable | Failure]] = queue.SimpleQueue()
        present = set(self.names())
        given = {name: self._scheduled(task, name, data[name], timeout_s, done) for name in data if name in present}
        waiting, deadline = set(given), time.monotonic() + timeout_s
        for name in data.keys() - present:
            take(name, Failure("unreachable", "the site asks for no tasks"))
        try:
            while waiting and (left_s := deadline - time.monotonic()) > 0:
                self._go_on()
                try:
                    name, result = done.get(timeout=min(left_s, LOOK_AGAIN_S))
                except queue.Empty:
                    continue
                if name in waiting:
                    waiting.discard(name)
                    if isinstance(result, Failure):
                        self._lost({name})
                    take(name, result)
        finally:
            for name in waiting:
                self._controller.cancel_task(given[name], TaskCompletionStatus.CANCELLED, self._context)
        self._lost(waiting)
        for name in sorted(waiting):
            take(name, Failure("deadline", f"no answer within {timeout_s:g} s"))

    def _scheduled(
        self,
        task: str,
        name: str,
        data: Shareable,
        timeout_s: float,
        done: "queue.SimpleQueue[tuple[str, Shareable | Failure]]",
    ) -> Task:
        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            done.put((name, client_task.result))
            client_task.result = None  # nobody else needs it

        def ended(task: Task, fl_ctx: FLContext) -> None:
            if task.completion_status != TaskCompletionStatus.OK:
                done.put((name, Failure("unreachable", f"NVFlare says {task.completion_status}")))

        scheduled = Task(task, data, timeout=math.ceil(timeout_s) + 1, result_received_cb=received, task_done_cb=ended)
        self._controller.send(scheduled, self._context, targets=[name], send_order=SendOrder.ANY)
        return scheduled

    def _lost(self, names: set[str]) -> None:
        with self._changed:
            self._here -= names

    def _go_on(self) -> None:
        if self._abort.triggered:
            raise Unreachable("the job was aborted; submit it again, and it goes on where it stopped")


def _reply_in(result: Shareable, request_id: str) -> ReplyBody:
    if (failure := tasks.failure_in(result)) is not None:
        return failure
    try:
        data = tasks.bytes_in(result, tasks.REPLY)
        if len(data) > MAX_REPLY_BYTES:
            return Failure("protocol", "a reply that is too long")
        reply = Reply.from_bytes(data)
    except CollegiumError as error:
        return Failure.of(error)
    return reply.body if reply.request_id == request_id else Failure("protocol", "a reply to another request")
