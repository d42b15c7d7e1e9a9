"""What is installed on request: the extras of this package, and what other packages add to it by entry points."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from typing import Any

from collegium.errors import CollegiumError, ConfigurationError, MissingExtra

EXTRA_OF = {
    "PIL": "torch",
    "datasets": "huggingface",
    "duckdb": "sql",
    "duckdb_engine": "sql",
    "flwr": "simulation",
    "matplotlib": "report",
    "onnx": "export",
    "onnxruntime": "export",
    "onnxscript": "export",
    "prometheus_client": "serve",
    "psycopg": "sql",
    "pyarrow": "parquet",
    "pydicom": "dicom",
    "ray": "simulation",
    "sqlalchemy": "sql",
    "torch": "torch",
    "torchvision": "torch",
    "waitress": "serve",
}
"""The extra that installs each top-level module which may be absent; pyproject.toml says the same."""


@contextmanager
def optional_import(purpose: str) -> Iterator[None]:
    """Name the extra to install where an import inside this block finds an optional package absent.

    Parameters
    ----------
    purpose : what needs the package, the subject of the message: "a network teacher".

    Raises
    ------
    MissingExtra
        A module of ``EXTRA_OF`` is not installed. The absence of any other module stays what it is: a bug.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRA_OF:
            raise
        raise MissingExtra(
            f"{purpose} needs {module}, which is not installed: pip install 'collegium[{EXTRA_OF[module]}]'"
        ) from error


def load_plugin(point: EntryPoint, what: str) -> Any:
    """The object that an installed package offers under an entry point.

    Parameters
    ----------
    what : what the object is, for the message: "the mechanism 'mine'".

    Raises
    ------
    ConfigurationError
        The package is broken; the message names it.
    MissingExtra
        The object needs an optional package that is not installed.
    """
    try:
        with optional_import(what):
            return point.load()
    except CollegiumError:
        raise
    except Exception as error:
        package = point.dist.name if point.dist is not None else point.module
        said = f"{type(error).__name__}: {error}"
        raise ConfigurationError(
            f"{what} cannot be imported: repair or remove the package {package} ({said})"
        ) from error
