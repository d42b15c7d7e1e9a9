"""The executor of a job: our party, which answers the requests that arrive as NVFlare's tasks."""

import logging
from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from collegium.data.values import check_party_name
from collegium.errors import CollegiumError, ConfigurationError, ProtocolViolation
from collegium.limits import MAX_REPLY_BYTES
from collegium.logs import event, raised_at
from collegium.protocol.messages import Reply, Request
from collegium.protocol.replies import Failure
from collegium_nvflare import tasks
from collegium_nvflare.own_folder import own_folder
from collegium_nvflare.site import TASK, Site, read_task

logger = logging.getLogger("collegium.party")


class PartyExecutor(Executor):
    """Answers for the institution of its site, by the site's own files alone: a job can name no others."""

    def __init__(self) -> None:
        super().__init__()
        self._site: Site | None = None

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """The site's answer to one task; an error is an answer too."""
        try:
            return self._answer(task_name, shareable, fl_ctx)
        except CollegiumError as error:
            told = event("not-answered", request=task_name, code=error.code)
            logger.warning("%s: %s: %s", task_name, error.code, error, extra=told)
            return tasks.failed(error)
        except Exception as error:  # its text may quote a record
            logger.error("%s failed: %s at %s", task_name, type(error).__name__, raised_at(error))
            return tasks.failed(error)

    def _answer(self, task_name: str, shareable: Shareable, context: FLContext) -> Shareable:
        site = self._site = self._site or self._opened(context)
        if task_name == tasks.JOIN:
            return tasks.carrying(**{tasks.SIGNING_REQUEST: site.join()})
        if task_name == tasks.ADMIT:
            given = [tasks.text_in(shareable, name) for name in (tasks.CERTIFICATE, tasks.AUTHORITY, tasks.ROSTER)]
            return tasks.carrying(**{tasks.DIGEST: site.admitted(*given)})
        if task_name != tasks.REQUEST:
            raise ProtocolViolation(f"no task of Collegium: {task_name[:64]!r}")
        request = Request.from_bytes(tasks.bytes_in(shareable, tasks.DATA))
        data = site.party(tasks.text_in(shareable, tasks.AUTHORITY)).handle(request).to_bytes()
        if len(data) > MAX_REPLY_BYTES:
            too_long = Failure("protocol", "the answer is too long: ask for fewer queries at once")
            data = Reply(request.request_id, too_long).to_bytes()
        return tasks.carrying(**{tasks.REPLY: data})

    def _opened(self, context: FLContext) -> Site:
        workspace, name = context.get_engine().get_workspace(), context.get_identity_name()
        check_party_name(name, ConfigurationError)
        file = own_folder(workspace.get_root_dir(), name) / "party.toml"
        if not file.exists():
            raise ConfigurationError(f"there is no {file}: write it, as docs/nvflare.md shows")
        return Site(name, file, read_task(Path(workspace.get_app_config_dir(context.get_job_id())) / TASK))
