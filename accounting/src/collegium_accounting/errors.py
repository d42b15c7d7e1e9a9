"""The errors that a user of the accountant can meet. A message says what is wrong and what to do.

An error has a stable ``code``, which messages and logs carry, and an exit status for the command line.
"""

from typing import ClassVar

INTERRUPTED = 130
"""The exit status of a command that was interrupted, as shells have it after Ctrl-C."""


class CollegiumError(Exception):
    """An error that the user can act on, never a bug in Collegium."""

    code: ClassVar[str] = "error"
    exit_status: ClassVar[int] = 1
    told: ClassVar[str] = ""
    """What a party tells others instead of the message, which stays in its own log. Empty: it tells the message."""


class ConfigurationError(CollegiumError):
    """A configuration, policy or option is wrong, or contradicts another one."""

    code = "configuration"
    exit_status = 2


class MissingExtra(ConfigurationError):
    """A needed package is missing. The message names what installs it."""

    code = "missing-extra"


class DataError(CollegiumError):
    """A data file, a column, a label or an array is not what the task needs."""

    code = "data"
    exit_status = 3


class UnsupportedAccounting(CollegiumError):
    """The requested analysis is not valid for this mechanism."""

    code = "unsupported-accounting"
    exit_status = 7


class StorageError(CollegiumError):
    """A folder or file cannot be read or written."""

    code = "storage"
    exit_status = 9
