"""The code of docs/python.md runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "python.md"


@pytest.mark.slow
def test_the_page_runs_and_says_what_it_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    plan, _, run, refusal = printed.strip().splitlines()
    assert plan == "286 queries cost ε = 1.91 at δ = 1e-05"
    found = re.fullmatch(r"40 labels cost a record ε = ([\d.]+); the student is right in (\d+)%", run)
    assert found is not None and 2.9 < float(found[1]) < 3.2 and int(found[2]) > 75
    assert "budget" in refusal
