"""Python processes that tests start: the scripts of this folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]


def start_script(name: str, *arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    """Start the module ``support.NAME`` as a process of its own; ``options`` are those of `subprocess.Popen`."""
    search_path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", f"support.{name}", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": search_path},
        text=True,
        **options,
    )
