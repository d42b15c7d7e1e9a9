"""Experiments that reproduce tables and figures of the papers, ours beside theirs: one file each.

Every module of this package is imported here, so that a new experiment is a new file and nothing else.
"""

import pkgutil
from importlib import import_module

from collegium_reproduction.experiments.base import EXPERIMENTS, Experiment, register

__all__ = ["EXPERIMENTS", "Experiment", "register"]

for _module in pkgutil.iter_modules(__path__, __name__ + "."):
    import_module(_module.name)
