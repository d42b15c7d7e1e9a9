"""The six distributions have one version, each says it in one place, and all that repeats it agrees."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement
from support.pages import ROOT

import collegium
import collegium_accounting

FOLDERS = {
    "collegium-accounting": ROOT / "accounting",
    "collegium": ROOT,
    "collegium-conformance": ROOT / "conformance",
    "collegium-reproduction": ROOT / "reproduction",
    "collegium-nvflare": ROOT / "bridges" / "nvflare",
    "collegium-onnx": ROOT / "bridges" / "onnx",
}
PROJECTS: dict[str, dict[str, Any]] = {
    name: tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")) for name, folder in FOLDERS.items()
}


def version_of(name: str) -> str:
    """What the project file says, or the module that it names."""
    project = PROJECTS[name]["project"]
    if "version" in project:
        return str(project["version"])
    module, _, attribute = PROJECTS[name]["tool"]["setuptools"]["dynamic"]["version"]["attr"].rpartition(".")
    path = FOLDERS[name] / "src" / module.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    (found,) = re.findall(rf'^{attribute} = "(.+)"$', source.read_text(encoding="utf-8"), re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("name", FOLDERS)
def test_every_distribution_has_the_version_of_the_package(name: str) -> None:
    assert PROJECTS[name]["project"]["name"] == name
    assert version_of(name) == collegium.__version__ == collegium_accounting.__version__


def test_a_distribution_takes_the_others_at_this_version() -> None:
    seen = set()
    for project in PROJECTS.values():
        extras = project["project"].get("optional-dependencies", {}).values()
        for line in [*project["project"]["dependencies"], *(line for lines in extras for line in lines)]:
            wanted = Requirement(line)
            if wanted.name in FOLDERS and not (wanted.extras and not wanted.specifier):  # not an extra of itself
                assert wanted.specifier.contains(collegium.__version__), line
                assert not wanted.specifier.contains("0.1.0") and not wanted.specifier.contains("0.3.0"), line
                seen.add(wanted.name)
    assert seen == set(FOLDERS)


def test_the_changelog_is_by_version_and_begins_with_this_one() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d", heading) for heading in headings[1:]]
    assert all(released) and released[0] is not None and released[0][1] == collegium.__version__
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds and kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
