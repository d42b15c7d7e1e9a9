"""What is installed on request: optional packages, and what other packages add by entry points."""

import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, TypeVar

from collegium_accounting.errors import CollegiumError, ConfigurationError, MissingExtra

INSTALLED_BY: Mapping[str, str] = {"matplotlib": "collegium-accounting[plot]"}
"""What to install for each top-level module of this distribution which may be absent; pyproject.toml says the same."""


KindT = TypeVar("KindT", bound=type[Any])


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


def of_distribution(what: str, module: str) -> Any:
    """A module of another distribution, which does ``what``; MissingExtra where that is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        distribution = module.partition(".")[0].replace("_", "-")
        raise MissingExtra(f"{what} is not installed: pip install {distribution}") from None


def installed(group: str) -> EntryPoints:
    """What installed packages name under a group of entry points."""
    found: EntryPoints = _all_installed().select(group=group)
    return found


@cache
def _all_installed() -> Any:
    """All entry points, of another type in another Python. To look for them takes a fiftieth of a second."""
    return entry_points()


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


class Registry(dict[str, KindT]):
    """Classes by name: what the modules of one package register, and what other packages add by entry points.

    Parameters
    ----------
    group : the entry-point group under which other packages name their modules or classes.
    what : what each of them is, for messages: "the mechanism".
    clash : what is said where two classes have one name: "two mechanisms are called".
    package : the package whose modules are imported first; empty for none.
    installed_by : as for `optional_import`.
    """

    def __init__(
        self, group: str, what: str, clash: str, package: str = "", installed_by: Mapping[str, str] = INSTALLED_BY
    ) -> None:
        super().__init__()
        self._group, self._what, self._clash = group, what, clash
        self._package, self._installed_by = package, installed_by
        self._loaded = False

    def add(self, name: str, kind: KindT) -> None:
        """Make a class known; ConfigurationError where another class has the name. One may be added twice."""
        known = self.get(name)
        if known is not None and known.__qualname__ != kind.__qualname__:
            raise ConfigurationError(f"{self._clash} {name!r}: {known.__qualname__} and {kind.__qualname__}")
        self[name] = kind

    def loaded(self) -> "Registry[KindT]":
        """This registry once everything that is installed has been imported; errors as of `load_plugin`."""
        if not self._loaded:
            modules = import_module(self._package).__path__ if self._package else ()
            for module in pkgutil.iter_modules(modules, self._package + "."):
                import_module(module.name)
            for point in installed(self._group):
                load_plugin(point, f"{self._what} {point.name!r}", self._installed_by)
            self._loaded = True
        return self
