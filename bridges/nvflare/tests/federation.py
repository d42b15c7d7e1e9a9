"""NVFlare's channel in memory: a job's controller and its sites' executors in threads, without NVFlare's processes."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task, TaskCompletionStatus
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable, make_copy
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace

from collegium_nvflare import tasks
from collegium_nvflare.controller import CoordinatorController
from collegium_nvflare.executor import PartyExecutor
from collegium_nvflare.own_folder import VARIABLE

JOB = "job-1"


class Engine:
    """What a component finds behind its context."""

    def __init__(self, workspace: Path) -> None:
        for folder in ("startup", "local"):
            (workspace / folder).mkdir(parents=True, exist_ok=True)
        self._workspace, self.panics = Workspace(str(workspace), "any"), list[str]()

    def get_workspace(self) -> Workspace:
        return self._workspace

    def fire_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.FATAL_SYSTEM_ERROR:
            self.panics.append(fl_ctx.get_prop(FLContextKey.EVENT_DATA))


@dataclass
class Federation:
    """A server and sites below ``folder``, which run the job in ``job`` as often as `submit` is called."""

    folder: Path
    job: Path
    sites: tuple[str, ...]
    seen: list[tuple[str, str]] = field(default_factory=list)
    """Each task that a site was given: (site, task)."""
    lives: dict[str, int] = field(default_factory=dict)
    """How many requests a site answers before it dies: then NVFlare says so of each of its tasks."""
    aborts_at: int | None = None
    """The request, over all sites, at which somebody aborts the job."""
    abort: Signal = field(default_factory=Signal)

    def submit(self, own: str | None, **settings: Any) -> list[str]:
        """Run the job; returns what ended it, if anything did. ``own`` is where sites have their files."""
        with pytest.MonkeyPatch.context() as environment:
            if own is not None:
                environment.setenv(VARIABLE, own)
            return self._run(**settings)

    def _run(self, **settings: Any) -> list[str]:
        self.abort = Signal()
        server = self._context("server", "app_server")
        self._executors = {site: (PartyExecutor(), self._context(site, "app_client")) for site in self.sites}
        self._controller = CoordinatorController(**settings)
        self._controller.communicator = self
        stop = threading.Event()
        asking = threading.Thread(target=self._ask_for_tasks, args=(stop,), daemon=True)
        asking.start()
        try:
            self._controller.control_flow(self.abort, server)
        finally:
            stop.set()
            asking.join()
        return server.get_engine().panics

    def send(self, task: Task, fl_ctx: FLContext, targets: list[str], *_: Any) -> None:
        """As NVFlare's own communicator: the task goes to its one target, and its answer to the task's callback."""
        self.seen.append((targets[0], task.name))
        if request_count(self) == self.aborts_at:
            self.abort.trigger(True)
        act = self._bury if self._is_dead(targets[0]) else self._execute
        threading.Thread(target=act, args=(targets[0], task, fl_ctx), daemon=True).start()

    def cancel_task(self, task: Task, *_: Any) -> None:
        """A task that nobody waits for any more."""

    def _is_dead(self, site: str) -> bool:
        return site in self.lives and self.seen.count((site, tasks.REQUEST)) > self.lives[site]

    def _bury(self, site: str, task: Task, server: FLContext) -> None:
        task.completion_status = TaskCompletionStatus.CLIENT_DEAD
        task.task_done_cb(task=task, fl_ctx=server)

    def _execute(self, site: str, task: Task, server: FLContext) -> None:
        executor, context = self._executors[site]
        result = executor.execute(task.name, make_copy(task.data), context, self.abort)
        client_task = ClientTask(Client(site, ""), task)
        client_task.result = Shareable.from_bytes(result.to_bytes())
        task.result_received_cb(client_task=client_task, fl_ctx=server)

    def _ask_for_tasks(self, stop: threading.Event) -> None:
        while not stop.wait(0.01):
            for site in filter(lambda site: not self._is_dead(site), self.sites):
                context = FLContextManager(identity_name="server").new_context()
                peer = FLContextManager(identity_name=site).new_context()
                context.set_peer_context(peer)
                self._controller.handle_event(EventType.BEFORE_PROCESS_TASK_REQUEST, context)

    def _context(self, site: str, app: str) -> FLContext:
        workspace = self.folder / site
        engine = Engine(workspace)
        shutil.copytree(self.job / app, workspace / JOB / f"app_{site}", dirs_exist_ok=True)
        engine.get_workspace().site_name = site
        return FLContextManager(engine=engine, identity_name=site, job_id=JOB).new_context()


def request_count(federation: Federation) -> int:
    """How many requests of our protocol were put to sites."""
    return sum(task == tasks.REQUEST for _, task in federation.seen)
