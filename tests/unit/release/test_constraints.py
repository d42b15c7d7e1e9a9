"""constraints.txt: one release, with hashes, of every package that a distribution may need, and nothing else."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

import dependencies
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.pages import ROOT

TEXT = (ROOT / "constraints.txt").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^(\S[^#\n]*?) \\\n((?:    --hash=\S+(?: \\)?\n)+)", TEXT, re.MULTILINE)
PINS = [(Requirement(line), hashes.split()) for line, hashes in ENTRIES]
PROJECTS = ["accounting", ".", "conformance", "reproduction", "bridges/nvflare", "bridges/onnx"]


def pinned(requirement: Requirement, python: str) -> list[str]:
    """The releases that the file holds for Linux and one version of Python."""
    where = {"python_full_version": f"{python}.0", "python_version": python, "sys_platform": "linux"}
    return [
        str(pin.specifier).removeprefix("==")
        for pin, _ in PINS
        if canonicalize_name(pin.name) == canonicalize_name(requirement.name)
        and (pin.marker is None or pin.marker.evaluate(where))
    ]


def requirements() -> Iterator[Requirement]:
    """What the project files ask for, but for what contributors need, and our own distributions."""
    for folder in PROJECTS:
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = project.get("optional-dependencies", {})
        for lines in [project["dependencies"], *(lines for name, lines in extras.items() if name != "dev")]:
            yield from (one for one in map(Requirement, lines) if not one.name.startswith("collegium"))


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_every_requirement_has_one_release_that_fits(python: str) -> None:
    for one in requirements():
        (release,) = pinned(one, python)
        assert one.specifier.contains(release), f"{one}: make constraints"


@pytest.mark.slow
def test_what_a_listed_release_needs_here_is_listed_too() -> None:
    """As far as the listed releases are those that are installed."""
    listed = {canonicalize_name(pin.name): str(pin.specifier) for pin, _ in PINS}
    here = dependencies.closure(dependencies.OURS)
    same = [one for one in here.values() if listed.get(one.name) == f"=={one.version}"]
    assert len(same) > 10
    absent = {f"{one.name} needs {name}" for one in same for name in one.needs if name not in listed}
    assert absent == set(), "make constraints"


def test_the_file_is_pins_and_hashes_and_names_no_host() -> None:
    known = "".join(f"{line} \\\n{hashes}" for line, hashes in ENTRIES)
    head = "".join(line for line in TEXT.splitlines(keepends=True) if line.startswith("#"))
    assert head + known == TEXT
    assert "://" not in TEXT and "make constraints" in head
    for pin, hashes in PINS:
        assert re.fullmatch(r"==[\w.!+]+", str(pin.specifier)) and "+" not in str(pin.specifier)
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}|\\", word) for word in hashes)


def test_torch_is_the_build_of_the_public_index() -> None:
    """Of several platforms; a build for processors alone comes from another index, and is installed before."""
    (hashes,) = [hashes for pin, hashes in PINS if pin.name == "torch"]
    assert len([word for word in hashes if word != "\\"]) > 10
