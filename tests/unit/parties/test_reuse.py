"""A fitted teacher is found again, whatever happened in between, and only if nothing about it changed."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.files import files_no_longer_than
from support.party_requests import KEY, LINEAR, Asker
from support.teachers import WATCHED, WatchedTeacher

from collegium.data import Examples
from collegium.data.task import TeacherSettings
from collegium.data.values import ArraySpec
from collegium.errors import StorageError
from collegium.parties.party import Party
from collegium.parties.teachers.networks import NetworkTeacher
from collegium.parties.teachers.splits import assign_teachers
from collegium.protocol.replies import Fitted

MakeParty = Callable[..., Party]
SEEN = LINEAR.model_copy(update={"kind": WATCHED})


@pytest.fixture
def watched() -> Iterator[type[WatchedTeacher]]:
    with WatchedTeacher.watching() as teachers:
        yield teachers


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "teachers").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "small-cnn", "random-forest"])
def test_teachers_are_found_after_a_restart_and_vote_the_same(
    make_party: MakeParty, pool: ArraySpec, tmp_path: Path, kind: str
) -> None:
    options: dict[str, Any] = {"trees": 10} if kind == "random-forest" else {"steps": 30}
    settings = TeacherSettings(kind=kind, per_party=2, options=options)
    first = Asker(make_party(folder=tmp_path))
    assert first.reused(settings) == 0
    again = Asker(make_party(folder=tmp_path))
    assert again.reused(settings) == 2
    everything = tuple(range(100))
    assert np.array_equal(
        first.votes(pool, everything, settings).counts, again.votes(pool, everything, settings).counts
    )


def test_a_change_of_one_record_refits_one_teacher(make_party: MakeParty, private: Examples, tmp_path: Path) -> None:
    Asker(make_party(folder=tmp_path)).fit()
    fewer = private.take(np.arange(1, 300))
    assert Asker(make_party(fewer, folder=tmp_path)).reused() == 2


def test_the_reply_to_a_fit_does_not_tell_that_records_changed(
    make_party: MakeParty, private: Examples, tmp_path: Path
) -> None:
    fewer = private.take(np.arange(1, 300))
    replies = [Asker(make_party(records, folder=tmp_path)).fit() for records in (private, private, fewer)]
    assert replies == [Fitted(3)] * 3 and vars(replies[0]).keys() == {"teachers"}


def test_a_lone_teacher_is_fitted_with_one_thread_however_many_the_party_has(
    make_party: MakeParty, tmp_path: Path, watched: type[WatchedTeacher]
) -> None:
    alone, kept_by = SEEN.model_copy(update={"per_party": 1}), []
    for threads in (1, 3):
        make = make_party(folder=tmp_path / f"{threads}", threads=threads, allowed_imports=(WATCHED,))
        assert Asker(make).fit(alone) == Fitted(1)
        (file,) = (path for path in kept(tmp_path / f"{threads}") if path.suffix == ".safetensors")
        kept_by.append(file.read_bytes())
    assert watched.threads == [(1, 1), (1, 1)] and kept_by[0] == kept_by[1]


def test_other_settings_or_another_algorithm_are_fitted_anew(
    make_party: MakeParty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Asker(make_party(folder=tmp_path))
    ask.fit()
    for change in ({"seed": 1}, {"options": {"steps": 10}}):
        assert ask.reused(LINEAR.model_copy(update=change)) == 0
    monkeypatch.setattr(NetworkTeacher, "version", "next")
    assert Asker(make_party(folder=tmp_path)).reused() == 0


def test_an_interrupted_fit_goes_on_at_the_next_missing_teacher(
    make_party: MakeParty, tmp_path: Path, watched: type[WatchedTeacher]
) -> None:
    watched.dies_after = 2
    with pytest.raises(KeyboardInterrupt):
        Asker(make_party(folder=tmp_path, allowed_imports=(WATCHED,))).fit(SEEN)
    watched.dies_after = None
    assert Asker(make_party(folder=tmp_path, allowed_imports=(WATCHED,))).reused(SEEN) == 2
    assert len(watched.learned) == 3


def test_a_damaged_file_is_refitted_with_a_warning(
    make_party: MakeParty, pool: ArraySpec, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Asker(make_party(folder=tmp_path))
    votes = first.votes(pool, tuple(range(100))).counts
    before = kept(tmp_path)
    _, cut, flipped = before
    cut.write_bytes(cut.read_bytes()[:100])
    flipped.write_bytes(flipped.read_bytes()[:-1] + b"\xff")  # still a valid file of other weights
    again = Asker(make_party(folder=tmp_path))
    assert again.reused() == 1
    assert caplog.text.count("damaged and will be fitted again") == 2
    assert np.array_equal(again.votes(pool, tuple(range(100))).counts, votes)
    assert kept(tmp_path) == before


def test_a_teacher_that_cannot_be_written_leaves_no_partial_file(make_party: MakeParty, tmp_path: Path) -> None:
    ask = Asker(make_party(folder=tmp_path))
    with files_no_longer_than(1000):
        answer = ask.fit()
    assert answer.code == "storage"
    assert str(tmp_path) not in answer.message
    assert "too large" not in answer.message
    assert kept(tmp_path) == []
    assert ask.reused() == 0


def test_kept_teachers_are_the_owners_alone_and_their_names_need_the_key(make_party: MakeParty, tmp_path: Path) -> None:
    Asker(make_party(folder=tmp_path / "a")).fit()
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in kept(tmp_path / "a"))
    # With one teacher the split is the same under every key: the name alone differs.
    single = LINEAR.model_copy(update={"per_party": 1})
    for folder, key in (("b", KEY), ("c", b"x" * 32)):
        Asker(make_party(folder=tmp_path / folder, split_key=key)).fit(single)
    (one,), (other,) = kept(tmp_path / "b"), kept(tmp_path / "c")
    assert one.name.split(".")[0] != other.name.split(".")[0]
    assert one.read_bytes() == other.read_bytes()


def test_a_folder_that_cannot_be_written_is_a_storage_error(make_party: MakeParty, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot keep teachers"):
        make_party(folder=tmp_path / "file")


def test_every_teacher_learns_from_its_own_split_alone(
    make_party: MakeParty, private: Examples, watched: type[WatchedTeacher]
) -> None:
    assert Asker(make_party(allowed_imports=(WATCHED,))).fit(SEEN) == Fitted(3)
    assigned = assign_teachers(private.identities(), 3, KEY)
    assert len(watched.learned) == 3
    for number, own in enumerate(watched.learned):
        assert sorted(own.identities()) == sorted(private.take(np.flatnonzero(assigned == number)).identities())
