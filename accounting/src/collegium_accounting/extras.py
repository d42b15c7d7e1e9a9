"""What is installed on request: optional packages, and what other packages add by entry points."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from typing import Any

from collegium_accounting.errors import CollegiumError, ConfigurationError, MissingExtra

INSTALLED_BY: Mapping[str, str] = {"matplotlib": "collegium-accounting[plot]"}
"""What to install for each top-level module of this distribution which may be absent; pyproject.toml says the same."""


@contextmanager
def optional_import(purpose: str, installed_by: Mapping[str, str] = INSTALLED_BY) -> Iterator[None]:
    """Name what to install where an import inside this block finds an optional package absent.

    Parameters
    ----------
    purpose : what needs the package, the subject of the message: "a network teacher".
    installed_by : what ``pip install`` takes for each top-level module which may be absent.

    Raises
    ------
    MissingExtra
        A module of ``installed_by`` is not installed. The absence of any other module stays what it is: a bug.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in installed_by:
            raise
        raise MissingExtra(
            f"{purpose} needs {module}, which is not installed: pip install '{installed_by[module]}'"
        ) from error


def load_plugin(point: EntryPoint, what: str, installed_by: Mapping[str, str] = INSTALLED_BY) -> Any:
    """The object that an installed package offers under an entry point.

    Parameters
    ----------
    what : what the object is, for the message: "the mechanism 'mine'".
    installed_by : as for `optional_import`.

    Raises
    ------
    ConfigurationError
        The package is broken; the message names it.
    MissingExtra
        The object needs an optional package that is not installed.
    """
    try:
        with optional_import(what, installed_by):
            return point.load()
    except CollegiumError:
        raise
    except Exception as error:
        package = point.dist.name if point.dist is not None else point.module
        said = f"{type(error).__name__}: {error}"
        raise ConfigurationError(
            f"{what} cannot be imported: repair or remove the package {package} ({said})"
        ) from error
