"""`nvflare simulator`, each site in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install collegium-nvflare")

from collegium.cli import main
from collegium_nvflare.trial import Cost, Trial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, Cost, Cost]:
    """A consortium, and what it came to over our own sessions and over NVFlare."""
    trial = Trial.make(tmp_path_factory.mktemp("nvflare") / "trial", parties=3, rounds=2)
    return trial, trial.over_sessions(), trial.over_nvflare()


def test_labels_and_student_are_those_of_our_own_sessions_to_the_bit(finished: tuple[Trial, Cost, Cost]) -> None:
    _, own, nvflare = finished
    assert (nvflare.labels_sha256, nvflare.student_sha256) == (own.labels_sha256, own.student_sha256)
    assert nvflare.labels == 300


def test_every_site_signed_the_ledger_that_the_coordinator_signed(
    finished: tuple[Trial, Cost, Cost], capsys: pytest.CaptureFixture[str]
) -> None:
    trial, *_ = finished
    place = trial.run.path.parent
    key = place / "coordinator" / "certificate.pem"
    with pytest.raises(SystemExit) as ended:
        main(["ledger", "verify", str(place), "--public-key", str(key), "--json"])
    out, err = capsys.readouterr()
    assert ended.value.code == 0, err
    found = json.loads(out)
    assert found["public_key_checked"] and found["labels"] == 300
    assert set(found["followed_by"]) == set(trial.sites)
    assert [spent["epsilon"] <= 4.0 for spent in found["spent"]] == [True]


def test_whoever_downloads_the_jobs_result_has_student_and_report(finished: tuple[Trial, Cost, Cost]) -> None:
    trial, *_ = finished
    results = trial.workspace / "server" / "simulate_job" / "collegium"
    assert sorted(file.name for file in results.iterdir()) == [
        "labels.csv",
        "report.html",
        "run.json",
        "statement.html",
        "student.safetensors",
    ]
    assert (results / "student.safetensors").read_bytes() == trial.run.student.read_bytes()


def test_the_run_ends_without_a_site_that_dies_in_the_sum_and_one_that_refuses(tmp_path: Path) -> None:
    trial = Trial.make(tmp_path / "trial", parties=7, deadline_s=40.0, rounds=2)
    refusing, dying = trial.sites[1], trial.sites[5]
    policy = trial.policy_of(refusing)
    floor = next(line for line in policy.read_text().splitlines() if line.startswith("minimum_noise_sums"))
    policy.write_text(policy.read_text().replace(floor, "minimum_noise_sums = 1000.0"))
    with _simulator(trial) as simulator:
        process = _worker(trial, dying, given=8)
        os.kill(process, signal.SIGKILL)
        status = simulator.wait()
    assert status == 0, (trial.folder / "simulator.log").read_text()[-4000:]
    record = trial.run.read()
    assert record is not None and record.state == "finished" and record.labels is not None
    failed = record.rounds[0].failed
    assert failed.keys() == {refusing, dying}
    assert failed[refusing].startswith("refused-noise: ") and failed[dying] in ("deadline", "unreachable")
    assert record.labels.answered == 300 and trial.run.student.exists()


class _simulator:
    """The simulator while it runs; ended where the test fails before it."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def __enter__(self) -> subprocess.Popen[bytes]:
        self._process = self._trial.start()
        return self._process

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()


def _worker(trial: Trial, site: str, *, given: int) -> int:
    """The number of the process that plays a site, once NVFlare gave it so many tasks."""
    log, deadline = trial.workspace / site / "log.txt", time.monotonic() + PATIENCE_S
    while not log.exists() or log.read_text().count("invoking task executor") < given:
        assert time.monotonic() < deadline, "the site was given too few tasks"
        time.sleep(0.02)
    return next(_processes_of(str(trial.workspace / site)))


def _processes_of(workspace: str) -> Iterator[int]:
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                words = (place / "cmdline").read_text().split("\0")
            except OSError:
                continue
            if workspace in words and any("simulator_worker" in word for word in words):
                yield int(place.name)
