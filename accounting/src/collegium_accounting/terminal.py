"""How a command runs, on one thread, and ends: with a status, and an error to act on as one line on standard error."""

import io
import math
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from decimal import ROUND_CEILING, Decimal
from functools import wraps
from importlib import import_module
from typing import Any, NoReturn

import click
import typer

from collegium_accounting.errors import INTERRUPTED, CollegiumError, ConfigurationError


def ended(command: Callable[[], object], name: str, printable: Callable[[str], str] = str) -> NoReturn:
    """Run a command of typer, called without its standalone mode, and exit with its status.

    Parameters
    ----------
    command : runs it, and returns its exit status or nothing.
    name : what the user typed, for the advice to see its help.
    printable : what is printed of a line of which another machine may have sent a part.
    """

    def fail(line: str, status: int) -> NoReturn:
        typer.echo(printable(" ".join(line.split())), err=True)
        raise SystemExit(status) from None

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # the terminal's encoding may lack ε or the letters of a name
    try:
        status = command()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except CollegiumError as error:
        fail(f"{type(error).__name__}: {error}", error.exit_status)
    except click.exceptions.NoArgsIsHelpError as error:
        typer.echo(error.message)  # empty when the help was printed already
        raise SystemExit(error.exit_code) from None
    except click.UsageError as error:
        typed = error.ctx.command_path if error.ctx is not None else name
        fail(f"{error.format_message().rstrip('.')}; see {typed} --help", error.exit_code)
    except click.ClickException as error:
        fail(error.format_message(), error.exit_code)
    except click.Abort:
        fail("Aborted.", 1)
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None
    if status == INTERRUPTED:
        fail("Interrupted. Nothing is lost: run the same command again, and it goes on.", INTERRUPTED)
    raise SystemExit(status if isinstance(status, int) else 0)


def on_one_thread(command: Callable[..., None]) -> Callable[..., None]:
    """Keep the threads of the linear algebra library from waiting for each other on products that are small.

    Nothing is changed where ``OMP_NUM_THREADS`` says otherwise, or threadpoolctl is not installed.
    """

    @wraps(command)
    def limited(*arguments: Any, **options: Any) -> None:
        limits: Any = nullcontext()
        if "OMP_NUM_THREADS" not in os.environ:
            with suppress(ModuleNotFoundError):
                limits = import_module("threadpoolctl").threadpool_limits(1)
        with limits:
            command(*arguments, **options)

    return limited


def numbers(text: str, option: str) -> tuple[float, ...]:
    """The numbers that an option holds, between commas; ConfigurationError for anything else."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigurationError(f"--{option} takes numbers separated by commas; got {text!r}") from None


def epsilon_text(epsilon: float) -> str:
    """ε as every page and command prints it: four significant digits, rounded up, so that none understates it."""
    if not math.isfinite(epsilon) or epsilon <= 0.0:
        return "∞" if epsilon > 0.0 else f"{epsilon:g}"
    exact = Decimal(f"{epsilon:.12g}")  # of 0.7 no more than what was meant
    return f"{float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 3), ROUND_CEILING)):.4g}"
