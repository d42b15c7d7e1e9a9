"""The command `collegium`: mounts the commands that each package defines, and turns errors into one line.

Nothing heavy is imported here: a subcommand's module is loaded when that subcommand is asked for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
import typer
from typer.core import TyperGroup

from collegium import __version__
from collegium.protocol.errors import CollegiumError


@dataclass(frozen=True)
class Mount:
    """One subcommand: where it is defined, and the line that `--help` shows without loading it."""

    module: str
    help: str


MOUNTS: dict[str, Mount] = {
    "demo": Mount("collegium.simulations.demo_cli", "The whole path on an embedded data set, no download."),
    "simulate": Mount("collegium.simulations.simulate_cli", "Virtual parties on Flower's simulation engine."),
    "launch": Mount("collegium.simulations.launch_cli", "Coordinator and real party processes on this machine."),
    "party": Mount("collegium.parties.cli", "What an institution runs."),
    "student": Mount("collegium.coordinator.student_cli", "Fit or evaluate a student from issued labels."),
    "account": Mount("collegium.coordinator.account_cli", "ε of a plan or of a saved vote file."),
    "plan": Mount("collegium.coordinator.account_cli", "Noise, threshold and query count for a target (ε, δ)."),
    "audit": Mount("collegium.coordinator.account_cli", "Empirical lower bound on ε of a mechanism as implemented."),
    "ledger": Mount("collegium.coordinator.ledger_cli", "Every charge; the hash chain and signatures."),
    "report": Mount("collegium.coordinator.report_cli", "One self-contained HTML page of a run."),
}


class LazyGroup(TyperGroup):
    """A command group whose members are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MOUNTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        mount = MOUNTS.get(cmd_name)
        if mount is None:
            return None
        if ctx.resilient_parsing or _only_listing():
            return click.Command(cmd_name, help=mount.help)
        app = importlib.import_module(mount.module).app
        command: Any = typer.main.get_command(app)
        if isinstance(command, click.Group) and cmd_name in command.commands:
            command = command.commands[cmd_name]
        command.name = cmd_name
        return command  # type: ignore[no-any-return]


def _only_listing() -> bool:
    return len(sys.argv) <= 1 or sys.argv[1] in ("--help", "-h")


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Institutions that may not share data train one classifier that they may publish, under differential privacy.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"collegium {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Mounts the subcommands."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a CollegiumError becomes one line on standard error and its exit status."""
    try:
        app(args=list(arguments) if arguments is not None else None)
    except CollegiumError as error:
        line = " ".join(str(error).split())
        typer.echo(f"{type(error).__name__}: {line}", err=True)
        raise SystemExit(error.exit_status) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
