"""What is installed on request: the extras of this package, and what other packages add to it by entry points."""

from contextlib import AbstractContextManager
from importlib.metadata import EntryPoint
from typing import Any

from collegium_accounting import extras
from collegium_accounting.extras import installed as installed

EXTRA_OF = {
    "PIL": "torch",
    "collegium_onnx": "export",
    "datasets": "huggingface",
    "duckdb": "sql",
    "duckdb_engine": "sql",
    "flwr": "simulation",
    "matplotlib": "report",
    "openpyxl": "excel",
    "prometheus_client": "serve",
    "psycopg": "sql",
    "pyarrow": "parquet",
    "pydicom": "dicom",
    "ray": "simulation",
    "sqlalchemy": "sql",
    "torch": "torch",
    "waitress": "serve",
}
"""The extra that installs each top-level module which may be absent; pyproject.toml says the same."""

INSTALLED_BY = {module: f"collegium[{extra}]" for module, extra in EXTRA_OF.items()}
"""What ``pip install`` takes for each of them."""


def optional_import(purpose: str) -> AbstractContextManager[None]:
    """`collegium_accounting.extras.optional_import` with the extras of this package."""
    return extras.optional_import(purpose, INSTALLED_BY)


def load_plugin(point: EntryPoint, what: str) -> Any:
    """`collegium_accounting.extras.load_plugin` with the extras of this package."""
    return extras.load_plugin(point, what, INSTALLED_BY)
