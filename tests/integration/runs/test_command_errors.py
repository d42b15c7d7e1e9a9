"""Whatever is wrong with what a user gives, the command says so in one line and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.processes import COMMAND_S, command, start_collegium
from support.runs import ANSI, run_in_process, tiny, write_config

from collegium.cli import main
from collegium.coordinator.run.run_folder import RunFolder
from collegium.settings import read_config
from collegium.simulations.config import SimulationConfig

Refusal = Callable[..., tuple[int, str]]


@pytest.fixture
def refusal(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refusal:
    """Run the command in this process; exit status and the one line on standard error."""
    monkeypatch.delenv("COLLEGIUM_DATA", raising=False)

    def run(*arguments: str | Path) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        err = capfd.readouterr().err
        assert err.count("\n") == 1 and err.endswith("\n"), err
        assert "Traceback" not in err and not ANSI.search(err)
        assert isinstance(ended.value.code, int) and ended.value.code != 0
        return ended.value.code, err.rstrip("\n")

    return run


@pytest.mark.parametrize("how", ["launch", "simulate"])
@pytest.mark.parametrize(
    ("sections", "status", "words"),
    [
        pytest.param({"colour": "red"}, 2, ["colour", "no such setting"], id="unknown key"),
        pytest.param({"queries": {"cuont": 5}}, 2, ["queries.cuont"], id="unknown key of a section"),
        pytest.param({"queries": {"count": -1}}, 2, ["queries.count", "greater"], id="value out of range"),
        pytest.param({"mechanism": {"name": "magic"}}, 2, ["magic", "gnmax", "lnmax"], id="unknown mechanism"),
        pytest.param(
            {"mechanism": {"parameters": {"gamma": 1.0}}}, 2, ["gamma", "gnmax"], id="unknown parameter of a mechanism"
        ),
        pytest.param({"student": {"method": "telepathy"}}, 2, ["telepathy", "consistency"], id="unknown student"),
        pytest.param(
            {"student": {"options": {"stpes": 3}}}, 2, ["student.options.stpes"], id="unknown option of a student"
        ),
        pytest.param({"private": {"source": "nowhere.csv"}}, 2, ["shuffle_seed"], id="an option of named sets alone"),
        pytest.param(
            {"partition": {"parties": 601}}, 2, ["601 parties", "600 records", "fewer"], id="more parties than records"
        ),
        pytest.param(
            {"partition": {"kind": "quantity", "alpha": 0.001, "parties": 40}},
            2,
            ["party-", "no record", "fewer parties"],
            id="an empty party",
        ),
        pytest.param(
            {"budget": {"epsilon": 0.01}}, 7, ["of ε = 0.01", "raise budget.epsilon"], id="budget below one query"
        ),
        pytest.param({"queries": {"count": 101}}, 2, ["101", "100"], id="more queries than inputs"),
        pytest.param({"pool": {"stop": 5000}}, 3, ["1797 records", "5000"], id="beyond the end of a set"),
    ],
)
def test_a_bad_configuration_is_refused_before_any_party_starts(
    how: str, sections: dict[str, Any], status: int, words: list[str], refusal: Refusal, tmp_path: Path
) -> None:
    config = write_config(tmp_path / "bad.toml", **sections)
    found, line = refusal(how, config, "--run", tmp_path / "run")
    assert found == status, line
    assert all(word in line for word in words), line
    assert not list(tmp_path.glob("run/parties/*/party.log")) and not (tmp_path / "run" / "flower").exists()


def test_a_missing_configuration_file(refusal: Refusal, tmp_path: Path) -> None:
    assert refusal("launch", tmp_path / "gone.toml") == (
        9,
        f"StorageError: cannot read {tmp_path}/gone.toml: No such file or directory; give the path of a TOML file",
    )


def test_a_configuration_that_is_no_toml(refusal: Refusal, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("name = \n")
    status, line = refusal("simulate", tmp_path / "bad.toml")
    assert status == 2 and "line 1" in line


def test_a_configuration_that_is_no_text(refusal: Refusal, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe\x00name")
    status, line = refusal("simulate", tmp_path / "bad.toml")
    assert status == 2 and "bad.toml" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["launch", "x.toml", "--sed", "3"], ["--sed", "--seed", "launch --help"]),
        (["launch"], ["CONFIG", "launch --help"]),
        (["launch", "x.toml", "--queries", "0"], ["--queries", "launch --help"]),
        (["lanch"], ["lanch", "--help"]),
        (["ledger", "shwo", "x"], ["shwo", "ledger --help"]),
        (["party", "serve"], ["CONFIG_FILE", "party serve --help"]),
    ],
)
def test_a_bad_command_line(arguments: list[str], words: list[str], refusal: Refusal) -> None:
    status, line = refusal(*arguments)
    assert status == 2 and all(word in line for word in words), line


def table_config(folder: Path, rows: str, label: str = "sick") -> Path:
    """A run on the user's own table: one number, two classes."""
    (folder / "clinic.csv").write_text(rows)
    (folder / "public.csv").write_text("age\n" + "\n".join(str(age) for age in range(20, 60)) + "\n")
    columns = '[{ kind = "number", name = "age", low = 0.0, high = 100.0 }]'
    path = folder / "table.toml"
    path.write_text(
        f"""
        name = "table"
        seed = 1
        task = {{ classes = ["no", "yes"], inputs = {{ kind = "table", columns = {columns} }} }}
        private = {{ source = "{folder}/clinic.csv", label = "{label}" }}
        pool = {{ source = "{folder}/public.csv" }}
        partition = {{ kind = "column", column = "clinic" }}
        teachers = {{ kind = "random-forest", options = {{ trees = 5 }} }}
        votes = {{ mode = "clear" }}
        mechanism = {{ parameters = {{ sigma = 2.0 }} }}
        budget = {{ epsilon = 50.0 }}
        queries = {{ count = 4 }}
        student = {{ method = "supervised", options = {{ steps = 2 }} }}
        """
    )
    return path


