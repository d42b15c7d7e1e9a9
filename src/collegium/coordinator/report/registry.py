"""A run as a record of the deployments registry that OpenDP keeps: its strictest tier, from ledger and run alone.

The form is that of the registry's schema (opendp/deployments-registry-data). What neither ledger nor run knows is said
to be unknown. The text is in registry.yaml.j2.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from collegium.coordinator.report.page import rendered, templates
from collegium.coordinator.report.statement import CHANGES
from collegium.errors import ConfigurationError


def registry_yaml(facts: Mapping[str, Any]) -> str:
    """The record of a statement's facts as YAML; ConfigurationError where nothing private was released."""
    spent = facts["ledger"]
    if not spent["promises"] or "seeded" in spent["noise"] or spent["promises"][0]["epsilon"] == "inf":
        raise ConfigurationError("there is no private release to register: nothing was charged, or nothing is promised")
    day = str(spent["until_utc"][:10])
    templates("coordinator.report").filters.update(scalar=_scalar, prose=_prose, listed=_listed)
    return rendered(
        "coordinator.report",
        "registry.yaml.j2",
        facts=facts,
        changes=CHANGES,
        day=day,
        slug=re.sub(r"[^a-z0-9]+", "-", f"{facts['recorded']['run']}-{day}".lower()).strip("-"),
    )


def _scalar(value: Any) -> str:
    """As JSON has it, which YAML reads alike; a float keeps its point, without which YAML reads 1e-05 as a text."""
    if isinstance(value, float) and "e" in (text := repr(value)) and "." not in text:
        return text.replace("e", ".0e")
    return json.dumps(value, ensure_ascii=not str(value).isprintable())


def _prose(text: str) -> str:
    """Lines of the template as one text."""
    return _scalar(" ".join(text.strip("\n").split("\n"))) + "\n"


def _listed(text: str) -> str:
    """Entries of the template, each from ``- `` on, as one text with a line for each: a block, if YAML allows that."""
    entries = re.split(r"\n+- ", "\n" + text.strip("\n"))[1:]
    lines = ["- " + re.sub(r"\n *", " ", entry) + "\n" for entry in entries]
    if "".join(lines).replace("\n", "").isprintable():
        return "|\n" + "".join(f"      {line}" for line in lines)
    return _scalar("".join(lines)) + "\n"
