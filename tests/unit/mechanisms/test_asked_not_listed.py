"""No module outside its own file knows a mechanism or a kind of question by class or name: they ask the object."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from collegium.parties.kind import party_kinds
from collegium.protocol.question import own_kinds, question_named
from collegium_accounting.mechanisms import known_names, mechanism_named

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "collegium"
ACCOUNTING = ROOT / "accounting" / "src" / "collegium_accounting"
OWN_FILES = ACCOUNTING / "mechanisms"
OURS = "collegium_accounting."
SHIPPED = {name: kind for name in known_names() if (kind := mechanism_named(name)).__module__.startswith(OURS)}
ASKED = [kind for name in own_kinds() for kind in (question_named(name), party_kinds().get(name)) if kind is not None]
NAMES = set(SHIPPED) | set(own_kinds()) - {"evaluation"}
"""`evaluation` is also what a section of the configuration, and a step of a run, are called."""
CLASSES = {kind.__name__ for kind in [*SHIPPED.values(), *ASKED]}
MODULES = {kind.__module__ for kind in [*SHIPPED.values(), *ASKED]}
FACES = (SOURCE / "__init__.py", ACCOUNTING / "__init__.py")
"""They export classes for whoever builds a mechanism; they decide nothing."""
VERIFIER = SOURCE / "privacy" / "ledger" / "verifier.py"
"""It says once more, in words of its own, how far a unit moves what our mechanisms release: errors do not repeat."""
AUDIT = SOURCE / "simulations" / "run_audit.py"
"""It finds the released vector of each round of class sums, which their own kind names."""


def names_in(node: ast.AST | None) -> set[str]:
    """Names of mechanisms and kinds of questions among the constants of an expression."""
    return set() if node is None else {x.value for x in ast.walk(node) if isinstance(x, ast.Constant)} & NAMES


def violations(source: str) -> Iterator[str]:
    """Places that branch on the class or name of a mechanism or of a kind of question, or that list them."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=module) if module in MODULES:
                imported = {alias.name for alias in node.names} & CLASSES
                yield from (f"line {node.lineno}: imports {name}" for name in imported)
            case ast.Import():
                yield from (f"line {node.lineno}: imports {x.name}" for x in node.names if x.name in MODULES)
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass")):
                known = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)} | {
                    x.attr for x in ast.walk(node) if isinstance(x, ast.Attribute)
                }
                yield from (f"line {node.lineno}: asks for the class {name}" for name in known & CLASSES)
            case ast.Compare():
                yield from (f"line {node.lineno}: compares with {name!r}" for name in names_in(node))
            case ast.MatchValue() | ast.MatchClass():
                called = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)} & CLASSES
                yield from (f"line {node.lineno}: matches {name!r}" for name in names_in(node) | called)
            case ast.Dict(keys=keys):
                yield from (f"line {node.lineno}: a table with {name!r}" for key in keys for name in names_in(key))
            case ast.Tuple() | ast.List() | ast.Set():
                listed = {x.value for x in node.elts if isinstance(x, ast.Constant)} & NAMES
                yield from (f"line {node.lineno}: a list with {name!r}" for name in listed)
            case ast.Subscript(slice=ast.Constant(value=value)) if value in NAMES:
                yield f"line {node.lineno}: looks up {value!r}"
            case _:
                pass


def test_no_module_outside_its_own_file_branches_on_a_mechanism_or_a_kind_of_question() -> None:
    found = {
        str(path.relative_to(ROOT)): places
        for path in [*SOURCE.rglob("*.py"), *ACCOUNTING.rglob("*.py")]
        if OWN_FILES not in path.parents
        and path.parent.name != "kinds"
        and path not in (*FACES, VERIFIER, AUDIT)
        and (places := list(violations(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    "planted",
    [
        "from collegium_accounting.mechanisms.gnmax import GNMax",
        "import collegium_accounting.mechanisms.lnmax",
        "if isinstance(mechanism, ConfidentGNMax): pass",
        "if isinstance(mechanism, (int, gnmax.GNMax)): pass",
        "if mechanism.name == 'lnmax': pass",
        "if name in ('gnmax', 'other'): pass",
        "PLAIN = ('gnmax', 'lnmax')",
        "COST = {'lnmax': 1.0}",
        "cost = COST['lnmax']",
        "match name:\n    case 'gnmax': pass",
        "match mechanism:\n    case LNMax(): pass",
        "from collegium.protocol.kinds.teacher_votes import CastVotes",
        "from collegium.parties.kinds.evaluation import Evaluation",
        "if isinstance(question, SumClasses): pass",
        "if question.kind == 'near-records': pass",
    ],
)
def test_a_branch_on_a_mechanism_or_a_kind_of_question_would_be_found(planted: str) -> None:
    assert list(violations(planted))


@pytest.mark.parametrize("fine", ["name: str = 'gnmax'", "mechanism = create(name, **given)", "if k == 'other': pass"])
def test_a_default_and_a_question_to_the_object_are_no_branches(fine: str) -> None:
    assert not list(violations(fine))
