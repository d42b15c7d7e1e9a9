"""Teachers fitted in several processes: the same ones, kept at once, no worker left behind, failures told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.party_requests import KEY, Asker

from collegium.data import Examples
from collegium.data.task import Task, TeacherSettings
from collegium.errors import FittingFailed, StorageError
from collegium.parties.party import Party
from collegium.parties.teachers.ensemble import TeacherEnsemble
from collegium.parties.teachers.specs import TeacherFactory, TeacherStore, specs_of

pytestmark = pytest.mark.slow

MODULE = '''
import os, signal, sys, threading
from pathlib import Path
import numpy as np
from collegium.errors import StorageError

class Plain:
    """Votes for a class that its seed and records give; light, so that a process that fits it starts fast."""
    version = "1"
    def __init__(self, task, *, trouble="", place=""):
        self.classes, self.trouble, self.place, self.label = len(task.classes), trouble, place, 0
    def fit(self, examples, *, seed, device):
        first = Path(self.place, "first")
        if self.trouble == "wait":
            with open(self.place, "wb", buffering=0) as told:
                told.write(b"x")
                threading.Event().wait()
        elif self.trouble and self.alone(first):
            if self.trouble == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.trouble == "disk":
                raise StorageError("no room for a teacher")
            raise RuntimeError("a record says 1, 2, 3")
        self.label = (seed + int(examples.x.astype(np.int64).sum())) % self.classes
    def alone(self, first):
        """One teacher alone meets the trouble, whichever process comes first."""
        try:
            first.unlink()
        except FileNotFoundError:
            return False
        return True
    def predict(self, x):
        return np.full(len(x), self.label)
    def save(self, path):
        path.write_text(str(self.label))
    def load(self, path, *, device):
        self.label = int(path.read_text())

class Unkept(Plain):
    kept = False
    def save(self, path):
        raise AssertionError("never written")
    load = save
'''
TEACHERS = 5


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "light_teachers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    return tmp_path / "modules"


@pytest.fixture
def fit(private: Examples, task: Task) -> Callable[..., tuple[TeacherEnsemble, list[int]]]:
    def fitted(
        folder: Path | None, threads: int, kind: str = "light_teachers:Plain", **options: str
    ) -> tuple[TeacherEnsemble, list[int]]:
        seen: list[int] = []
        factory = TeacherFactory(TeacherSettings(kind=kind, per_party=TEACHERS, options=options), task, (kind,))
        specs = specs_of("alpha", private, factory, key=KEY, store=TeacherStore(folder))
        return TeacherEnsemble(specs, device="cpu", threads=threads, progress=seen.append), seen

    return fitted


Fit = Callable[..., tuple[TeacherEnsemble, list[int]]]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_processes_give_the_files_and_votes_of_the_loop(fit: Fit, tmp_path: Path, digits: Examples) -> None:
    loop, _ = fit(tmp_path / "loop", 1)
    shared, seen = fit(tmp_path / "shared", 2)
    assert seen == [1, 2, 3, 4, 5]
    assert contents(tmp_path / "loop") == contents(tmp_path / "shared")
    assert np.array_equal(loop.votes(digits.x[:3]), shared.votes(digits.x[:3]))
    again, _ = fit(tmp_path / "shared", 2)
    assert again.reused == TEACHERS


def test_networks_come_out_the_same(make_party: Callable[..., Party], digits: Examples, tmp_path: Path) -> None:
    settings = TeacherSettings(kind="linear", per_party=2, options={"steps": 20})
    for folder, threads in (("loop", 1), ("shared", 2)):
        Asker(make_party(folder=tmp_path / folder, threads=threads)).fit(settings)
    assert contents(tmp_path / "loop" / "teachers") == contents(tmp_path / "shared" / "teachers")


@pytest.mark.parametrize("kind", ["light_teachers:Plain", "light_teachers:Unkept"])
def test_a_party_without_a_folder_and_a_kind_without_a_file_need_none(
    fit: Fit, digits: Examples, kind: str, tmp_path: Path
) -> None:
    folder = tmp_path / "kept" if kind.endswith("Unkept") else None
    votes = [fit(folder, threads, kind)[0].votes(digits.x[:2]) for threads in (1, 2)]
    assert np.array_equal(votes[0], votes[1])
    assert folder is None or contents(folder) == {}


@pytest.mark.parametrize(
    ("trouble", "error", "says"),
    [
        ("raise", FittingFailed, r"light_teachers:Plain failed while it was fitted: RuntimeError at light_teachers"),
        ("kill", FittingFailed, "ended by signal 9: if memory ran out, give the party fewer threads"),
        ("disk", StorageError, "no room for a teacher"),
    ],
)
def test_a_worker_that_fails_is_told_and_the_rest_goes_on_later(
    fit: Fit, tmp_path: Path, trouble: str, error: type[Exception], says: str
) -> None:
    (tmp_path / "first").touch()
    with pytest.raises(error, match=says) as caught:
        fit(tmp_path / "kept", 2, trouble=trouble, place=str(tmp_path))
    assert "1, 2, 3" not in str(caught.value)
    kept = len(contents(tmp_path / "kept"))
    assert kept < TEACHERS
    assert not [name for name in contents(tmp_path / "kept") if "partial" in name]
    # Two processes go on as well as one, and start slowly.
    after, seen = fit(tmp_path / "kept", 2 if trouble == "kill" else 1, trouble=trouble, place=str(tmp_path))
    assert after.reused >= kept  # the other worker may have kept one more in its last moment
    assert seen[-1] == TEACHERS


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_however_the_party_ends_no_worker_stays(tmp_path: Path, module: Path, ending: signal.Signals) -> None:
    """Both workers hold the pipe open while they fit: its end is seen once both are gone."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script = module / "party_that_ends.py"
    script.write_text(
        "import numpy as np, signal, sys\n"
        "from collegium.parties.teachers.ensemble import TeacherEnsemble\n"
        "from collegium.parties.teachers.specs import TeacherFactory, TeacherStore, specs_of\n"
        "from collegium.data import Examples\n"
        "from collegium.data.task import ImageInputs, Task, TeacherSettings\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it\n"
        "    x = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), np.uint8)\n"
        "    task = Task(classes=('a', 'b'), inputs=ImageInputs(height=8, width=8))\n"
        "    kind = 'light_teachers:Plain'\n"
        "    options = {'trouble': 'wait', 'place': sys.argv[1]}\n"
        "    settings = TeacherSettings(kind=kind, per_party=4, options=options)\n"
        "    specs = specs_of('alpha', Examples(x, np.arange(40) % 2), TeacherFactory(settings, task, (kind,)),\n"
        "            key=b'k' * 32, store=TeacherStore(None))\n"
        "    TeacherEnsemble(specs, device='cpu', threads=2)\n"
    )
    party = subprocess.Popen([sys.executable, script, pipe], stderr=subprocess.DEVNULL)
    with pipe.open("rb", buffering=0) as told:
        assert (told.read(1), told.read(1)) == (b"x", b"x")
        party.send_signal(ending)
        party.wait()
        assert told.read() == b""
