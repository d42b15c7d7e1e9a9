"""What is installed on request: the extras of this package, and what other packages add to it by entry points."""

from functools import partial

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


optional_import = partial(extras.optional_import, installed_by=INSTALLED_BY)
load_plugin = partial(extras.load_plugin, installed_by=INSTALLED_BY)
"""Those of `collegium_accounting.extras` with the extras of this package."""
