"""The rules of the house: who may import whom, what stays light, and what is generated stays as generated."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "collegium"
ACCOUNTING = ROOT / "accounting" / "src" / "collegium_accounting"
OURS = [*SOURCE.rglob("*.py"), *ACCOUNTING.rglob("*.py")]
HEAVY = ("torch", "ray", "flwr", "grpc", "sklearn", "matplotlib")


@cache
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    """All nodes of the syntax tree; each file is parsed once for all tests."""
    return tuple(ast.walk(ast.parse(source)))


def test_imports_point_one_way() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert "Contracts: 4 kept, 0 broken." in done.stdout


def module_of(source: str) -> ast.Module:
    module = nodes_of(source)[0]
    assert isinstance(module, ast.Module)
    return module


def import_graph(sources: dict[str, str]) -> dict[str, set[str]]:
    """Which of the modules ``{name: source}`` each of them imports anywhere, within functions and for types too."""
    graph: dict[str, set[str]] = {}
    for module, source in sources.items():
        names: set[str] = set()
        for node in nodes_of(source):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= {member if member in sources else node.module for member in members}
        graph[module] = (names & sources.keys()) - {module}
    return graph


def import_circles(sources: dict[str, str]) -> list[list[str]]:
    """Groups of modules that import each other, directly or by way of others (strongly connected components)."""
    graph = import_graph(sources)

    def reached(start: str) -> set[str]:
        found, waiting = set[str](), [start]
        while waiting:
            following = graph[waiting.pop()] - found
            found |= following
            waiting += following
        return found

    closure = {module: reached(module) for module in graph}
    circles = {
        tuple(sorted(other for other in closure[module] if module in closure[other]))
        for module in graph
        if module in closure[module]
    }
    return [list(circle) for circle in sorted(circles)]


def our_sources() -> dict[str, str]:
    """Every module of our distributions and of the benchmarks, by its name."""
    sources = {}
    for folder, package in (
        ("src", "collegium"),
        ("accounting/src", "collegium_accounting"),
        ("conformance", "collegium_conformance"),
        ("reproduction", "collegium_reproduction"),
        ("bridges/nvflare/src", "collegium_nvflare"),
        ("bridges/onnx/src", "collegium_onnx"),
        ("", "benchmarks"),
    ):
        for path in (ROOT / folder / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT / folder).with_suffix("").parts).removesuffix(".__init__")
            sources[name] = path.read_text(encoding="utf-8")
    return sources


def test_no_two_files_import_each_other() -> None:
    sources = our_sources()
    assert sum(map(len, import_graph(sources).values())) > 500
    assert import_circles(sources) == []


@pytest.mark.parametrize(
    "planted",
    [
        {"a": "import b", "b": "from a import x"},
        {"a": "from p import b", "p": "", "p.b": "def f():\n    import a"},
        {"a": "from b import x", "b": "from c import x", "c": "if TYPE_CHECKING:\n    from a import x"},
    ],
    ids=["direct", "within a function", "over a third, for types"],
)
def test_a_circle_would_be_found(planted: dict[str, str]) -> None:
    assert len(import_circles(planted)) == 1
    assert import_circles({name: text for name, text in planted.items() if name != "a"}) == []


LIGHT = {
    "import collegium_accounting.mechanisms": ("torch", "grpc", "flwr", "sklearn", "pandas"),
    "import collegium_accounting.analysis.account, collegium_accounting.commands": (
        *("torch", "grpc", "flwr", "sklearn", "pandas"),
    ),
    "import collegium.cli": HEAVY,
    "from collegium.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass": HEAVY,
    "import collegium.coordinator.run.coordinator": (
        *("torch", "grpc", "flwr", "sklearn", "matplotlib", "scipy.optimize"),
    ),
    "import collegium.simulations.simulate, collegium.simulations.cli": ("torch", "flwr", "ray"),
    "import collegium.parties.cli, collegium.parties.party": ("torch", "flwr", "ray", "sklearn", "scipy.optimize"),
}
"""What must not be loaded once a statement ran, after those above it, in one process."""


def heavy_after(statements: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """By the statement, what was loaded then and must not be."""
    code = "import json, sys\nfound = {}\n"
    for statement, forbidden in statements.items():
        loaded = f"[name for name in {list(forbidden)!r} if name in sys.modules]"
        code += f"{statement}\nfound[{statement!r}] = {loaded}\n"
    code += "print('\\f' + json.dumps(found))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = json.loads(done.stdout.rpartition("\f")[2])
    return found


def test_what_need_not_be_heavy_is_light() -> None:
    assert heavy_after(LIGHT) == {statement: [] for statement in LIGHT}
    assert heavy_after({"import json": ["zlib"], "import zlib": ["json", "zlib"]})["import zlib"] == ["json", "zlib"]


def test_neither_the_ledger_nor_the_accountant_names_a_transport_or_torch() -> None:
    for path in [*(SOURCE / "privacy").rglob("*.py"), *ACCOUNTING.rglob("*.py")]:
        for node in nodes_of(path.read_text(encoding="utf-8")):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & {"torch", "grpc", "flwr"}, path


def direct_imports_of_grpc(source: str) -> list[str]:
    """The lines of ``source`` that import gRPC without the setting that keeps TLS 1.2 out."""
    found = []
    for node in nodes_of(source):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [ast.unparse(node) for name in names if name.partition(".")[0] == "grpc"]
    return found


def test_grpc_is_imported_where_tls_1_2_is_shut_out_and_nowhere_else() -> None:
    direct = {path.name for path in SOURCE.rglob("*.py") if direct_imports_of_grpc(path.read_text(encoding="utf-8"))}
    assert direct == {"grpc_tls13.py"}
    assert direct_imports_of_grpc("def f():\n    from grpc.aio import EOF") == ["from grpc.aio import EOF"]


def test_importing_what_uses_grpc_leaves_the_environment_as_it_was() -> None:
    code = "import os; before = dict(os.environ); import collegium.parties.session; assert dict(os.environ) == before"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_making_the_stubs_again_changes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    protos = SOURCE / "protocol" / "proto"
    files = sorted(protos.rglob("*.proto"))
    assert files
    places = [f"--{kind}={tmp_path}" for kind in ("python_out", "pyi_out")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(protos), *places, *map(str, files)]
    subprocess.run(command, check=True)
    made = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*_pb2*")}
    kept = {
        path.relative_to(ROOT / "src"): path.read_bytes()
        for path in (SOURCE / "protocol" / "v1").glob("*_pb2*")
        if path.is_file()
    }
    assert made == kept


def crowded_classes(source: str) -> list[str]:
    """Classes of more than 15 methods without a reason for it in the line above them."""
    lines = source.splitlines()
    return [
        node.name
        for node in nodes_of(source)
        if isinstance(node, ast.ClassDef)
        and sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body) > 15
        and not lines[min([node.lineno, *(part.lineno for part in node.decorator_list)]) - 2].startswith(
            "# More than 15 methods: "
        )
    ]


def test_a_class_has_at_most_15_methods_or_says_why() -> None:
    assert {name: found for name, source in our_sources().items() if (found := crowded_classes(source))} == {}


def test_a_crowded_class_would_be_found() -> None:
    methods = "".join(f"    def m{number}(self): ...\n" for number in range(16))
    assert crowded_classes(f"import x\n@x\nclass A:\n{methods}") == ["A"]
    assert crowded_classes(f"import x\n# More than 15 methods: why.\n@x\nclass A:\n{methods}") == []
    assert crowded_classes(f"class A:\n{methods}".replace("    def m15(self): ...\n", "")) == []


def test_who_is_excused_from_a_rule_about_size_says_why() -> None:
    """`ruff` allows 6 parameters and a complexity of 12."""
    excused = [line for source in our_sources().values() for line in source.splitlines() if "# noqa: " in line]
    silent = [line for line in excused if re.search("PLR0913|C901", line) and " -- " not in line]
    assert excused and silent == []


def unsafe_calls(source: str) -> list[str]:
    """Calls that would run code found in a file: any pickle, `torch.load`, and numpy where it is allowed to."""
    found = []
    for node in nodes_of(source):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.partition(".")[0] in UNSAFE_MODULES]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module] if (node.module or "").partition(".")[0] in UNSAFE_MODULES and node.module else []
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            pickled = any(
                word.arg == "allow_pickle" and not (isinstance(word.value, ast.Constant) and word.value.value is False)
                for word in node.keywords
            )
            if name in ("torch.load", "torch.save", "eval", "exec", "pd.read_pickle") or pickled:
                found.append(name)
    return found


UNSAFE_MODULES = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}


def test_no_pickle_is_read_or_written_anywhere() -> None:
    found = {path: unsafe_calls(path.read_text(encoding="utf-8")) for path in OURS}
    assert {path: calls for path, calls in found.items() if calls} == {}


@pytest.mark.parametrize(
    "planted",
    ["import pickle", "from joblib import load", "np.load(path, allow_pickle=True)", "torch.load(path)"],
)
def test_a_pickle_would_be_found(planted: str) -> None:
    assert unsafe_calls(planted)


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        path
        for path in OURS
        if path.parent.name != "v1"
        and path.name not in ("__init__.py", "__main__.py")
        and not ast.get_docstring(module_of(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_no_two_test_modules_share_a_name() -> None:
    """Test folders are no packages, so that pytest tells modules apart by their names alone."""
    names = [path.name for folder in ("tests", "accounting/tests") for path in (ROOT / folder).rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)