ROWS = "age,sick,clinic\n30,no,a\n60,yes,a\n31,no,b\n62,yes,b\n"


def test_a_missing_label_column(refusal: Refusal, tmp_path: Path) -> None:
    status, line = refusal("launch", table_config(tmp_path, ROWS, label="ill"), "--run", tmp_path / "run")
    assert status == 3 and "no label column ill" in line and "age, sick, clinic" in line


def test_an_unknown_class_label(refusal: Refusal, tmp_path: Path) -> None:
    config = table_config(tmp_path, ROWS + "70,perhaps,b\n")
    status, line = refusal("launch", config, "--run", tmp_path / "run")
    assert status == 3 and "perhaps" in line and "no, yes" in line


def test_a_missing_partition_column(refusal: Refusal, tmp_path: Path) -> None:
    config = table_config(tmp_path, ROWS.replace("clinic", "ward"))
    status, line = refusal("launch", config, "--run", tmp_path / "run")
    assert status == 2 and "clinic" in line


def test_a_missing_data_file(refusal: Refusal, tmp_path: Path) -> None:
    config = table_config(tmp_path, ROWS)
    (tmp_path / "clinic.csv").unlink()
    status, line = refusal("launch", config, "--run", tmp_path / "run")
    assert status == 3 and "clinic.csv" in line


def test_a_named_set_without_its_file_says_which_option_to_give(refusal: Refusal, tmp_path: Path) -> None:
    config = write_config(tmp_path / "school.toml", pool={"source": "school", "start": 0, "stop": 100})
    status, line = refusal("launch", config, "--run", tmp_path / "run", "--data-root", tmp_path)
    assert status == 3 and "school" in line and "--data-root" in line, line


