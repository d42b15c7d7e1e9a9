"""`collegium party` as an institution types it: a real process against a real port."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from support.processes import COMMAND_S, command, read_until, start_collegium
from support.sessions import Hub, Kits, Listen, fake_coordinator
from support.waiting import PATIENCE_S

from collegium import limits
from collegium.data import default_task
from collegium.data.task import NumberColumn, TableInputs, Task
from collegium.data.values import ArraySpec
from collegium.parties.answer_book import FILE, AnswerBook
from collegium.parties.policy import PolicyConfig
from collegium.privacy.ledger.chain import Head
from collegium.protocol.certificates import Authority
from collegium.protocol.identities import issue_kit
from collegium.protocol.replies import Description, Failure
from collegium.protocol.requests import Describe, HoldPool
from collegium.protocol.v1 import collegium_pb2 as pb


def write_config(
    folder: Path, kits: Kits, name: str, address: str, data: str = '{ source = "digits", one_row_each = true }'
) -> Path:
    path = folder / "party.toml"
    kept = f"of-{kits.folder.name}-{name}"
    path.write_text(
        f'coordinator = "{address}"\ncredentials = "{kits.folder / name}"\nfolder = "{kept}"\ndata = {data}\n'
        'policy = "policy.toml"\n'
    )
    (folder / "policy.toml").write_text("minimum_noise_votes = 1.0\nqueries = 10\npools = []\n")
    return path


def run(*arguments: str | Path) -> tuple[int, str, str]:
    """Exit status, standard output, and the last line of standard error; a traceback fails the test."""
    done = command("party", *arguments)
    assert "Traceback" not in done.err, done.err
    return done.status, done.out, done.err.strip().splitlines()[-1] if done.err.strip() else ""


@pytest.mark.parametrize(
    ("policy", "missing"),
    [
        ("", "minimum_noise_votes and pools and queries or epsilon"),
        ("queries = 10\npools = []", "minimum_noise_votes"),
        ("minimum_noise_votes = 1.0\npools = []", "queries or epsilon"),
        ("minimum_noise_votes = 1.0\nqueries = 10", "pools"),
    ],
)
def test_a_policy_without_limits_is_not_served(kits: Kits, tmp_path: Path, policy: str, missing: str) -> None:
    path = write_config(tmp_path, kits, "ash", "localhost:1")
    (tmp_path / "policy.toml").write_text(policy)
    status, _, line = run("serve", path)
    assert status == 2 and f"the policy sets no limit by {missing}: write them" in line


def test_exact_sums_of_few_parties_need_a_word_in_the_policy(kits: Kits, tmp_path: Path) -> None:
    path = write_config(tmp_path, kits, "ash", "localhost:1")
    path.write_text('parties = ["ash", "oak", "elm", "fir"]\n' + path.read_text())
    policy = tmp_path / "policy.toml"
    policy.write_text(policy.read_text() + 'sum_modes = ["masked"]\n')
    status, _, line = run("serve", path)
    assert status == 2 and "sum of 4 parties may show" in line and "few_parties = true" in line


def test_a_party_serves_real_records_until_the_farewell(kits: Kits, listen: Listen, tmp_path: Path) -> None:
    hub = listen(task=default_task("digits"))
    process = start_collegium(
        "party", "serve", write_config(tmp_path, kits, "ash", hub.address), "--log-format", "json"
    )
    hub.parties.wait_for(["ash"], timeout_s=COMMAND_S)
    described = hub.parties.ask({"ash": Describe()}, timeout_s=COMMAND_S)["ash"]
    assert isinstance(described, Description) and described.party == "ash"
    hub.parties.farewell("all labels are issued")
    _, err = process.communicate(timeout=COMMAND_S)
    assert process.returncode == 0, err
    lines = [json.loads(line)["message"] for line in err.splitlines()]
    assert lines[-1] == "ended: all labels are issued"
    (kept,) = tmp_path.glob("of-*-ash")
    assert kept.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in kept.rglob("*")} == {0} and (kept / FILE).is_file()


def test_a_party_that_is_told_to_stop_stops(kits: Kits, hub: Hub, tmp_path: Path) -> None:
    with fake_coordinator(kits.coordinator) as address:
        process = start_collegium("party", "serve", write_config(tmp_path, kits, "ash", address))
        read_until(process.stderr, "ash dials")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and "Traceback" not in err, err


def test_errors_before_any_connection_are_one_line(kits: Kits, tmp_path: Path) -> None:
    assert run("serve", tmp_path / "nowhere.toml")[::2] == (
        9,
        f"StorageError: cannot read {tmp_path}/nowhere.toml: No such file or directory; give the path of a TOML file",
    )
    path = write_config(tmp_path, kits, "ash", "localhost:1")
    path.write_text(path.read_text() + "colour = 'red'\n")
    status, _, line = run("show", path)
    assert status == 2 and line.startswith("ConfigurationError:") and "colour" in line
    status, _, line = run("show", write_config(tmp_path, kits, "oak", "localhost:1"))
    assert status == 4 and line.startswith("IdentityError:") and "is missing: enrol" in line


def test_wrong_authority_unknown_party_and_missing_column_each_end_with_one_line(
    kits: Kits, listen: Listen, tmp_path: Path
) -> None:
    columns = (NumberColumn(name="a", low=0.0, high=9.0), NumberColumn(name="b", low=0.0, high=9.0))
    hub = listen(task=Task(classes=("well", "sick"), inputs=TableInputs(columns=columns)))
    elms = Kits(tmp_path, Authority.create("elms"), kits.coordinator, {}, kits.roster)
    issue_kit(elms.authority, tmp_path / "ash", "ash", "party")
    status, _, line = run("serve", write_config(tmp_path, elms, "ash", hub.address))
    assert status == 4 and line.startswith("IdentityError:") and "not the one of this consortium" in line
    status, _, line = run("serve", write_config(tmp_path, kits, "stranger", hub.address))
    assert status == 4 and line.startswith("IdentityError:") and "not on the roster" in line
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    data = f'{{ source = "{tmp_path}/table.csv", label = "sick", one_row_each = true }}'
    status, _, line = run("serve", write_config(tmp_path, kits, "ash", hub.address, data))
    assert status == 3 and line.startswith("ColumnMissing:"), line


def test_what_a_party_cannot_use_is_its_last_word_whatever_was_sent_meanwhile(kits: Kits, tmp_path: Path) -> None:
    task = default_task("digits")
    welcome = pb.Welcome(protocol_version=limits.PROTOCOL_VERSION, consortium="oaks", task_json=task.model_dump_json())
    sent = pb.FromCoordinator(welcome=welcome), pb.FromCoordinator(request=pb.Request())
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    with fake_coordinator(kits.coordinator, *(message.SerializeToString() for message in sent), waits_s=0.0) as address:
        data = f'{{ source = "{tmp_path}/table.csv", label = "sick", one_row_each = true }}'
        status, _, line = run("serve", write_config(tmp_path, kits, "ash", address, data))
    assert status == 3 and "is a table, but the task has images" in line, line


def test_another_protocol_version_ends_with_one_line(kits: Kits, tmp_path: Path) -> None:
    welcome = pb.FromCoordinator(welcome=pb.Welcome(protocol_version=1, consortium="oaks", task_json="{}"))
    with fake_coordinator(kits.coordinator, welcome.SerializeToString()) as address:
        status, _, line = run("serve", write_config(tmp_path, kits, "ash", address))
    assert status == 4 and line.startswith("VersionMismatch:") and "install the same version" in line


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
def test_show_tells_who_the_party_is_and_nothing_secret(kits: Kits, tmp_path: Path, as_json: bool) -> None:
    path = write_config(tmp_path, kits, "ash", "localhost:1")
    status, out, _ = run("show", path, *(["--json"] if as_json else []))
    assert status == 0
    key = kits.parties["ash"].subject.signing_key.hex()
    assert key in out and "PRIVATE" not in out
    if as_json:
        assert json.loads(out)["party"] == "ash"


def test_an_institution_agrees_to_a_new_ledger_by_a_command(kits: Kits, tmp_path: Path) -> None:
    path = write_config(tmp_path, kits, "ash", "localhost:1")

    def shown() -> str | None:
        told: str | None = json.loads(run("show", path, "--json")[1])["ledger_head_shown"]
        return told

    assert shown() is None
    (kept,) = tmp_path.glob("of-*-ash")
    book = AnswerBook(kept, "ash", PolicyConfig.read(tmp_path / "policy.toml"), kits.parties["ash"].signing_key)
    book.keep_head(Head(3, bytes(32)))
    assert shown() == str(Head(3, bytes(32)))
    status, out, _ = run("new-ledger", path)
    assert status == 0 and f"entry {Head(3, bytes(32))} is no longer asked for" in out
    assert shown() is None


def test_an_edited_policy_is_in_force_from_the_next_request_on_or_a_line_says_that_it_is_not(
    kits: Kits, listen: Listen, tmp_path: Path
) -> None:
    hub = listen(task=default_task("digits"))
    process = start_collegium("party", "serve", write_config(tmp_path, kits, "ash", hub.address))
    hub.parties.wait_for(["ash"], timeout_s=COMMAND_S)
    pool, policy = ArraySpec("ab" * 32, "uint8", (2, 8, 8, 1)), tmp_path / "policy.toml"

    def answer() -> str:
        reply = hub.parties.ask({"ash": HoldPool(pool)}, timeout_s=COMMAND_S)["ash"]
        return reply.code if isinstance(reply, Failure) else "agreed"

    assert answer() == "refused-pool"
    before = policy.read_text()
    policy.write_text(before.replace("pools = []", f'pools = ["{pool.sha256}"]'))
    assert answer() == "agreed"
    policy.write_text(before.replace("minimum_noise_votes = 1.0", ""))  # without limits it is not served
    assert answer() == "agreed"
    policy.write_text(before)
    assert answer() == "refused-pool"
    hub.parties.farewell("all labels are issued")
    _, err = process.communicate(timeout=COMMAND_S)
    assert process.returncode == 0 and err.count("is in force now") == 2, err
    assert "NOT in force, the one before is: the policy sets no limit by minimum_noise_votes" in err
