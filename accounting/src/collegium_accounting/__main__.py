"""The command `collegium-accounting`, also as `python -m collegium_accounting`."""

from collections.abc import Sequence
from typing import NoReturn

import typer

from collegium_accounting.commands import app
from collegium_accounting.progress import SearchLines, listening
from collegium_accounting.terminal import ended


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `account`, `plan` or `audit`. An error that the user can act on becomes one line on standard error."""

    def command() -> object:
        with listening(SearchLines(lambda line: typer.echo(line, err=True))):
            given = list(arguments) if arguments is not None else None
            return app(args=given, prog_name="collegium-accounting", standalone_mode=False)

    ended(command, "collegium-accounting")


if __name__ == "__main__":
    main()
