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
    assert len(blocks) == 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    run, plan, cost, *found, votes, _, refusal = capsys.readouterr().out.strip().splitlines()
    right = re.fullmatch(r"ε = 1.00, right in (\d+)%", run)
    assert right is not None and int(right[1]) > 85
    assert plan == "class-sums(sigma=3.731, classes=2, rounds=1): ε = 0.9999" and cost.startswith(
        "ClassSums(sigma=3.731"
    )
    assert len(found) == 3 and found[0].split() == ["epsilon", "accuracy", "constant", "pooled"]
    assert votes == "GNMax(sigma=40.0), 286 queries: ε = 1.914 at δ = 1e-05"
    assert "minimum_noise_votes" in refusal
