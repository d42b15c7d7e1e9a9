"""Files that a process was writing when it was killed: named by it, never read by anybody, and removed by the next."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

_NAME = re.compile(r"\.(?:.*?[.-])??(\d+)(?:\.[0-9a-f]{8})?(?:\.partial)?")
"""``.run.json.4711``, ``.probe-4711``, ``.split-key.4711.0badcafe``, ``.4711.0badcafe.partial``."""


def sweep(folder: Path) -> None:
    """Remove what processes that are no more left half-written under ``folder``; what cannot be removed stays.

    Every file of ours is written under a name of its process and then renamed. A process that runs keeps its files.
    """
    for path in folder.rglob(".*"):
        named = _NAME.fullmatch(path.name)
        if named is not None and path.is_file() and not _runs(int(named[1])):
            with suppress(OSError):
                path.unlink()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
