"""What a mechanism that sums votes, counts or vectors and adds noise costs in privacy: an ε that may be published.

The names that a program or a notebook needs are here. Each is loaded when it is first used, so that ``import
collegium_accounting`` takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collegium_accounting.analysis.account import PrivacyReport as PrivacyReport
    from collegium_accounting.analysis.account import account as account
    from collegium_accounting.analysis.audit import audit as audit
    from collegium_accounting.mechanisms import create as create
    from collegium_accounting.mechanisms.confident_gnmax import ConfidentGNMax as ConfidentGNMax
    from collegium_accounting.mechanisms.exponential import Exponential as Exponential
    from collegium_accounting.mechanisms.gnmax import GNMax as GNMax
    from collegium_accounting.mechanisms.lnmax import LNMax as LNMax
    from collegium_accounting.renyi import RenyiCurve as RenyiCurve
    from collegium_accounting.renyi import gaussian_curve as gaussian_curve
    from collegium_accounting.units import Unit as Unit

__version__ = "0.2.0"

_DEFINED_IN = {
    "ConfidentGNMax": "mechanisms.confident_gnmax",
    "Exponential": "mechanisms.exponential",
    "GNMax": "mechanisms.gnmax",
    "LNMax": "mechanisms.lnmax",
    "PrivacyReport": "analysis.account",
    "RenyiCurve": "renyi",
    "Unit": "units",
    "account": "analysis.account",
    "audit": "analysis.audit",
    "create": "mechanisms",
    "gaussian_curve": "renyi",
}
"""The module that defines each public name."""

__all__ = ["__version__", *sorted(_DEFINED_IN)]


def __getattr__(name: str) -> Any:
    """A public name at its first use (PEP 562)."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'collegium_accounting' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_DEFINED_IN[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
