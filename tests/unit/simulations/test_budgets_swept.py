"""`collegium simulate --epsilon`: the default on a table, a run for each ε, then one table and one picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from collegium import cli
from collegium.coordinator.rounds.rounds import Parties
from collegium.coordinator.run.run_folder import read_run
from collegium.errors import ConfigurationError
from collegium.settings import read_config
from collegium.simulations.cli import show_budgets
from collegium.simulations.cohort import PreparedRun, virtual_party
from collegium.simulations.config import SimulationConfig, with_budget
from collegium.simulations.local import InProcessParties
from collegium.simulations.sweep import draw_runs

SETTINGS = """
name = "table"
private = { source = "breast-cancer", shuffle_seed = 0, split = "all", stop = 300 }
pool = { source = "breast-cancer", shuffle_seed = 0, split = "all", start = 300, stop = 450 }
holdout = { source = "breast-cancer", shuffle_seed = 0, split = "all", start = 450 }
partition = { kind = "iid", parties = 5 }
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    from importlib.resources import files

    task = files("collegium.data").joinpath("tasks", "breast-cancer.toml").read_text(encoding="utf-8")
    lines = [f"[task.{line[1:]}" if line.startswith("[") else line for line in task.splitlines()]
    (tmp_path / "run.toml").write_text(SETTINGS + "[budget]\nepsilon = 2\n[task]\n" + "\n".join(lines))
    return tmp_path / "run.toml"


def called(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(word) for word in words])
    return int(ended.value.code or 0)


def test_the_budget_of_a_configuration_is_another_and_nothing_else(config: Path) -> None:
    settings = read_config(config, SimulationConfig)
    other = with_budget(settings, 0.5)
    assert other.budget.epsilon == 0.5 and other.budget.delta == settings.budget.delta
    assert other.model_copy(update={"budget": settings.budget}) == settings


@pytest.mark.parametrize("wrong", ["0.1,x", "0,1", "-1", "inf"])
def test_a_budget_that_is_none_is_one_line(wrong: str, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("simulate", config, "--epsilon", wrong, "--run", config.parent / "run") == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not (config.parent / "run").exists()
    assert called("simulate", config, "--plot", "a.svg") == 2


def without_the_engine(run: PreparedRun, drive: Callable[[Parties], None]) -> None:
    """The same virtual parties, asked in this process."""
    parties = [virtual_party(run.folder, number) for number in range(len(run.cohort))]
    drive(InProcessParties(parties, run.config.name))


@pytest.mark.slow
def test_the_default_runs_on_a_table_for_a_budget_of_the_command_line(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collegium.simulations.simulate.on_engine", without_the_engine)
    folder, plot = config.parent / "run", config.parent / "accuracy.svg"
    assert called("simulate", config, "--epsilon", "1", "--run", folder, "--plot", plot) == 0
    record = read_run(folder / "epsilon-1")
    assert record.privacy is not None and 0.9 < record.privacy.epsilon <= 1.0
    # Seven deviations below the mean over divisions and noises (cg.simulate on the same table).
    assert record.student_accuracy is not None and record.student_accuracy > 0.75
    capsys.readouterr()
    show_budgets({1.1: folder / "epsilon-1", 1.3: folder / "epsilon-1"}, None, as_json=False)
    shown = capsys.readouterr().out
    rows = [line.split()[1] for line in shown.splitlines() if f"{100 * record.student_accuracy:.2f} %" in line]
    assert rows == ["1.1", "1.3"]
    assert plot.read_text(encoding="utf-8").startswith("<?xml")
    with pytest.raises(ConfigurationError, match="no accuracy to draw"):
        draw_runs({1.0: None}, plot)
