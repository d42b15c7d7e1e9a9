"""What a mechanism's parameters are called, what they mean and which values they may have.

A mechanism is a frozen dataclass, and each of its fields is one parameter. `Parameter`, given with
`typing.Annotated`, describes it; the checks, the options of the command line and what parties accept from
the network are made from that description.
"""

import dataclasses
import math
import types
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Union, get_args, get_origin, get_type_hints

from collegium_accounting.errors import ConfigurationError

Value = float | int | str


@dataclasses.dataclass(frozen=True)
class Parameter:
    """The description of one parameter; numbers are finite, and above 0 unless it says otherwise.

    Parameters
    ----------
    description : str
        What the number means, in a few words.
    unit : str
        The unit that it is counted in, such as ``votes``; empty where it has none.
    positive : bool
        Whether it must be above 0.
    at_most : float
        The largest value.
    """

    description: str = ""
    unit: str = ""
    positive: bool = True
    at_most: float = math.inf


@dataclasses.dataclass(frozen=True)
class Field:
    """One parameter of a mechanism's class: its name, its type (float, int, bool or str) and its description."""

    name: str
    kind: type
    required: bool
    described: Parameter


@cache
def fields_of(cls: type) -> Mapping[str, Field]:
    """The parameters of a mechanism's class by name, in the order of its fields."""
    hints = get_type_hints(cls, include_extras=True)
    found = {}
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        hint, described = hints[field.name], Parameter(positive=False)
        if get_origin(hint) is Annotated:
            hint, *notes = get_args(hint)
            described = next((note for note in notes if isinstance(note, Parameter)), described)
        if get_origin(hint) in (Union, types.UnionType):
            hint = next(choice for choice in get_args(hint) if choice is not type(None))
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        found[field.name] = Field(field.name, hint, required, described)
    return found


def check_names(name: str, cls: type, given: Mapping[str, object]) -> None:
    """Raise ConfigurationError, naming them, where ``given`` has unknown parameters or lacks required ones."""
    fields = fields_of(cls)
    wrong = [f"has no parameter {key!r}" for key in sorted(set(given) - set(fields))]
    wrong += [f"needs {field.name!r}" for field in fields.values() if field.required and field.name not in given]
    if wrong:
        raise ConfigurationError(f"{name} {' and '.join(wrong)}; its parameters are {', '.join(fields)}")


def checked(name: str, field: Field, value: object) -> object:
    """``value`` as the type of the field; raises ConfigurationError, naming the field, where it may not be that."""
    if field.kind not in (bool, int, float) or (value is None and not field.required):
        return value
    if field.kind is bool:
        if not isinstance(value, bool):
            raise ConfigurationError(f"{name}: {field.name} must be true or false; got {value!r}")
        return value
    described = field.described
    wanted = ("a positive" if described.positive else "a finite") + (" whole" if field.kind is int else "") + " number"
    number = math.nan if isinstance(value, bool) or not isinstance(value, (int, float)) else float(value)
    if not math.isfinite(number) or (described.positive and number <= 0.0):
        raise ConfigurationError(f"{name}: {field.name} must be {wanted}; got {value!r}")
    if field.kind is int and number != int(number):
        raise ConfigurationError(f"{name}: {field.name} must be {wanted}; got {value!r}")
    if number > described.at_most:
        raise ConfigurationError(f"{name}: {field.name} must be at most {described.at_most:g}; got {value!r}")
    return int(number) if field.kind is int else number
