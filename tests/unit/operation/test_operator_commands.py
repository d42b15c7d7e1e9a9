"""`collegium provision` and `collegium coordinator status` as an operator types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collegium.cli import main
from collegium.coordinator.settings.consortium import read_consortium
from collegium.errors import ConfigurationError

CONFIG = """\
name = "trial"
consortium = { address = "localhost:1", enrolment = "localhost:2", parties = ["ash", "birch", "cedar"], folder = "c" }
task = { classes = ["no", "yes"], inputs = { kind = "image", height = 2, width = 2 } }
pool = { source = "pool.npz" }
budget = { epsilon = 1.0 }
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "consortium.toml"
    path.write_text(CONFIG)
    return path


def typed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def provision(capsys: pytest.CaptureFixture[str], config: Path, *options: str) -> dict[str, Any]:
    status, out, err = typed(capsys, "provision", config, "--json", *options)
    assert status == 0, err
    return json.loads(out)  # type: ignore[no-any-return]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_prints_one_line_for_each_party_with_code_and_fingerprint(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = provision(capsys, config)
    assert sorted(made["commands"]) == ["ash", "birch", "cedar"]
    words = made["commands"]["ash"].split()
    assert words[words.index("--fingerprint") + 1] == made["fingerprint"]
    assert words[words.index("--coordinator") + 1] == "localhost:2"
    assert len(set(made["commands"].values())) == 3


def test_keys_are_the_operators_alone(config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    provision(capsys, config)
    for folder in (tmp_path / "c", tmp_path / "c" / "authority", tmp_path / "c" / "coordinator"):
        assert folder.stat().st_mode & 0o777 == 0o700, folder
    secrets = [*(tmp_path / "c").rglob("*key.pem"), tmp_path / "c" / "members.json"]
    assert len(secrets) == 4
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in secrets)


def test_no_code_is_on_the_disk(config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = provision(capsys, config)["commands"]["ash"].split()
    code = words[words.index("--code") + 1]
    for content in contents(tmp_path).values():
        assert code.encode() not in content and code.replace("-", "").encode() not in content


def test_twice_is_once(config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first = provision(capsys, config)
    before = contents(tmp_path / "c")
    second = provision(capsys, config)
    assert contents(tmp_path / "c") == before
    assert second["commands"] == {} and second["fingerprint"] == first["fingerprint"]


def test_another_host_gives_the_coordinator_another_certificate_from_the_same_authority(
    config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = provision(capsys, config)
    certificate = tmp_path / "c" / "coordinator" / "certificate.pem"
    before = certificate.read_bytes()
    config.write_text(CONFIG.replace("localhost", "coordinator.example.org"))
    assert provision(capsys, config)["fingerprint"] == first["fingerprint"]
    assert certificate.read_bytes() != before


def test_codes_are_renewed_and_parties_added_and_revoked(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = provision(capsys, config)
    renewed = provision(capsys, config, "--renew-code", "ash")
    assert list(renewed["commands"]) == ["ash"] and renewed["commands"]["ash"] != first["commands"]["ash"]
    added = provision(capsys, config, "--add", "oak")
    assert list(added["commands"]) == ["oak"] and added["expected"] == ["ash", "birch", "cedar", "oak"]
    assert provision(capsys, config, "--revoke", "birch")["expected"] == ["ash", "cedar", "oak"]
    assert list(provision(capsys, config, "--add", "birch")["commands"]) == ["birch"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--revoke", "oak"), "nobody is called oak"),
        (("--renew-code", "oak"), "use --add"),
        (("--add", "ash"), "expected or enrolled already"),
        (("--add", "No Name"), "name"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(
    options: tuple[str, str], words: str, config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    provision(capsys, config)
    before = contents(tmp_path / "c")
    status, out, err = typed(capsys, "provision", config, *options)
    assert status != 0 and out == "" and words in err and len(err.splitlines()) == 1
    assert contents(tmp_path / "c") == before


def test_a_folder_of_another_consortium_is_left_alone(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    provision(capsys, config)
    config.write_text(CONFIG.replace('"trial"', '"other"'))
    status, _, err = typed(capsys, "provision", config)
    assert status == 2 and "is the folder of 'trial'" in err


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ('address = "localhost"', "is not an address"),
        ('address = "elsewhere:1"', "must be on the host"),
        ('address = "localhost:1", extra = 1', "extra"),
    ],
)
def test_a_wrong_file_is_told_by_its_place(wrong: str, words: str, config: Path) -> None:
    config.write_text(CONFIG.replace('address = "localhost:1"', wrong))
    with pytest.raises(ConfigurationError, match=words):
        read_consortium(config)


def test_status_of_a_consortium_that_nobody_has_joined(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    provision(capsys, config)
    status, out, _ = typed(capsys, "coordinator", "status", config, "--json")
    found = json.loads(out)
    assert status == 0 and found["state"] == "not started" and found["served"] is False
    assert {party["membership"] for party in found["parties"].values()} == {"expected"}
    assert all(party["join_code_until_utc"] for party in found["parties"].values())
    assert found["privacy"]["epsilon_spent"] == 0.0
    status, out, _ = typed(capsys, "coordinator", "status", config)
    assert status == 0 and "not served now" in out and "ash" in out


def test_status_of_no_consortium_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (tmp_path / "nowhere", tmp_path):
        status, _, err = typed(capsys, "coordinator", "status", place)
        assert status == 9 and "collegium provision" in err and len(err.splitlines()) == 1
