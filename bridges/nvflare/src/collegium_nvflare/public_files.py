"""What a job brings, and that it reads and writes nothing else at the server: who submits it is not its operator."""

from pathlib import Path

from collegium.data import DataSource
from collegium.data.loading.files import find
from collegium.errors import ConfigurationError

CONSORTIUM = "consortium.toml"
"""The consortium's file, in a job's configuration."""


def public_file(source: DataSource, root: Path | None, base: Path) -> Path | None:
    """The public file that a source names, below ``base``; None for a named public set.

    Raises
    ------
    ConfigurationError
        If it lies elsewhere, or is a database: it cannot travel with a job, and a job may not read it at the server.
    DataError
        If there is no such file.
    """
    if source.is_named:
        return None
    path = Path() if source.is_database else find(source.source, root).resolve()
    if source.is_database or Path(source.source).is_absolute() or not path.is_relative_to(base):
        raise ConfigurationError(
            f"{source.shown} cannot travel with a job: put a file beside {CONSORTIUM}, and name it relative to that"
        )
    return path


def below(folder: Path, base: Path) -> Path:
    """``consortium.folder`` relative to that of its file; ConfigurationError where it lies elsewhere."""
    resolved = folder.resolve()
    if not resolved.is_relative_to(base) or resolved == base:
        raise ConfigurationError("consortium.folder leads elsewhere: over NVFlare it is a name, such as consortium")
    return resolved.relative_to(base)
