"""Every command explains itself, prints for programs when asked, and paints nothing where it is piped."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from rich.console import Console
from support.typist import typed

from collegium import __version__
from collegium.cli import MOUNTS, load_command, main
from collegium.errors import BudgetExceeded
from collegium.interrupts import INTERRUPTED


def commands() -> Iterator[tuple[str, ...]]:
    """Every command that can be typed, such as ("party", "serve")."""
    for name in MOUNTS:
        command = load_command(name)
        yield (name,)
        if isinstance(command, click.Group):
            yield from ((name, member) for member in command.commands)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_help_fits_a_terminal_and_has_no_colours_where_it_is_piped(
    command: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    status, out, err = typed(capfd, *command, "--help")
    assert status == 0 and err == ""
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert "-completion" not in out  # typer's own options


@pytest.mark.parametrize(
    "command", [typed for typed in commands() if not isinstance(load_command(typed[0]), click.Group) or len(typed) > 1]
)
def test_the_help_of_whatever_does_something_has_an_example(
    command: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = typed(capfd, *command, "--help")
    assert re.search(r"Examples?:\s+collegium " + " ".join(command), " ".join(out.split())), out


def test_every_argument_of_every_command_is_explained() -> None:
    silent = [
        (typed, parameter.name)
        for typed in commands()
        for command in [load_command(typed[0])]
        for parameter in (
            command.commands[typed[1]] if len(typed) > 1 and isinstance(command, click.Group) else command
        ).params
        if not getattr(parameter, "help", None)
    ]
    assert silent == []


def test_the_list_of_commands_names_all_of_them(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = typed(capfd, "--help")
    assert status == 0
    assert all(re.search(rf"^. {name}\b", out, re.MULTILINE) for name in MOUNTS)


def test_without_a_command_the_help_is_shown_and_the_status_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = typed(capfd)
    assert status == 2 and "simulate" in out


def test_the_version(capfd: pytest.CaptureFixture[str]) -> None:
    assert typed(capfd, "--version") == (0, f"collegium {__version__}\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["account", "-m", "gnmax", "--sigma", "40", "--queries", "10", "--classes", "2", "--json"],
        ["plan", "--epsilon", "2", "--teachers", "50", "--queries", "10", "-m", "gnmax", "--classes", "2", "--json"],
    ],
)
def test_json_for_a_program_is_one_object_and_nothing_else(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = typed(capfd, *arguments)
    assert status == 0
    assert isinstance(json.loads(out), dict)


def test_an_error_is_one_line_with_its_own_status(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise BudgetExceeded("12 of 12.0 charged;\n raise budget.epsilon or stop")

    monkeypatch.setattr("collegium.cli.app", fail)
    assert typed(capfd) == (7, "", "BudgetExceeded: 12 of 12.0 charged; raise budget.epsilon or stop\n")


def test_what_a_party_said_cannot_steer_the_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise BudgetExceeded("\x1b[31mred\x1b]0;title\x07")

    monkeypatch.setattr("collegium.cli.app", fail)
    assert typed(capfd)[2] == "BudgetExceeded: ?[31mred?]0;title?\n"


def test_an_interrupt_has_the_status_that_shells_expect(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: str) -> click.Command:
        raise KeyboardInterrupt

    monkeypatch.setattr("collegium.cli.load_command", interrupt)
    status, _, err = typed(capfd, "demo")
    assert status == INTERRUPTED
    assert err.count("\n") == 1 and "run the same command again" in err


def test_python_m_collegium_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "collegium", "--version"], capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.stdout == f"collegium {__version__}\n"


def test_a_terminal_would_get_colours() -> None:
    """The counterpart of the tests on pipes: what they look for exists."""
    screen = io.StringIO()
    Console(file=screen, force_terminal=True, color_system="standard").print("[red]ε[/red]")
    assert "\x1b" in screen.getvalue()


@pytest.mark.parametrize(
    ("words", "meant"), [("provison", "provision"), ("ledger verfy", "verify"), ("student predct", "predict")]
)
def test_a_misspelt_command_has_one_hint(words: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.count("Did you mean") == 1 and f"Did you mean '{meant}'?" in said
