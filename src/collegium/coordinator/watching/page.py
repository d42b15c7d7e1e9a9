"""The live page: a snapshot in words, and the policy under which a browser shows it."""

import base64
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

from collegium.coordinator.report import page as report_page
from collegium.coordinator.report.page import LOOK, natural, rendered
from collegium.coordinator.run.run_folder import plain
from collegium.coordinator.watching.consortium_status import code_of
from collegium.coordinator.watching.stages import here, stages_of

_HERE = files("collegium.coordinator.watching")
STYLE = LOOK + _HERE.joinpath("status.css").read_text(encoding="utf-8")
SCRIPT = _HERE.joinpath("status.js").read_text(encoding="utf-8")


def _source(text: str) -> str:
    """The name of an inline text in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; script-src {_source(SCRIPT)}; "
    f"style-src {_source(STYLE)} {_source(report_page.STYLE)}; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_DOING: dict[str, str] = {
    "waiting": "Waiting for parties: {connected} of the {quorum} that a round needs are connected.",
    "describe": "Asking the parties who they are: {done} of {total} have answered.",
    "hold_pool": "Sending the public pool to the parties: {megabytes} of {total_megabytes} MB.",
    "fit": "The parties fit their teachers: {done} of {total} are ready.",
    "votes": "Round {round}{of_sums} is under way: {done} of {total} parties have answered.",
    "labels": "Round {rounds} is done: {done} of {total} queries are decided.",
    "pool_check": "The parties count how well the pool covers their records: {done} of {total} have answered.",
    "evaluation": "The parties measure the student on their records: {done} of {total} have answered.",
    "student": "Fitting the student: step {done} of {total}.",
    "report": "The run is finished.",
    "finished": "The run is finished.",
}
_MEANING = {
    "deadline": "did not answer in time",
    "unreachable": "connection lost",
    "refused": "its own policy forbids it",
    "protocol": "broke the protocol",
    "identity": "certificate or name not accepted",
    "version": "another version of the software",
    "other-purpose": "it rehearses, or is asked to a rehearsal",
    "internal": "an error of its own software",
    "storage": "its own disk",
    "other": "something else",
}


def _meaning(code: str) -> str:
    """Why a party was left out, in words. All codes of refusals mean that its policy forbids it."""
    return _MEANING.get(code) or _MEANING.get(code.partition("-")[0], code)


def render(snapshot: Mapping[str, Any]) -> str:
    """The page as text, everything that came from elsewhere escaped."""
    at = datetime.fromisoformat(snapshot["at"])
    shown: dict[str, Any] = plain(snapshot)
    late = {one["party"]: f"; {one['when']}: {_meaning(code_of(one['outcome']))}" for one in snapshot["last_failures"]}
    return rendered(
        "coordinator.watching",
        "status.html.j2",
        shown,
        style=STYLE,
        script=SCRIPT,
        doing=_doing(snapshot),
        stages=_stages(snapshot["asks"], snapshot["phase"]["step"]),
        time=at.strftime("%H:%M:%S"),
        rows=sorted(
            (_row(name, party, at, late.get(name, "")) for name, party in shown["parties"].items()), key=_place
        ),
        troubles=_troubles(snapshot),
    )


def _doing(snapshot: Mapping[str, Any]) -> str:
    phase = snapshot["phase"]
    done, total = phase["done"], phase["total"]
    rounds = snapshot["rounds"]
    sentence = _DOING.get(phase["step"], str(phase["step"]).replace("_", " ").capitalize() + ": {done} of {total}.")
    if phase["seconds_left"] is not None:
        sentence += f" At this pace {_lasting(timedelta(seconds=phase['seconds_left']))} to go."
    return sentence.format(
        done=done,
        total=total,
        megabytes=done // 1_000_000,
        total_megabytes=max(1, total // 1_000_000),
        connected=snapshot["connected"],
        quorum=snapshot["quorum"],
        rounds=rounds,
        round=rounds + 1,
        of_sums=f" of {snapshot['asks']['sums']}" if snapshot["asks"]["sums"] else "",
    )


def _stages(asks: Mapping[str, Any], step: str) -> list[tuple[str, str]]:
    """Each stage with ``done``, ``now`` or ``later``; none where the step belongs to no run."""
    if (number := here(asks, step)) is None:
        return []
    number += step == "finished"
    names = [name for name, _ in stages_of(asks)]
    return [(name, "done" if at < number else "now" if at == number else "later") for at, name in enumerate(names)]


def _row(name: str, party: Mapping[str, Any], at: datetime, late: str) -> dict[str, Any]:
    """A party's row; ``late`` says in which round it was left out last, and why."""
    since = party["connected_since"]
    if since is not None:
        begun = datetime.fromisoformat(since)
        said = f"connected for {_lasting(at - begun)}, since {_clock(begun, at)}"
    else:
        said = {"enrolled": "not connected", "expected": "not enrolled yet", "left": "has left"}[party["membership"]]
    return {"name": name, "here": since is not None, "said": said + late, **party}


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The sorting key of a row: missing parties come first, so that they are noticed; parties that left come last."""
    return (row["membership"] == "left", row["here"], natural(row["name"]))


def _clock(moment: datetime, now: datetime) -> str:
    local = moment.astimezone(UTC)
    return local.strftime("%H:%M UTC" if local.date() == now.date() else "%Y-%m-%d %H:%M UTC")


def _lasting(span: timedelta) -> str:
    """A duration in its largest unit."""
    seconds = max(0, int(span.total_seconds()))
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= (2 * length if unit == "days" else length):
            return f"{seconds // length} {unit}"
    return "less than a minute"


def _troubles(snapshot: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The kinds of failures with their counts, most frequent first."""
    found = [
        {"what": what, "why": _meaning(code), "count": count}
        for what, key in (("left out of a round", "dropouts"), ("connection refused", "refused_connections"))
        for code, count in snapshot[key].items()
    ]
    found += [
        {"what": what, "why": "since this process started", "count": snapshot[key]}
        for what, key in (("connection lost", "disconnections"), ("breach of the protocol", "protocol_violations"))
        if snapshot[key]
    ]
    return sorted(found, key=lambda trouble: -trouble["count"])
