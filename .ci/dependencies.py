"""What our distributions need: the requirements in their metadata, followed to the end; and the licence of each."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from license_expression import ExpressionError, LicenseExpression, get_spdx_licensing
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
OURS = (
    "collegium-accounting[plot]",
    "collegium[all,conformance,nvflare,reproduction]",
    "collegium-conformance",
    "collegium-nvflare",
    "collegium-onnx",
    "collegium-reproduction",
)
"""Every distribution with every extra that a user may choose; `dev` is for contributors."""
LICENCES: dict[str, Any] = tomllib.loads((Path(__file__).parent / "licences.toml").read_text(encoding="utf-8"))
_SPDX = get_spdx_licensing()


@dataclass(frozen=True)
class Package:
    """An installed distribution, or one in a wheel.

    Attributes
    ----------
    name : normalised.
    needs : the normalised names of what it needs here, with the extras that were asked for.
    licence : SPDX expression; None where neither its metadata nor ``licences.toml`` gives one.
    """

    name: str
    version: str
    summary: str
    licence: str | None
    needs: tuple[str, ...]


def closure(roots: Iterable[str], path: Iterable[Path | str] | None = None) -> dict[str, Package]:
    """The packages that ``roots`` need on this platform, themselves included, by normalised name.

    Parameters
    ----------
    roots : requirements, such as ``collegium[serve]``.
    path : folders or wheels in which to look; the environment of this process by default.

    Raises
    ------
    LookupError
        When a package that is needed is not there.
    """
    there: dict[str, Distribution] = {}
    for found in distributions() if path is None else distributions(path=[str(place) for place in path]):
        there.setdefault(canonicalize_name(found.metadata["Name"]), found)
    needs: dict[str, set[str]] = {}
    waiting, seen = [Requirement(root) for root in roots], set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        for extra in ["", *wanted.extras]:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            if name not in there:
                raise LookupError(f"{wanted} is needed, and is not there: install it, and try again")
            further = [Requirement(line) for line in there[name].requires or []]
            further = [one for one in further if one.marker is None or one.marker.evaluate({"extra": extra})]
            needs.setdefault(name, set()).update(canonicalize_name(one.name) for one in further)
            waiting += further
    return {name: _package(there[name], needs[name] - {name}) for name in sorted(needs)}


def _package(found: Distribution, needs: set[str]) -> Package:
    name = canonicalize_name(found.metadata["Name"])
    summary = found.metadata["Summary"] or ""
    return Package(name, found.version, summary, licence_of(name, found), tuple(sorted(needs)))


def licence_of(name: str, found: Distribution) -> str | None:
    """The SPDX expression of a package: its metadata's expression, text or classifier, else what licences.toml says."""
    stated = found.metadata["License-Expression"]
    if stated:
        return str(stated)
    classifiers = [line for line in found.metadata.get_all("Classifier") or [] if line.startswith("License :: OSI")]
    for text in [found.metadata["License"] or "", *(line.rpartition(" :: ")[2] for line in classifiers)]:
        spelled = LICENCES["spelled"].get(text.strip(), text.strip())
        if spelled and _parsed(spelled) is not None:
            return str(spelled)
    return named_licence(name)


def named_licence(name: str) -> str | None:
    """What ``licences.toml`` says of one package; None where it says nothing."""
    entry = LICENCES["packages"].get(name)
    return None if entry is None else str(entry["licence"])


def is_allowed(name: str, licence: str | None) -> bool:
    """Whether a package may have this licence: any may (all parts of an ``AND``, one of an ``OR``), or it by name."""
    parsed = _parsed(licence or "")
    return (parsed is not None and _holds(parsed)) or (licence is not None and licence == named_licence(name))


def _parsed(expression: str) -> LicenseExpression | None:
    try:
        return _SPDX.parse(expression, validate=True, strict=True)
    except ExpressionError:
        return None


def _holds(parsed: LicenseExpression) -> bool:
    if isinstance(parsed, _SPDX.AND):
        return all(_holds(part) for part in parsed.args)
    if isinstance(parsed, _SPDX.OR):
        return any(_holds(part) for part in parsed.args)
    return str(parsed) in LICENCES["allowed"]
