"""The distribution works by itself: without the rest of Collegium and without what only that needs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hidden_packages import environment_without

import collegium_accounting as ca

pytestmark = pytest.mark.bits

ROOT = Path(__file__).resolve().parents[1]
FILE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, VERSION = FILE["project"], FILE["tool"]["setuptools"]["dynamic"]["version"]
ABSENT = (
    *("collegium", "collegium_reproduction"),
    *("cryptography", "dp_accounting", "filelock", "flwr", "google", "grpc", "jinja2", "matplotlib", "pandas"),
    *("pydantic", "ray", "safetensors", "sklearn", "torch", "torchvision"),
)
"""What the rest of Collegium needs, optionally or not, and the accountant must do without."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that finds none of `ABSENT`."""
    folder = tmp_path_factory.mktemp("alone")
    return environment_without(ABSENT, folder) | {"XDG_CACHE_HOME": str(folder)}


def run(alone: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], env=alone, capture_output=True, text=True, timeout=300)


COMMANDS = """
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from collegium_accounting.__main__ import main
told = []
for given in json.loads(sys.argv[1]):
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        try:
            main(given)
        except SystemExit as ended:
            told.append((ended.code, out.getvalue(), err.getvalue()))
print(json.dumps(told))
"""


def commands(alone: dict[str, str], *given: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """Status, output and errors of commands, one after the other in one process."""
    done = run(alone, "-c", COMMANDS, json.dumps(given))
    assert done.returncode == 0, done.stderr
    return [tuple(one) for one in json.loads(done.stdout)]


def test_the_rest_is_hidden(alone: dict[str, str]) -> None:
    code = f"for name in {ABSENT!r}:\n    try: __import__(name)\n    except ModuleNotFoundError as error: print(error)"
    assert run(alone, "-c", code).stdout.splitlines() == [f"No module named '{module}'" for module in ABSENT]


def test_every_module_can_be_imported(alone: dict[str, str]) -> None:
    package = Path(ca.__file__).parent
    modules = [
        ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in package.rglob("*.py")
    ]
    assert len(modules) > 40
    done = run(alone, "-c", f"import importlib\nfor name in {modules!r}: importlib.import_module(name)")
    assert done.returncode == 0, done.stderr


def test_the_commands_run(alone: dict[str, str]) -> None:
    account = ("account", "-m", "lnmax", "--gamma", "0.5", "--queries", "2", "--json")
    done = run(alone, "-m", "collegium_accounting", *account)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["queries"] == 2 and 0 < shown["epsilon"] <= shown["epsilon_data_independent_classic"]
    planned, audited = commands(
        alone,
        ("plan", "--epsilon", "2", "--teachers", "20", "--queries", "1", "-m", "exponential", "--json"),
        ("audit", "-m", "gnmax", "--sigma", "10", "--rounds", "1", "--seed", "1", "--json"),
    )
    assert json.loads(planned[1])["best"]["mechanism"] == "exponential"
    assert json.loads(audited[1])["consistent"] is True


def test_a_mistake_is_one_line_and_what_is_missing_names_what_installs_it(alone: dict[str, str]) -> None:
    wrong, *absent, picture, published = commands(
        alone,
        ("account", "-m", "no-such", "--queries", "5"),
        ("account", "-m", "knn", "--queries", "5"),
        ("account", "--k", "300", "-m", "knn", "--queries", "5"),
        ("account", "-m", "gnmax", "--sigma", "9", "--votes", "votes.csv"),
        ("plan", "--epsilon", "2", "--teachers", "50", "--plot", "plan.png"),
        ("account", "-m", "exponential", "--gamma", "0.1", "--queries", "1", "--loss-distribution"),
    )
    assert wrong[0] == 2 and wrong[2].startswith("ConfigurationError: no mechanism is called 'no-such'")
    assert len(wrong[2].splitlines()) == 1
    for status, _, told in absent:
        assert status == 2 and "collegium-reproduction" in told, "it says where that is"
    assert "matplotlib, which is not installed: pip install 'collegium-accounting[plot]'" in picture[2]
    assert "pip install collegium-reproduction" in published[2]


def test_the_help_shows_examples_that_can_be_typed(alone: dict[str, str]) -> None:
    names = ("account", "plan", "audit")
    for name, (_, shown, _) in zip(names, commands(alone, *((name, "--help") for name in names)), strict=True):
        told = " ".join(shown.split())
        assert re.search(rf"Examples?: collegium-accounting {name} -", told), told


def test_the_readmes_example_runs_and_prints_what_it_says(alone: dict[str, str]) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(code.splitlines()) <= 12
    done = run(alone, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == re.findall(r"# prints (\S+)", code)


def test_the_version_and_the_optional_packages_are_those_of_the_project_file() -> None:
    from collegium_accounting.extras import INSTALLED_BY

    assert PROJECT["dynamic"] == ["version"] and VERSION == {"attr": "collegium_accounting.__version__"}
    optional = {
        re.split(r"[<>=]", line, maxsplit=1)[0]: f"collegium-accounting[{extra}]"
        for extra, lines in PROJECT["optional-dependencies"].items()
        for line in lines
    }
    assert optional == INSTALLED_BY


def test_every_name_of_the_face_is_what_its_module_defines_and_is_documented() -> None:
    for name in ca.__all__:
        value = getattr(ca, name)
        assert name == "__version__" or (value.__name__ == name and value.__doc__)
    with pytest.raises(AttributeError, match="no attribute 'NoSuchName'"):
        ca.NoSuchName  # noqa: B018


def test_importing_the_face_loads_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import collegium_accounting; print(*(set(sys.modules) - before))"
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    loaded = {name.partition(".")[0] for name in printed.split()}
    assert loaded - set(sys.stdlib_module_names) == {"collegium_accounting"}
