"""Every file, module, class, function and test that a page names in backticks exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from support.pages import ROOT

PAGES = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        ROOT / "accounting" / "README.md",
        ROOT / "bridges" / "nvflare" / "README.md",
    ]
)
FOLDERS = (
    "src/collegium",
    "accounting/src/collegium_accounting",
    "conformance/collegium_conformance",
    "reproduction/collegium_reproduction",
    "bridges/nvflare/src/collegium_nvflare",
    "bridges/onnx/src/collegium_onnx",
    "bridges/nvflare/tests",
    "tests",
    "accounting/tests",
    "benchmarks",
    "examples",
)

ELSEWHERE = {
    "sklearn.ensemble",
    "torch.func",
    "package.module",
    "coordinator.example.org",
    "collegium.mechanisms",  # groups of entry points
    "collegium.teachers",
    "collegium.students",
    "collegium.sources",
    "collegium.questions",
    "collegium.party_kinds",
    "collegium.run_kinds",
    "collegium.count_kinds",
    "collegium.v1",  # the package of the .proto files
    "terms.parameters",  # fields of messages
    "terms.stage",
    "NaN",
    "LimitNOFILE",  # a setting of systemd
}


def defined_in(source: str) -> set[str]:
    """The names that a Python source defines, methods and attributes of a class as ``Class.name`` too."""
    found: set[str] = set()

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found.update(prefix + target.id for target in targets if isinstance(target, ast.Name))

    visit(ast.parse(source).body, "")
    return found


def our_modules() -> dict[str, set[str]]:
    """``{dotted name of a module or package: what it defines}`` for all our Python."""
    modules: dict[str, set[str]] = {}
    for folder in FOLDERS:
        base = ROOT / folder
        for path in base.rglob("*.py"):
            parts = (base.name, *path.relative_to(base).with_suffix("").parts)
            name = ".".join(parts).removesuffix(".__init__")
            modules[name] = defined_in(path.read_text(encoding="utf-8"))
            for end in range(1, len(parts)):
                modules.setdefault(".".join(parts[:end]), set())
    return modules


class Ours:
    """Every name that is ours, read once where it is first needed."""

    def __init__(self) -> None:
        self.modules = our_modules()
        self.defined = {name for names in self.modules.values() for name in names}
        self.members = {name.rpartition(".")[2] for name in self.defined if "." in name}
        self.last_names = {name.rpartition(".")[2] for name in self.defined}
        self.wire_names = {
            name
            for path in (ROOT / "src").rglob("*.proto")
            for name in re.findall(
                r"^\s*(?:message|service|enum|rpc) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE
            )
        }
        self.files = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if ".venv" not in path.parts]
        self.tests = {*self.last_names, *(Path(path).stem for path in self.files)}


@cache
def ours() -> Ours:
    return Ours()


def ends_with(name: str, end: str) -> bool:
    return name == end or name.endswith(f".{end}")


def dotted_name_exists(name: str) -> bool:
    """Whether a dotted name is a module of ours (its first packages may be left out) or something that one defines."""
    if name.startswith("collegium.v1."):
        return name.removeprefix("collegium.v1.") in ours().wire_names
    if name.startswith("cg."):
        return name.removeprefix("cg.") in ours().modules["collegium"] | ours().last_names or dotted_name_exists(
            name[3:]
        )
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        member = ".".join(parts[end:])
        for module, defined in ours().modules.items():
            if ends_with(module, ".".join(parts[:end])) and (not member or member in defined):
                return True
    return name in ours().defined


def missing(text: str) -> list[str]:
    """What ``text`` names in backticks that looks like ours and does not exist."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    wrong = []
    for quoted in re.findall(r"`([^`\n]+)`", prose):
        name = re.split(r"[\[(=:]", quoted)[0]
        if name in ELSEWHERE or ("/" in name and name.partition("/")[0] in ELSEWHERE):
            continue
        if re.fullmatch(r"test_\w+\*?", name):
            pattern = re.compile(re.escape(name).replace(r"\*", r"\w*"))
            found = name in ours().tests or any(pattern.fullmatch(other) for other in ours().tests)
        elif re.fullmatch(r"[\w/-]+\.py", name):
            found = any(f"/{path}".endswith(f"/{name}") for path in ours().files)
        elif re.fullmatch(
            r"(src|accounting|conformance|tests|docs|examples|reproduction|benchmarks)(/[\w.-]+)+/?", name
        ):
            found = (ROOT / name).exists()
        elif re.fullmatch(r"[a-z]\w*(\.[A-Za-z]\w*)+", name) and looks_like_code(name):
            found = dotted_name_exists(name)
        elif re.fullmatch(r"(?=\w*[a-z])[A-Z]\w*([A-Z]\w*(\.\w+)?|\.[a-z_]\w*)", name):
            owner, _, member = name.partition(".")
            found = owner in ours().last_names | ours().wire_names and (not member or member in ours().members)
        else:
            continue
        if not found:
            wrong.append(quoted)
    return wrong


def looks_like_code(name: str) -> bool:
    """Other dotted names are files (``run.json``), host names and keys of TOML files (``budget.epsilon``)."""
    is_setting = name.count(".") == 1 and name.partition(".")[0] in TOML_TABLES
    return not (is_setting or name.endswith(ELSEWHERE_ENDINGS))


ELSEWHERE_ENDINGS = (
    ".json",
    ".toml",
    ".sqlite",
    ".csv",
    ".npz",
    ".npy",
    ".html",
    ".md",
    ".proto",
    ".key",
    ".sh",
    ".pem",
    ".txt",
)
TOML_TABLES = ("budget", "consortium", "mechanism", "policy", "student", "teacher", "queries", "task", "pool", "votes")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_exists(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "planted",
    [
        "`test_that_nobody_wrote`",
        "`test_no_such_*`",
        "`privacy/no_such_file.py`",
        "`src/collegium/no_such_folder/`",
        "`mechanisms.gnmax.NoSuchMax`",
        "`collegium.no_such_module`",
        "`NoSuchClass`",
        "`GNMax.no_such_method`",
    ],
)
def test_a_name_that_does_not_exist_would_be_found(planted: str) -> None:
    assert missing(planted) == [planted.strip("`")]


def test_names_that_exist_are_taken_as_they_stand() -> None:
    named = "`GNMax`, `mechanisms.gnmax.GNMax`, `errors.py`, `src/collegium/parties/`, `PoolChunk`"
    assert missing(named) == []


def test_every_file_that_a_question_meets_on_its_way_exists() -> None:
    page = (ROOT / "docs" / "the-life-of-a-question.md").read_text(encoding="utf-8")
    files = re.findall(r"`((?:src|accounting|examples|reproduction)/[^`]+)`", page)
    assert len(files) > 20 and [file for file in files if not (ROOT / file).exists()] == []
