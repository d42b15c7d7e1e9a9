"""The bill of materials is what its schema asks for, and leaves nothing out that is needed."""

from __future__ import annotations

import json

import bill
import dependencies
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator


@pytest.fixture(scope="module")
def packages() -> dict[str, dependencies.Package]:
    return dependencies.closure(dependencies.OURS)


@pytest.mark.slow
def test_the_bill_is_valid_by_the_schema_of_cyclonedx_1_6(packages: dict[str, dependencies.Package]) -> None:
    written = bill.bill_of(packages)
    assert json.loads(written)["specVersion"] == "1.6"
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(written) is None
    planted = written.replace('"type": "library"', '"type": "book"', 1)
    assert validator.validate_str(planted) is not None


@pytest.mark.slow
def test_it_lists_every_package_with_its_version_licence_and_needs(packages: dict[str, dependencies.Package]) -> None:
    held = json.loads(bill.bill_of(packages, {"numpy": "0" * 64}))
    parts = {part["name"]: part for part in held["components"]}
    assert parts.keys() == packages.keys() >= {"collegium", "collegium-nvflare", "numpy", "torch", "flwr"}
    assert all(parts[name]["version"] == one.version and parts[name]["licenses"] for name, one in packages.items())
    assert parts["numpy"]["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}]
    needs = {one["ref"]: set(one.get("dependsOn", ())) for one in held["dependencies"]}
    for name, one in packages.items():
        assert needs[parts[name]["bom-ref"]] == {parts[other]["bom-ref"] for other in one.needs}
    assert packages["scipy"].needs == ("numpy",)
    assert held["metadata"]["component"]["name"] == "collegium"


def test_what_the_core_needs_has_neither_torch_nor_flower() -> None:
    core = dependencies.closure(["collegium[serve]"])
    assert {"collegium-accounting", "numpy", "waitress"} <= core.keys()
    assert not {"torch", "flwr", "ray", "matplotlib", "pytest"} & core.keys()


@pytest.mark.slow
def test_the_same_packages_give_the_same_bytes(
    packages: dict[str, dependencies.Package], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    backwards = dict(reversed(packages.items()))
    assert bill.bill_of(packages) == bill.bill_of(backwards)
    assert "2023-11-14T22:13:20" in bill.bill_of(packages)


def test_the_command_names_what_is_absent_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    assert bill.main(f"{tmp_path}/bill.json", "no-such-package") == 2
    assert capsys.readouterr().err == "no-such-package is needed, and is not there: install it, and try again\n"
    assert bill.main(f"{tmp_path}/bill.json", "collegium-accounting") == 0
