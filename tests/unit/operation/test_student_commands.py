"""`collegium student` with a coordinator: what is wrong is one line, before anybody is dialled."""

from __future__ import annotations

from pathlib import Path

import pytest

from collegium.cli import main
from collegium.protocol.certificates import Authority
from collegium.protocol.identities import issue_kit

NOBODY = "localhost:1"


def typed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["student", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int) and out == ""
    assert len(err.splitlines()) == 1, err
    return ended.value.code, err


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    issue_kit(Authority.create("trial"), tmp_path / "keys", "lab", "student")
    return tmp_path / "keys"


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        ((), 2, "needs --credentials"),
        (("--credentials", "KEYS"), 2, "--queries N at random, or --positions FILE"),
        (("--credentials", "KEYS", "--queries", 3, "--positions", "LIST"), 2, "--queries N at random"),
        (("--credentials", "KEYS", "--positions", "LIST"), 2, "one whole number per line"),
        (("--credentials", "KEYS", "--positions", "nowhere"), 9, "cannot read nowhere"),
        (("--credentials", "nowhere", "--queries", 3), 4, "is missing: enrol first"),
    ],
)
def test_a_mistake_is_told_before_anybody_is_dialled(
    options: tuple[object, ...],
    status: int,
    words: str,
    keys: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "list").write_text("1\ntwo\n")
    places = {"KEYS": keys, "LIST": tmp_path / "list"}
    given = [places.get(option, option) if isinstance(option, str) else option for option in options]
    code, err = typed(capsys, "fit", tmp_path / "labels", "--coordinator", NOBODY, *given)
    assert code == status and words in err
    assert not (tmp_path / "labels").exists()


def test_a_partys_keys_are_no_students(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    issue_kit(Authority.create("trial"), tmp_path / "ash", "ash", "party")
    code, err = typed(
        capsys, "fit", tmp_path / "x", "--coordinator", NOBODY, "--credentials", tmp_path / "ash", "--queries", 3
    )
    assert code == 4 and "a student's is needed here" in err


def test_a_coordinator_that_cannot_be_reached_is_told_to_who_enrols(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--name", "lab", "--code", "00", "--fingerprint", "ab" * 32, "--folder", tmp_path / "lab")
    code, err = typed(capsys, "enrol", "--coordinator", NOBODY, *options)
    assert code == 5 and "cannot reach the enrolment" in err
    assert not (tmp_path / "lab").exists()
