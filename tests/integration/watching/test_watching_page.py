"""docs/watching.md as its reader follows it: every command of the page is run, over real processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.pages import commands_of, text_of_page
from support.ports import free_ports
from support.processes import COMMAND_S, killed_at_the_end, lines_of, output_of, start
from support.watched import CONFIG, CONSTANT, NAMES

PAGE = text_of_page("watching.md")
SERVE = "collegium coordinator serve consortium.toml --status 127.0.0.1:8080"
SERVE_JSON = "collegium coordinator serve consortium.toml --log-format json"
PARTY = "collegium party serve clinic-1/party.toml --log-format json"
STATUS = "collegium coordinator status consortium.toml"


def start_typed(command: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    return start("-m", *shlex.split(command), folder=folder, environment=environment)


def run(command: str, folder: Path, **environment: str) -> str:
    return output_of(start_typed(command, folder, **environment))


def lines_until(process: subprocess.Popen[str], event: str) -> list[dict[str, object]]:
    """JSON lines of its log up to the first of this event."""
    seen = []
    for line in lines_of(process.stderr):
        seen.append(json.loads(line))
        if seen[-1]["event"] == event:
            return seen
    raise AssertionError(f"ended before {event!r}: {seen}")


@dataclass
class Story:
    """What the reader of the page saw."""

    folder: Path
    typed: set[str] = field(default_factory=set)
    waiting: dict[str, str] = field(default_factory=dict)
    coordinator_lines: list[dict[str, object]] = field(default_factory=list)
    party_lines: list[dict[str, object]] = field(default_factory=list)

    def type(self, command: str, **instead: str) -> str:
        assert command in commands_of(PAGE), command
        self.typed.add(command)
        for word, other in instead.items():
            command = command.replace(word.replace("_", "-"), other)
        return command


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    story = Story(tmp_path_factory.mktemp("watched"))
    sessions, enrolment, status = free_ports(3)
    text = CONFIG.format(sessions=sessions, enrolment=enrolment, teachers=CONSTANT, per_party=2)
    (story.folder / "consortium.toml").write_text(text.replace('status = "127.0.0.1:0"\n', ""))
    provisioned = run("collegium provision consortium.toml", story.folder)
    enrolments = re.findall(r"^collegium party enrol.*$", provisioned, re.MULTILINE)
    with killed_at_the_end() as started:
        serving = start_typed(f"{story.type(SERVE).replace('8080', str(status))} --log-format json", story.folder)
        started.append(serving)
        shown = lines_until(serving, "status-shown")[-1]
        assert shown["fields"] == {"url": f"http://127.0.0.1:{status}/"}
        for path in ("", "status.json", "metrics", "healthz"):
            with urllib.request.urlopen(f"http://127.0.0.1:{status}/{path}", timeout=COMMAND_S) as answer:
                story.waiting[path] = answer.read().decode()
        for name, command in zip(NAMES, enrolments, strict=True):
            run(re.sub("NAMES .*", f"{','.join(NAMES)} --data digits --one-row-each", command), story.folder)
            policy = story.folder / name / "policy.toml"  # an exact sum of three needs a word
            policy.write_text(policy.read_text().replace("few_parties = false", "few_parties = true"))
            started.append(start_typed(story.type(PARTY, clinic_1=name), story.folder))
        _, err = serving.communicate(timeout=COMMAND_S)
        assert serving.returncode == 0, err
        story.coordinator_lines = [json.loads(line) for line in err.splitlines()]
        for party in started[1:]:
            _, err = party.communicate(timeout=COMMAND_S)
            assert party.returncode == 0, err
            story.party_lines = [json.loads(line) for line in err.splitlines()]
        yield story


def test_the_page_is_up_before_any_party_is(story: Story) -> None:
    assert "Waiting for parties: 0 of the 3 that a round needs" in story.waiting[""]
    status = json.loads(story.waiting["status.json"])
    assert (status["connected"], status["expected"], status["phase"]["step"]) == (0, 3, "waiting")
    assert "collegium_parties_connected 0.0\n" in story.waiting["metrics"]
    assert story.waiting["healthz"] == "ok\n"


def test_both_sides_log_the_events_that_the_page_names(story: Story) -> None:
    events = [line["event"] for line in story.coordinator_lines]
    assert {"enrolled", "connected", "waiting-for-quorum", "step", "disconnected"} <= set(events)
    assert {"teachers-ready", "ended"} <= {line["event"] for line in story.party_lines}
    assert story.party_lines[-1]["fields"] == {"reason": "the run is finished"}
    named = set(re.findall(r"`([a-z-]+)`", PAGE.partition("Events are")[2].partition("everything else")[0]))
    named |= {"status-shown", "message"}
    assert {str(event) for event in events} | {str(line["event"]) for line in story.party_lines} <= named


def test_the_rest_of_the_page_works_as_well(story: Story) -> None:
    assert "finished (not served now)" in run(story.type(STATUS), story.folder)
    again = start_typed(story.type(SERVE_JSON), story.folder)
    out, err = again.communicate(timeout=COMMAND_S)
    assert again.returncode == 0 and all(json.loads(line) for line in err.splitlines()), err
    assert "finished" in out
    assert story.typed == set(commands_of(PAGE))


ESCAPE = "\x1b"
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"PYTHONIOENCODING": "ascii"}])
def test_status_that_is_piped_is_plain_text(environment: dict[str, str], story: Story) -> None:
    out = run(STATUS, story.folder, **environment)
    assert ESCAPE not in out and "ash" in out and "labels   6 of 6 queries" in out


def test_status_at_a_terminal_has_no_colour_where_none_is_wanted(story: Story) -> None:
    """A pseudo-terminal stands for the user's; NO_COLOR is what no-color.org says."""
    import pty

    holder, terminal = pty.openpty()
    process = start(
        *("-m", *shlex.split(STATUS)),
        folder=story.folder,
        environment={"NO_COLOR": "1", "TERM": "xterm-256color"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    said = b""
    while True:
        try:
            data = os.read(holder, 65536)
        except OSError:  # the terminal's last user has gone
            break
        if not data:
            break
        said += data
    os.close(holder)
    assert process.wait(COMMAND_S) == 0
    text = said.decode()
    assert "ash" in text and not COLOUR.search(text)


def test_a_colour_would_be_found() -> None:
    assert COLOUR.search("\x1b[1;32mgreen\x1b[0m") and COLOUR.search("\x1b[31m") and not COLOUR.search("\x1b[1mbold")
