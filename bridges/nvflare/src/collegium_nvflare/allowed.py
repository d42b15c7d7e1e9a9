"""A site's consent to our components: NVFlare builds only what the site's own resources.json lists.

A site's log of a job says why a request failed, which the server must not learn. A start-up kit of NVFlare sends
the errors in it, and a job may ask for all of it, unless that file forbids both.
"""

import json
from pathlib import Path
from typing import Any

from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
from nvflare.app_common.logging.constants import ALLOW_LOG_STREAMING_VAR
from nvflare.app_common.widgets.component_path_authorizer import CLASS_ALLOW_LIST

from collegium.errors import ConfigurationError
from collegium.whole_files import make_folder, read_whole, write_whole
from collegium_nvflare.controller import CoordinatorController
from collegium_nvflare.executor import PartyExecutor


def component(of: type) -> str:
    """How NVFlare's configuration names a class."""
    return f"{of.__module__}.{of.__qualname__}"


def allow(workspace: Path) -> Path:
    """Add our two components to those that jobs may use in this workspace, and keep logs here; returns the file.

    Raises
    ------
    ConfigurationError, StorageError
        If the file holds something else, or cannot be used.
    """
    file = workspace / "local" / "resources.json"
    default = file.with_name("resources.json.default")
    make_folder(file.parent)
    there = next((one for one in (file, default) if one.exists()), None)
    try:
        resources: dict[str, Any] = {"format_version": 2} if there is None else json.loads(read_whole(there))
        listed = list(resources.get(CLASS_ALLOW_LIST, DEFAULT_CLASS_ALLOW_LIST))
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigurationError(f"{there} is no file of NVFlare's resources: restore it") from error
    ours = [component(one) for one in (CoordinatorController, PartyExecutor)]
    resources[CLASS_ALLOW_LIST] = [*listed, *(one for one in ours if one not in listed)]
    resources[ALLOW_LOG_STREAMING_VAR] = False
    write_whole(file, json.dumps(resources, indent=2) + "\n")
    return file
