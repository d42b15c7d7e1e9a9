"""An environment in which packages seem not to be installed, in a process and in all that it starts."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

_STARTUP = """
import sys


class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {names!r} else self.finder.find_spec(name, path, target)

    def find_distributions(self, context):
        found = getattr(self.finder, "find_distributions", lambda _: ())(context)
        return [one for one in found if (one.name or "").replace("-", "_") not in {names!r}]


sys.meta_path[:] = map(Hiding, sys.meta_path)
"""


def environment_without(modules: Collection[str], folder: Path) -> dict[str, str]:
    """Variables for a Python process that finds none of these top-level modules; ``folder`` gets its start-up file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_STARTUP.format(names=sorted(modules)), encoding="utf-8")
    search_path = [str(folder), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, search_path))}
