"""The record for the deployments registry is valid by the registry's own schema, and leaves none of its questions out.

The schema beside this file is that of opendp/deployments-registry-data, under its own licence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, FormatChecker
from support.statements import a_statement

from collegium.coordinator.report.registry import registry_yaml
from collegium.errors import ConfigurationError

SCHEMA = yaml.safe_load((Path(__file__).parent / "registry" / "deployments-schema.yaml").read_text())
UNKNOWN = {"data_product_sector"}
"""What neither ledger nor run says, and no text can stand for: an enumeration."""


def complaints(record: Any) -> list[str]:
    found = Draft7Validator(SCHEMA, format_checker=FormatChecker()).iter_errors(record)
    return [f"{list(error.absolute_path)}: {error.message}" for error in found]


def read_back(facts: Mapping[str, Any]) -> Any:
    return yaml.safe_load(registry_yaml(facts))


@pytest.fixture
def facts() -> dict[str, Any]:
    held: dict[str, Any] = json.loads(json.dumps(a_statement()["facts"]))
    return held


def asked(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every place of the schema that a tier asks for."""
    for name, held in schema.get("properties", {}).items():
        if "tier" in held and not held.get("properties"):
            yield (*path, name)
        yield from asked(held, (*path, name))


def test_the_yaml_is_valid_by_the_registrys_schema(facts: dict[str, Any]) -> None:
    Draft7Validator.check_schema(SCHEMA)
    record = read_back(facts)
    assert complaints(record) == [] and record["tier"] == 3
    assert record["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.8124, "delta": 1e-5}


def test_a_record_that_is_not_valid_would_be_found(facts: dict[str, Any]) -> None:
    record = read_back(facts)
    record["deployment"]["basic"]["publication_date"] = "yesterday"
    record["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"] = "small"
    record["deployment"]["extra"] = 1
    assert len(complaints(record)) == 3


def test_every_question_of_the_strictest_tier_has_an_answer(facts: dict[str, Any]) -> None:
    record, places = read_back(facts)["deployment"], list(asked(SCHEMA["properties"]["deployment"]))
    assert len(places) > 25
    for path in places:
        if path[-1] in UNKNOWN:
            continue
        held: Any = record
        for name in path:
            held = held[name]
        assert str(held).strip(), path


@pytest.mark.parametrize("noise", [["system"], ["parties"], ["parties", "system"]])
@pytest.mark.parametrize("modes", [["clear"], ["masked"], ["masked+noised"], ["masked", "masked+noised"]])
@pytest.mark.parametrize("change", ["add-remove", "replace"])
def test_it_is_valid_whoever_adds_the_noise_and_whatever_a_neighbour_is(
    facts: dict[str, Any], noise: list[str], modes: list[str], change: str
) -> None:
    facts["ledger"]["noise"], facts["recorded"]["sum_modes"] = noise, modes
    for one in facts["ledger"]["promises"]:
        one["adjacency"] = change
    record = read_back(facts)
    assert complaints(record) == []
    assert change in record["deployment"]["privacy_loss"]["privacy_unit_details"]


@pytest.mark.parametrize("name", ["a: b # c", "- x", "null", "\t\x85\u2028", "'\"\\", "{%s}", "[1, 2]", "1e-5", "née"])
def test_hostile_names_are_read_back_as_they_were(facts: dict[str, Any], name: str) -> None:
    facts["recorded"]["classes"] = facts["recorded"]["software"] = {name: name}
    facts["ledger"]["sources"] = [name]
    record = read_back(facts)
    held = record["deployment"]
    assert complaints(record) == []
    assert held["basic"]["intended_use"].startswith(f"To classify new inputs into: {name}. The run")
    assert f"- Source of the analysis: {name}.\n" in held["implementation"]["mechanisms"]
    assert f"with {name} {name}.\n" in held["implementation"]["mechanisms"]


@pytest.mark.parametrize("delta", [1e-5, 1e-10, 5.06e-9, 0.001])
def test_numbers_are_read_back_as_numbers(facts: dict[str, Any], delta: float) -> None:
    facts["ledger"]["delta"] = delta
    assert read_back(facts)["deployment"]["privacy_loss"]["privacy_parameters"]["delta"] == delta


def test_what_is_not_private_cannot_be_registered(facts: dict[str, Any]) -> None:
    for section, change in (
        ("noise", ["seeded"]),
        ("promises", []),
        ("promises", [facts["ledger"]["promises"][0] | {"epsilon": "inf"}]),
    ):
        with pytest.raises(ConfigurationError):
            registry_yaml(facts | {"ledger": facts["ledger"] | {section: change}})
