"""No public name lacks what a reader needs: purpose, parameters, shapes, units, errors and, for claims, a source."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel

import collegium as cg
import collegium_conformance
from collegium import errors
from collegium_accounting.mechanisms.base import Mechanism
from collegium_accounting.mechanisms.parameters import fields_of

SHAPE = re.compile(r"\[[^\]]*\w[^\]]*\]")
UNITS = {"sigma": "votes|contributions", "gamma": "vote", "sigma1": "votes", "sigma2": "votes", "threshold": "votes"}


def functions_of(value: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The function itself, or the public functions and properties that a class of ours defines or inherits."""
    if inspect.isfunction(value):
        yield value.__name__, value
        return
    for name, member in inspect.getmembers(value):
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        ours = inspect.isfunction(function) and function.__module__.startswith(("collegium.", "collegium_accounting."))
        if ours and not name.startswith("_") and function.__qualname__ != "<lambda>":
            yield f"{value.__name__}.{name}", function


def documentation(owner: Any, name: str) -> str:
    """The docstring, and those of the methods that it overrides."""
    if not inspect.isclass(owner):
        return inspect.getdoc(owner) or ""
    members = (vars(base).get(name.rpartition(".")[2]) for base in owner.__mro__)
    return "\n".join(inspect.getdoc(member) or "" for member in members if member is not None)


def lacks_of_function(function: Callable[..., Any], text: str) -> list[str]:
    """What the docstring ``text`` of a function does not say."""
    if not text.strip():
        return ["a docstring"]
    lacks = []
    parameters = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    lacks += [f"the parameter {name}" for name in parameters if not re.search(rf"\b{name}\b", text)]
    annotations = " ".join(str(one) for one in function.__annotations__.values())
    if re.search(r"ArrayLike|NDArray|IntArray|FloatArray", annotations) and not SHAPE.search(text):
        lacks.append("a shape")
    source = textwrap.dedent(inspect.getsource(function))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            kind = node.exc.func.id
            if hasattr(errors, kind) and kind not in text:
                lacks.append(f"the error {kind}")
    return sorted(set(lacks))


def lacks_of_class(cls: type) -> list[str]:
    """What a class does not say of its fields or constructor."""
    text = inspect.getdoc(cls) or ""
    if not text.strip():
        return ["a docstring"]
    if issubclass(cls, Mechanism):
        lacks = [f"the description of {name}" for name, one in fields_of(cls).items() if not one.described.description]
        units = {name: one.described.unit for name, one in fields_of(cls).items()}
        lacks += [f"the unit of {name}" for name, unit in units.items() if not re.search(UNITS.get(name, ""), unit)]
        return lacks + ([] if cls.source else ["a source"])
    if issubclass(cls, BaseModel):
        body = next(node for node in ast.walk(ast.parse(inspect.getsource(cls))) if isinstance(node, ast.ClassDef)).body
        return [
            f"a text after {ast.unparse(field.target)}"
            for field, following in zip(body, [*body[1:], ast.Pass()], strict=True)
            if isinstance(field, ast.AnnAssign)
            and not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant))
        ]
    if dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls)]
    else:
        names = [name for name in inspect.signature(cls).parameters if name not in ("args", "kwargs")]
    return [f"the parameter {name}" for name in names if not re.search(rf"\b{name}\b", text)]


def public() -> list[Any]:
    named = [getattr(cg, name) for name in cg.__all__ if name not in ("__version__", "errors")]
    return [*named, *(getattr(collegium_conformance, name) for name in collegium_conformance.__all__)]


@pytest.mark.parametrize("value", public(), ids=lambda value: value.__name__)
def test_a_public_name_says_what_a_reader_needs(value: Any) -> None:
    lacks = {value.__name__: lacks_of_class(value)} if inspect.isclass(value) else {}
    for name, function in functions_of(value):
        lacks[name] = lacks_of_function(function, documentation(value, name))
    assert {name: what for name, what in lacks.items() if what} == {}


def test_what_accounts_for_privacy_names_its_sources() -> None:
    assert "References" in (cg.account.__doc__ or "") and "References" in (
        collegium_conformance.check_mechanism.__doc__ or ""
    )


def test_every_error_says_what_it_is_and_has_a_code() -> None:
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, Exception)]
    assert len(kinds) > 10
    assert [kind for kind in kinds if not kind.__doc__ or not kind.code] == []


def test_the_reference_has_every_public_name() -> None:
    from pathlib import Path

    page = (Path(__file__).resolve().parents[3] / "docs" / "reference.md").read_text(encoding="utf-8")
    shown = re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE)
    for path in shown:
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name)
    assert {value.__name__ for value in public()} <= {path.rpartition(".")[2] for path in shown}


def planted_silent(votes: ArrayLike) -> NDArray[Any]:
    return votes  # type: ignore[return-value]


def planted_half(votes: ArrayLike, delta: float) -> NDArray[Any]:
    """Count the votes."""
    raise errors.DataError("never")


def planted_error(votes: ArrayLike) -> None:
    """Take ``votes`` of shape ``[queries, classes]``."""
    from collegium.errors import DataError

    raise DataError("never")


@dataclasses.dataclass
class PlantedFields:
    """Has a field."""

    epsilon: float


def test_what_is_missing_would_be_found() -> None:
    assert lacks_of_function(planted_silent, "") == ["a docstring"]
    assert lacks_of_function(planted_half, inspect.getdoc(planted_half) or "") == ["a shape", "the parameter delta"]
    assert lacks_of_function(planted_error, inspect.getdoc(planted_error) or "") == ["the error DataError"]
    assert lacks_of_class(PlantedFields) == ["the parameter epsilon"]
