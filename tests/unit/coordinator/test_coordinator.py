"""The whole run over parties in this process."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., dict[str, Any]]


def test_a_run_leaves_its_five_files_and_says_what_it_did(run: Run, tmp_path: Path) -> None:
    record = run()
    folder = tmp_path / "run"
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert {"run.json", "labels.csv", "student.safetensors", "report.html", "ledger.sqlite"} <= names
    assert record["state"] == "finished"
    assert record["labels"]["answered"] == 20
    assert record["student"]["accuracy"] == 1.0
    assert record == json.loads((folder / "run.json").read_text()) | {"rounds": record["rounds"]} | record
