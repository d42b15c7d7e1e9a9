"""Every package that a distribution or a contributor may need has a licence that was looked at."""

from __future__ import annotations

import email
from importlib.metadata import Distribution
from pathlib import Path

import dependencies
import pytest
from license_expression import get_spdx_licensing
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.pages import ROOT


@pytest.fixture(scope="module")
def here() -> dict[str, dependencies.Package]:
    return dependencies.closure([*dependencies.OURS, "collegium[dev]"])


@pytest.mark.slow
def test_every_dependency_that_is_installed_has_an_allowed_licence(here: dict[str, dependencies.Package]) -> None:
    assert {"numpy", "torch", "flwr", "nvflare", "pytest"} <= here.keys()
    refused = {
        f"{one.name} {one.version}": one.licence
        for one in here.values()
        if not dependencies.is_allowed(one.name, one.licence)
    }
    assert refused == {}, "look at their licences, and name them in .ci/licences.toml"


def test_every_package_with_a_hash_has_an_allowed_licence_on_every_platform(
    here: dict[str, dependencies.Package],
) -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    listed = {canonicalize_name(Requirement(line.rstrip("\\")).name) for line in lines if line[:1].isalnum()}
    licences = {name: here[name].licence if name in here else dependencies.named_licence(name) for name in listed}
    refused = {name: licence for name, licence in licences.items() if not dependencies.is_allowed(name, licence)}
    assert refused == {}, "look at their licences, and name them in .ci/licences.toml"


def test_the_list_has_names_of_spdx_and_reasons() -> None:
    spdx = get_spdx_licensing()
    for name in dependencies.LICENCES["allowed"]:
        spdx.parse(name, validate=True, strict=True)
    assert not {"GPL-3.0-only", "AGPL-3.0-only", "MPL-2.0"} & set(dependencies.LICENCES["allowed"])
    assert all(
        entry.keys() == {"licence", "why"} and entry["why"] for entry in dependencies.LICENCES["packages"].values()
    )


@pytest.mark.parametrize(
    ("metadata", "licence", "allowed"),
    [
        ("License-Expression: GPL-3.0-only", "GPL-3.0-only", False),
        ("License-Expression: MIT AND AGPL-3.0-only", "MIT AND AGPL-3.0-only", False),
        ("License-Expression: MIT OR GPL-3.0-only", "MIT OR GPL-3.0-only", True),
        ("License: Apache 2.0", "Apache-2.0", True),
        ("Classifier: License :: OSI Approved :: MIT License", "MIT", True),
        ("License: BSD\nClassifier: License :: OSI Approved :: BSD License", None, False),
        ("Summary: says nothing", None, False),
    ],
)
def test_a_licence_that_was_not_looked_at_is_refused(metadata: str, licence: str | None, allowed: bool) -> None:
    found = planted(f"Name: some-package\nVersion: 1\n{metadata}\n")
    assert dependencies.licence_of("some-package", found) == licence
    assert dependencies.is_allowed("some-package", licence) is allowed


def test_a_package_that_is_taken_with_one_licence_is_not_taken_with_another() -> None:
    assert dependencies.is_allowed("psycopg", "LGPL-3.0-only")
    assert not dependencies.is_allowed("psycopg", "GPL-3.0-only")
    assert not dependencies.is_allowed("another", "LGPL-3.0-only")


def test_a_package_that_is_needed_and_absent_is_named() -> None:
    with pytest.raises(LookupError, match="no-such-package is needed"):
        dependencies.closure(["no-such-package"])


def planted(text: str) -> Distribution:
    class Planted(Distribution):
        def read_text(self, filename: str) -> str | None:
            return text if filename == "METADATA" else None

        def locate_file(self, path: str | Path) -> Path:
            return Path(path)

    assert email.message_from_string(text)["Name"]
    return Planted()
