"""README.md: its links lead somewhere, its commands exist with their options, and the quick ones are run."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import click
import pytest
from support.pages import ROOT

from collegium import cli

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"`(collegium [^`]+)`", README)))
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that these words name, and the rest of them."""
    command, rest = cli.load_command(words[1]), words[2:]
    while isinstance(command, click.Group) and rest and rest[0] in command.commands:
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


def shown_on(page: Path) -> list[str]:
    """Every command of ours on a page, in its text or in a block of whatever kind."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in "\n".join(re.findall(r"^```.*?\n(.*?)^```", text, re.M | re.S)).splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S).replace("\n", " ")
    return [*re.findall(r"`(collegium [^`]+)`", prose), *(line for line in lines if line.startswith("collegium "))]


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=name_of)
def test_every_command_on_a_page_exists_and_has_the_options_that_it_is_shown_with(page: Path) -> None:
    for line in shown_on(page):
        command, rest = command_of(shlex.split(line, comments=True))
        with click.Context(command) as context:
            known = {"--help"}.union(*(parameter.opts for parameter in command.get_params(context)))
        assert {word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"} <= known, line
        assert not (isinstance(command, click.Group) and re.match(r"\w", " ".join(rest))), line
        assert all((ROOT / word).is_file() for word in rest if word.startswith("examples/")), line


def test_a_command_that_is_gone_would_be_found_on_a_page(tmp_path: Path) -> None:
    for planted in ("Type `collegium party serve\nx.toml --forever`.", "```\ncollegium party attend x.toml\n```\n"):
        (tmp_path / "page.md").write_text(planted)
        with pytest.raises(AssertionError):
            test_every_command_on_a_page_exists_and_has_the_options_that_it_is_shown_with(tmp_path / "page.md")


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.endswith(("--help", "--list", "--queries 100"))])
def test_a_quick_command_runs(line: str) -> None:
    with redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as ended:
        cli.main(shlex.split(line)[1:])
    assert ended.value.code == 0 and out.getvalue()


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_page_is_named_by_the_readme() -> None:
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"docs/{page.name}" not in README] == []


def test_every_page_of_research_is_listed_with_its_date_and_its_command() -> None:
    folder = ROOT / "docs" / "research"
    rows = dict(re.findall(r"^\| \[[^\]]+\]\(([^)]+)\) \| ([^\n]+)$", (folder / "index.md").read_text("utf-8"), re.M))
    assert {path.name for path in folder.glob("*.md")} == {*rows, "index.md"}
    assert all(re.match(r"[\d a-z]+ \w+ \d{4} \| `", row) for row in rows.values())
    modules = re.findall(r"python -m (benchmarks\.\w+)", (folder / "index.md").read_text("utf-8"))
    paths = [ROOT / module.replace(".", "/") for module in modules]
    assert paths and [path.name for path in paths if not (path.is_dir() or path.with_suffix(".py").is_file())] == []