def test_a_run_folder_that_cannot_be_made(refusal: Refusal, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    config = write_config(tmp_path / "tiny.toml")
    status, line = refusal("launch", config, "--run", tmp_path / "file" / "run")
    assert status == 9 and f"{tmp_path}/file/run" in line and "choose another" in line


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run_in_process(tiny(votes={"mode": "clear"}, partition={"parties": 2}), folder / "run")
    write_config(folder / "tiny.toml", votes={"mode": "clear"}, partition={"parties": 2})
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A finished run and its configuration, to do harm to."""
    shutil.copytree(finished, tmp_path / "copied")
    return tmp_path / "copied"


@pytest.mark.parametrize("arguments", [["simulate", "tiny.toml", "--run", "run"], ["ledger", "verify", "run"]])
def test_a_ledger_with_flipped_bytes(
    arguments: list[str], refusal: Refusal, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copied)
    ledger = RunFolder(copied / "run").ledger
    data = bytearray(ledger.read_bytes())
    place = data.rindex(b"gnmax")
    data[place : place + 5] = b"lnmax"
    ledger.write_bytes(data)
    status, line = refusal(*arguments)
    assert status == 8 and line.startswith("LedgerCorrupt:"), line


def test_a_ledger_that_is_no_database(refusal: Refusal, copied: Path) -> None:
    RunFolder(copied / "run").ledger.write_bytes(b"nothing of the kind" * 100)
    status, line = refusal("simulate", copied / "tiny.toml", "--run", copied / "run")
    assert status == 8 and line.startswith("LedgerCorrupt:"), line


def test_a_pool_that_is_not_the_one_that_was_labelled(refusal: Refusal, copied: Path) -> None:
    """The file's content changed under the same name."""
    np.savez(copied / "pool.npz", x=np.zeros((100, 8, 8), dtype=np.uint8))
    record = copied / "run" / "run.json"
    run = json.loads(record.read_text())
    run["asked"]["pool"] = {
        **run["asked"]["pool"],
        "source": str(copied / "pool.npz"),
        "shuffle_seed": None,
        "start": 0,
        "stop": None,
    }
    record.write_text(json.dumps(run))
    config = write_config(
        copied / "tiny.toml", votes={"mode": "clear"}, partition={"parties": 2}, pool={"source": copied / "pool.npz"}
    )
    elsewhere = ', split = "all", shuffle_seed = 0, start = 1200, stop = 1300 }'
    config.write_text(config.read_text().replace(elsewhere, ', split = "all" }'))
    status, line = refusal("simulate", config, "--run", copied / "run")
    assert status == 2 and "pool" in line and "use a new folder" in line
    status, line = refusal("student", "fit", copied / "run")
    assert status == 3 and line.startswith("PoolMismatch:"), line


def test_a_folder_of_another_run(refusal: Refusal, copied: Path) -> None:
    status, line = refusal("simulate", copied / "tiny.toml", "--run", copied / "run", "--seed", "4")
    assert status == 2 and "seed" in line and "in another folder" in line


def test_a_running_run_is_not_run_twice(refusal: Refusal, copied: Path) -> None:
    with RunFolder(copied / "run").lock():
        status, line = refusal("simulate", copied / "tiny.toml", "--run", copied / "run")
    assert status == 9 and "another process" in line


def test_the_error_is_alone_on_standard_error_in_a_real_process_too(tmp_path: Path) -> None:
    config = write_config(tmp_path / "bad.toml", mechanism={"name": "magic"})
    done = command("launch", config, folder=tmp_path)
    assert done.status == 2 and done.err.count("\n") == 1 and "magic" in done.err


def test_a_reader_that_goes_away_is_no_error_to_show(finished: Path) -> None:
    process = start_collegium("ledger", "show", "run", folder=finished)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=COMMAND_S) in (0, 1)
    assert process.stderr.read() == ""
    process.stderr.close()


def test_a_party_that_dies_at_the_start_is_named_with_its_last_words(refusal: Refusal, copied: Path) -> None:
    """Its records were damaged after they were dealt."""
    (copied / "run" / "ledger.sqlite").unlink()
    (copied / "run" / "run.json").unlink()
    (copied / "run" / "parties" / "party-1" / "records.npz").write_bytes(b"no archive")
    status, line = refusal("launch", copied / "tiny.toml", "--run", copied / "run")
    assert status == 6 and "party-1" in line and "records.npz" in line


def test_a_class_that_one_party_never_saw_is_no_error(tmp_path: Path) -> None:
    rows = "age,sick,clinic\n" + "".join(f"{age},{'yes' if age > 50 else 'no'},a\n" for age in range(20, 80))
    config = table_config(tmp_path, rows + "".join(f"{age},no,b\n" for age in range(20, 50)))
    run = run_in_process(read_config(config, SimulationConfig), tmp_path / "run")
    assert run.labels.answered == 4
    assert {name: party.status for name, party in run.parties.items()} == {
        "party-0": "ready",
        "party-1": "ready",
    }
