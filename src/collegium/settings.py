"""Settings in TOML files. They are checked when they are read, and an error names the key of every mistake."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from collegium.errors import ConfigurationError, StorageError


class Frozen(BaseModel):
    """The base class of settings. They are immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Config = TypeVar("Config", bound=Frozen)

_PLAIN = {"extra_forbidden": "there is no such setting; check its name and section", "missing": "is missing"}


def read_config(path: Path, kind: type[Config]) -> Config:
    """Read the TOML file at ``path`` as settings of the class ``kind``.

    Raises
    ------
    StorageError
        The file cannot be read.
    ConfigurationError
        The file is not TOML, or a setting is wrong. The message names the key of every mistake.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}; give the path of a TOML file") from error
    try:
        values: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    except RecursionError:
        raise ConfigurationError(f"{path}: its brackets are nested too deep for settings") from None
    return validate_config(values, kind, str(path))


def validate_config(values: dict[str, Any], kind: type[Config], origin: str) -> Config:
    """``values`` as settings of the class ``kind``. ConfigurationError names each wrong key as ``section.key``."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        mistakes = "; ".join(
            f"{'.'.join(str(x) for x in item['loc'])}: {_PLAIN.get(item['type'], item['msg'])}"
            for item in error.errors()
        )
        raise ConfigurationError(f"{origin}: {mistakes}") from error


def toml_value(value: object) -> str:
    """A text, number or truth value in the notation of TOML, which is that of JSON for these."""
    return json.dumps(value, ensure_ascii=False)
