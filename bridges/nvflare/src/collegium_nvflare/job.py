"""The job that `nvflare job submit` and `nvflare simulator` take: settings and public files, and no code."""

import json
import shutil
from pathlib import Path

from collegium.coordinator.run.announced import announced_terms
from collegium.coordinator.settings.consortium import public_root, read_consortium
from collegium.coordinator.settings.run_config import load_public
from collegium.data import DataSource
from collegium.parties.enrolment import policy_text, promised
from collegium.whole_files import storing, write_whole
from collegium_nvflare.allowed import component
from collegium_nvflare.controller import CoordinatorController, sites_needed
from collegium_nvflare.executor import PartyExecutor
from collegium_nvflare.public_files import CONSORTIUM, public_file
from collegium_nvflare.site import TASK, write_task

TASK_REQUEST_INTERVAL_S = 0.1
"""How long a site waits before it asks for its next task: a run has dozens of them."""


def write_job(consortium: Path, output: Path) -> Path:
    """Write the job of a consortium's file below ``output``, and return its folder.

    Parameters
    ----------
    consortium : the file, as our own coordinator takes it; its public files go with the job.

    Raises
    ------
    ConfigurationError, StorageError, DataError
        If the file is wrong, a public file is missing, or ``output`` cannot be written.
    """
    config = read_consortium(consortium)
    folder, sites = output / config.name, list(config.consortium.parties)
    server, client = folder / "app_server" / "config", folder / "app_client" / "config"
    with storing(f"write the job {folder}"):
        shutil.rmtree(folder, ignore_errors=True)
        server.mkdir(parents=True)
        client.mkdir(parents=True)
        shutil.copyfile(consortium, server / CONSORTIUM)
        for source in filter(None, (config.pool, config.holdout)):
            _copy_public(source, public_root(config, None), consortium.resolve().parent, server)
    write_task(config.task, client / TASK)
    _write(
        folder / "meta.json",
        {
            "name": config.name,
            "min_clients": sites_needed(config),
            "deploy_map": {"app_server": ["server"], "app_client": sites},
        },
    )
    controller = {"id": "collegium", "path": component(CoordinatorController), "args": {}}
    _write(
        server / "config_fed_server.json",
        {
            "format_version": 2,
            "server": {"task_request_interval": TASK_REQUEST_INTERVAL_S},
            "workflows": [controller],
            "components": [],
        },
    )
    executor = {"path": component(PartyExecutor), "args": {}}
    _write(
        client / "config_fed_client.json",
        {"format_version": 2, "executors": [{"tasks": ["collegium_*"], "executor": executor}], "components": []},
    )
    return folder


def agreed_policy(consortium: Path) -> tuple[str, str]:
    """The policy file that agrees to what a consortium means to ask, and one sentence on what that promises."""
    config = read_consortium(consortium)
    public = load_public(config.run, public_root(config, None))
    terms = announced_terms(config.run, config.queries.count, public.spec)
    return policy_text(terms, show="collegium nvflare show WORKSPACE"), promised(terms)


def _copy_public(source: DataSource, root: Path | None, base: Path, server: Path) -> None:
    """Put a public file where the server's copy of the consortium's file finds it; a named set is found there."""
    path = public_file(source, root, base)
    if path is None:
        return
    copied = server / path.relative_to(base)
    copied.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, copied)
    else:
        shutil.copyfile(path, copied)


def _write(file: Path, content: dict[str, object]) -> None:
    write_whole(file, json.dumps(content, indent=2) + "\n")
