"""Collegium: institutions that may not share data train one publishable classifier together.

The names that a program or a notebook needs are here; docs/python.md shows them at work. Each is loaded when it is
first used, so that ``import collegium`` takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collegium import errors as errors
    from collegium.coordinator.students.published import load_student as load_student
    from collegium.data.examples import encode as encode
    from collegium.data.task import Task as Task
    from collegium.parties.party import Party as Party
    from collegium.parties.policy import PolicyConfig as PolicyConfig
    from collegium.simulations.local import Coordinator as Coordinator
    from collegium.simulations.local import LocalParties as LocalParties
    from collegium.simulations.sweep import simulate as simulate
    from collegium_accounting.analysis.account import account as account
    from collegium_accounting.analysis.planning import plan as plan
    from collegium_accounting.mechanisms.class_sums import ClassSums as ClassSums
    from collegium_accounting.mechanisms.confident_gnmax import ConfidentGNMax as ConfidentGNMax
    from collegium_accounting.mechanisms.exponential import Exponential as Exponential
    from collegium_accounting.mechanisms.gnmax import GNMax as GNMax
    from collegium_accounting.mechanisms.lnmax import LNMax as LNMax

from collegium.version import __version__

_DEFINED_IN = {
    "ClassSums": "collegium_accounting.mechanisms.class_sums",
    "ConfidentGNMax": "collegium_accounting.mechanisms.confident_gnmax",
    "Coordinator": "collegium.simulations.local",
    "Exponential": "collegium_accounting.mechanisms.exponential",
    "GNMax": "collegium_accounting.mechanisms.gnmax",
    "LNMax": "collegium_accounting.mechanisms.lnmax",
    "LocalParties": "collegium.simulations.local",
    "Party": "collegium.parties.party",
    "PolicyConfig": "collegium.parties.policy",
    "Task": "collegium.data.task",
    "account": "collegium_accounting.analysis.account",
    "encode": "collegium.data.examples",
    "load_student": "collegium.coordinator.students.published",
    "plan": "collegium_accounting.analysis.planning",
    "simulate": "collegium.simulations.sweep",
}
"""The module that defines each public name."""

__all__ = ["__version__", "errors", *sorted(_DEFINED_IN)]


def __getattr__(name: str) -> Any:
    """A public name at its first use (PEP 562)."""
    if name == "errors":
        return import_module("collegium.errors")
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'collegium' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_DEFINED_IN[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
