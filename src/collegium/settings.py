"""Settings in TOML files. They are checked when they are read, and an error names the key of every mistake."""

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from collegium.errors import ConfigurationError
from collegium.whole_files import read_whole


class Frozen(BaseModel):
    """The base class of settings. They are immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Config = TypeVar("Config", bound=Frozen)

_HEADER = re.compile(r"\s*\[\[?([^\[\]]+)\]\]?\s*(?:#|$)")
_ASSIGNED = re.compile(r"""\s*((?:[\w.-]|"[^"]*"|'[^']*')+)\s*=""")


def read_config(path: Path, kind: type[Config]) -> Config:
    """Read the TOML file at ``path`` as settings of the class ``kind``.

    Raises
    ------
    StorageError
        The file cannot be read.
    ConfigurationError
        The file is not TOML, or a setting is wrong. The message names the key of every mistake.
    """
    values, text = read_toml(path)
    return validate_config(values, kind, str(path), text)


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """The values of a TOML file, and its text; see `read_config` for errors."""
    data = read_whole(path, "; give the path of a TOML file")
    try:
        text = data.decode("utf-8")
        return tomllib.loads(text), text
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    except RecursionError:
        raise ConfigurationError(f"{path}: its brackets are nested too deep for settings") from None


def validate_config(values: dict[str, Any], kind: type[Config], origin: str, text: str = "") -> Config:
    """``values`` as settings of the class ``kind``.

    Raises
    ------
    ConfigurationError
        The message names each wrong key as ``section.key``, and its line in ``text`` where that holds it.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        mistakes = []
        for item in error.errors():
            line = line_of(text, item["loc"])
            place = f"line {line}: " if line else ""
            mistakes.append(place + ": ".join(filter(None, [".".join(map(str, item["loc"])), _plainly(item, kind)])))
        raise ConfigurationError(f"{origin}: {'; '.join(mistakes)}") from error


def first_mistake(error: ValidationError) -> str:
    """Where the first mistake is, ``section.key``, and what it is."""
    wrong = error.errors()[0]
    return f"{'.'.join(str(part) for part in wrong['loc'])}: {_said(wrong)}"


def _plainly(item: Any, kind: type[BaseModel]) -> str:
    if item["type"] == "missing":
        return "is missing"
    if item["type"] == "extra_forbidden":
        *section, name = map(str, item["loc"])
        return f"there is no such setting{nearest(name, sorted(_names_in(kind, section)))}"
    if item["type"] == "too_short":
        return f"needs at least {item['ctx']['min_length']} of them"
    return _said(item)


def _said(item: Any) -> str:
    return str(item["msg"]).removeprefix("Value error, ")


def nearest(name: str, known: Sequence[str]) -> str:
    """Words that name the known spelling that ``name`` may stand for, or else all of them."""
    close = difflib.get_close_matches(name, known, 1)
    return f": did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


def _names_in(kind: type[BaseModel], section: Sequence[str]) -> set[str]:
    """The settings that a section may hold, over all kinds of section where there are several."""
    kinds = {kind}
    for part in section:
        fields = [one.model_fields[part] for one in kinds if part in one.model_fields]
        if fields:  # else a position in a list, or which of several kinds a section is
            kinds = {found for field in fields for found in _models(field.annotation)}
    return {name for one in kinds for name in one.model_fields}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def line_of(text: str, place: Sequence[str | int]) -> int:
    """The number of the line of a TOML text that holds a key, or else the nearest section around it; 0 for neither."""
    wanted, best, found = [str(part) for part in place], 0, 0
    section: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            key = section = _parts(header.group(1))
        elif assigned := _ASSIGNED.match(line):
            key = [*section, *_parts(assigned.group(1))]
        else:
            continue
        if len(key) > best and wanted[: len(key)] == key:
            best, found = len(key), number
    return found


def _parts(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]


def filled(package: str, file: str, /, **values: object) -> str:
    """The text of a first ``file``, from the template that lies in ``package``, with ``values`` in their places."""
    return files(package).joinpath(f"{file}.template").read_text(encoding="utf-8").format(**values)


def toml_value(value: object) -> str:
    """A text, number, truth value, list or table of these in the notation of TOML, on one line."""
    if isinstance(value, Mapping):
        entries = [f"{json.dumps(key, ensure_ascii=False)} = {toml_value(entry)}" for key, entry in value.items()]
        return f"{{ {', '.join(entries)} }}"
    return json.dumps(value, ensure_ascii=False)
