"""The notebooks run from their first cell to their last, and are kept without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib import pyplot

NOTEBOOKS = sorted((Path(__file__).resolve().parents[3] / "docs" / "notebooks").glob("*.ipynb"))


def code_cells(notebook: Path) -> list[dict[str, Any]]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.slow
@pytest.mark.timeout(900)  # half a minute of a core where no curve is kept, and others may have the cores
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_as_it_is(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(notebook)):
        exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)
    pyplot.close("all")
    assert len(capsys.readouterr().out.splitlines()) >= 5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(notebook: Path) -> None:
    assert [cell for cell in code_cells(notebook) if cell["outputs"] or cell["execution_count"] is not None] == []


def test_there_are_three_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["accounting", "five-parties", "own-table"]
