"""What is installed on request: which extra of this package holds an optional package, and the error that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from collegium.errors import MissingExtra

EXTRA_OF = {
    "PIL": "torch",
    "flwr": "simulation",
    "matplotlib": "report",
    "prometheus_client": "serve",
    "pyarrow": "parquet",
    "ray": "simulation",
    "tensorboard": "tensorboard",
    "torch": "torch",
    "torchvision": "torch",
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
