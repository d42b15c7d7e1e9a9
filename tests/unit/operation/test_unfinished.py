"""What a killed process left half-written is removed by the next one, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collegium.whole_files import remove_stale_temp_files

NAMES = (".run.json.{}", ".probe-{}", ".split-key.{}.12345678", ".{}.0badcafe.partial", "learned/.net.safetensors.{}")


@pytest.fixture(scope="module")
def dead() -> int:
    """The number of a process that is no more."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def test_only_what_a_dead_process_left_is_removed(tmp_path: Path, dead: int) -> None:
    (tmp_path / "learned").mkdir()
    kept = ["run.json", ".lock", ".serving.lock", "ledger.sqlite-wal", ".hidden", "run.json.17"]
    kept += [name.format(os.getpid()) for name in NAMES]
    for name in (*kept, *(name.format(dead) for name in NAMES)):
        (tmp_path / name).write_text("x")
    remove_stale_temp_files(tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == set(kept)


def test_a_folder_that_is_not_there_needs_no_sweeping(tmp_path: Path) -> None:
    remove_stale_temp_files(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
