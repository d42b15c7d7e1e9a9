"""The command `collegium`: it lists the subcommands that each package defines, and prints an error as one line.

No large library is imported here. The module of a subcommand is imported when that subcommand runs.
"""

import difflib
import importlib
import logging
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import click
import typer
from typer.core import TyperGroup

from collegium.extras import installed, optional_import
from collegium.interrupts import BUSY_THREAD, stoppable
from collegium.logs import event, printable
from collegium.version import __version__
from collegium_accounting.progress import SearchLines, listening
from collegium_accounting.terminal import ended


@dataclass(frozen=True)
class Mount:
    """One subcommand: where it is defined, and the line that `--help` shows without loading it."""

    module: str
    help: str


MOUNTS: dict[str, Mount] = {
    "demo": Mount("collegium.simulations.cli", "Run a small example; nothing is downloaded."),
    "simulate": Mount("collegium.simulations.cli", "Run many virtual parties on Flower's simulation engine."),
    "launch": Mount("collegium.simulations.cli", "Run a coordinator and real party processes on this machine."),
    "init": Mount("collegium.coordinator.cli.init_cli", "Write a first consortium.toml from a public file."),
    "provision": Mount("collegium.coordinator.cli.provision_cli", "Make a consortium's keys, roster and join codes."),
    "authority": Mount("collegium.coordinator.cli.authority_cli", "An authority whose key is kept apart."),
    "consortium": Mount("collegium.coordinator.cli.consortium_cli", "Rehearse a consortium on invented records."),
    "study": Mount("collegium.coordinator.cli.study_cli", "Several studies of one consortium."),
    "coordinator": Mount("collegium.coordinator.cli.coordinator_cli", "The commands of an operator."),
    "party": Mount("collegium.parties.cli", "The commands of an institution."),
    "student": Mount("collegium.coordinator.cli.student_cli", "Fit a student from issued labels, and use it."),
    "account": Mount("collegium_accounting.commands", "Compute the ε of a plan or of a saved vote file."),
    "plan": Mount("collegium_accounting.commands", "Propose noise and number of queries for a target (ε, δ)."),
    "audit": Mount("collegium_accounting.commands", "Measure a lower bound on the ε of a mechanism."),
    "ledger": Mount("collegium.coordinator.cli.ledger_cli", "Show or verify the charges of a run."),
    "statement": Mount("collegium.coordinator.cli.report_cli", "Write, or verify, the signed page for a board."),
    "report": Mount("collegium.coordinator.cli.report_cli", "Write a run's report as one HTML page."),
    "completion": Mount("collegium.terminal_cli", "Complete commands in bash, zsh or fish with the tab key."),
    "schema": Mount("collegium.terminal_cli", "The JSON schema of a TOML file, for editors."),
}


ENTRY_POINT_GROUP = "collegium.commands"
"""The group of entry points by which another installed package adds a command."""


@cache
def mounts() -> dict[str, Mount]:
    """The subcommands of this package and of other installed packages. Their modules are not imported."""
    others = installed(ENTRY_POINT_GROUP)
    return MOUNTS | {
        point.name: Mount(point.value, str(point.dist.metadata["Summary"]) if point.dist else "") for point in others
    }


class LazyGroup(TyperGroup):
    """A command group whose members are imported when they are called; listing them imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(mounts())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        mount = mounts().get(cmd_name)
        return None if mount is None else click.Command(cmd_name, help=mount.help)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in mounts():
            return args[0], load_command(args[0]), args[1:]
        if ctx.resilient_parsing or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        close = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
        hint = f". Did you mean {close[0]!r}?" if close else ""
        raise click.UsageError(f"No such command {args[0]!r}{hint}", ctx)


def load_command(name: str) -> click.Command:
    """Import the module of the subcommand ``name`` and return its command."""
    app = importlib.import_module(mounts()[name].module).app
    command: Any = typer.main.get_command(app)
    if isinstance(command, click.Group) and name in command.commands:
        command = command.commands[name]
    if isinstance(command, TyperGroup):
        command.suggest_commands = not hasattr(click.exceptions, "NoSuchCommand")  # which says so itself
    command.name = name
    return command  # type: ignore[no-any-return]


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
    """Read the options that come before the subcommand."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. An error that the user can act on becomes one line on standard error."""
    try:
        _run(arguments)
    except SystemExit as ended:
        if arguments is None and any(thread.name == BUSY_THREAD for thread in threading.enumerate()):
            # Torch, where it trains in a thread of this process, aborts when the interpreter ends under it.
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(ended.code if isinstance(ended.code, int) else 1)
        raise


def _run(arguments: Sequence[str] | None) -> NoReturn:
    # Threads of torch sleep while they wait for one another: on a busy machine, threads that wait actively would take
    # the processor from the thread that they wait for. Torch reads this when it is loaded, here and in child processes.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # gRPC itself would print a line for every refused handshake, between a user's lines. It reads this when first used.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")

    def command() -> object:
        with stoppable(), listening(SearchLines(_tell)), optional_import("this command"):
            given = list(arguments) if arguments is not None else None
            return app(args=given, prog_name="collegium", standalone_mode=False)

    # Part of a line may come from a party: characters that control a terminal are replaced.
    ended(command, "collegium", printable)


def _tell(line: str) -> None:
    """Write a line on how far a long search is: into the log, where the command keeps one in a form of its own."""
    if logging.getLogger().hasHandlers():
        logging.getLogger("collegium").info("%s", line, extra=event("searching"))
    else:
        typer.echo(line, err=True)


if __name__ == "__main__":
    main()
