"""`import collegium` offers a dozen documented names and has no side effects."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import collegium as cg

NAMES = [name for name in dir(cg) if name not in ("__version__", "errors")]


def in_a_fresh_process(code: str) -> str:
    """What the code prints in a process that inherits no setting of gRPC from this one."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_there_are_about_a_dozen_names_and_each_is_what_its_module_defines() -> None:
    assert 10 <= len(NAMES) <= 15
    for name in NAMES:
        value = getattr(cg, name)
        assert value.__name__ == name and value.__module__.startswith(("collegium.", "collegium_accounting."))
    assert cg.errors.BudgetExceeded.code == "budget"


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'NoSuchName'"):
        cg.NoSuchName  # noqa: B018


def test_importing_loads_nothing_and_changes_no_environment() -> None:
    code = """
import os, sys
before, loaded = dict(os.environ), set(sys.modules)
import collegium
print(sorted(set(os.environ.items()) ^ set(before.items())))
print(sorted(name for name in set(sys.modules) - loaded if name.partition(".")[0] not in sys.stdlib_module_names))
"""
    changed, modules = in_a_fresh_process(code).splitlines()
    assert changed == "[]"
    assert modules == "['collegium', 'collegium.version']"


@pytest.mark.parametrize("name", [*NAMES, "errors"])
def test_the_module_that_offers_a_name_says_so_to_tools(name: str) -> None:
    assert name in cg.__all__
    assert os.path.isabs(cg.__file__ or "")
