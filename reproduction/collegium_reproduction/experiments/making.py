"""Run an experiment and note how its results were made."""

from __future__ import annotations

import platform
import resource
import time
from importlib.metadata import version
from typing import Any

from collegium_reproduction.experiments.base import MADE, Experiment, Setting

_LIBRARIES = ("collegium", "numpy", "scipy", "scikit-learn", "torch")


def make(experiment: Experiment, setting: Setting) -> dict[str, Any]:
    """What the experiment measured, and under `MADE` the seeds, seconds and versions."""
    began_s, cpu_began_s = time.monotonic(), _cpu_s()
    measured = experiment.run(setting)
    return {
        **measured,
        MADE: {
            "seeds": list(setting.seeds),
            "wall_s": round(time.monotonic() - began_s, 1),
            "cpu_s": round(_cpu_s() - cpu_began_s, 1),
            "versions": {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}},
        },
    }


def _cpu_s() -> float:
    """Processor time of this process and of those that it started and saw end."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
