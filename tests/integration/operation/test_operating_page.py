"""docs/tutorial.md and docs/operating.md as their reader follows them, with three clinics.

The coordinator is killed in between. Every command of the pages is run, as it stands there but for the codes, the
ports and the number of clinics.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from support.pages import ROOT, Reader, blocks_of, commands_of, text_of_page
from support.ports import free_ports
from support.processes import COMMAND_S, Finished, interrupt, kill, killed_at_the_end, output_of, read_until

from collegium.coordinator.run.run_folder import read_run
from collegium.coordinator.students.published import load_student
from collegium.privacy.ledger.ledger import Ledger

PAGES = ("tutorial.md", "using-the-student.md", "operating.md")
CLINICS = ("clinic-1", "clinic-2", "clinic-3")

PROVISION = "collegium provision consortium.toml"
SERVE = "collegium coordinator serve consortium.toml"
STATUS = "collegium coordinator status consortium.toml"
SHOW = "collegium party show clinic-1/party.toml"
CHECK = "collegium party check clinic-1/party.toml"
PARTY_SERVE = "collegium party serve clinic-1/party.toml"
FIVE = "clinic-1,clinic-2,clinic-3,clinic-4,clinic-5"
ENROL = (
    "collegium party enrol --coordinator localhost:7444 --name clinic-1 --code CODE --fingerprint SHA256 "
    "--folder clinic-1 --parties " + FIVE + " --data clinic-1.csv --label diagnosis "
    "--one-row-each"
)
RENEW = "collegium party enrol --coordinator localhost:7444 --name clinic-1 --fingerprint SHA256 --folder clinic-1"
ACCEPT = "collegium party accept-key clinic-1/party.toml clinic-2 SIGNING_KEY"
INIT = (
    "collegium init pool.csv --holdout holdout.csv --label diagnosis --parties clinic-1,clinic-2,clinic-3 "
    "--most-records 200 -o own.toml"
)
FOREST = "collegium student fit consortium/run --method random-forest --output forest.safetensors"
REPORT = "collegium report consortium/run"
VERIFY = "collegium ledger verify consortium/run --public-key consortium/coordinator/certificate.pem"


@dataclass(frozen=True)
class Story:
    reader: Reader
    labels_at_kill: dict[str, int]
    served: str
    serve_error: str
    parties: dict[str, tuple[int, str]]
    shown: str
    status: dict[str, Any]
    interrupted: Finished

    @property
    def run(self) -> Path:
        return self.reader.folder / "consortium" / "run"


def labels(folder: Path) -> dict[str, int]:
    with Ledger.read(folder / "consortium" / "ledger.sqlite") as ledger:
        return ledger.labels()


def set_up(reader: Reader) -> None:
    text = (ROOT / "examples" / "consortium.toml").read_text(encoding="utf-8")
    text = re.sub(r"^parties = .*$", f"parties = {json.dumps(CLINICS)}", text, flags=re.MULTILINE)
    for port, free in reader.words.items():
        text = text.replace(port, free)
    text = text.replace("per_party = 12", "per_party = 4") + "\n[evaluation]\nsigma = 8.0\n"
    text = text.replace("epsilon = 3.5", "epsilon = 4.0")  # 3.17 for 40 labels and 0.67 for the evaluation
    (reader.folder / "consortium.toml").write_text(text, encoding="utf-8")
    (reader.folder / "clinics.py").write_bytes((ROOT / "examples" / "clinics.py").read_bytes())
    reader.run("python clinics.py")


def words_of(line: str) -> dict[str, str]:
    """CODE and SHA256 in the line that the operator gives a party."""
    words = shlex.split(line)
    options = dict(zip(words[3::2], words[4::2], strict=True))
    return {"CODE": options["--code"], "SHA256": options["--fingerprint"]}


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("clinics")
    reader = Reader(folder, PAGES, dict(zip(("7443", "7444"), map(str, free_ports(2)), strict=True)))
    set_up(reader)
    assert "pays for 40 of 40 queries" in reader.run(f"{PROVISION} --check")
    lines = [line for line in reader.run(PROVISION).splitlines() if line.startswith("collegium party enrol")]
    given = {name: words_of(line) for name, line in zip(CLINICS, lines, strict=True)}
    with killed_at_the_end() as started:
        serving = reader.start(SERVE)
        started.append(serving)
        read_until(serving.stderr, "enrolment at")
        interrupted = interrupt(serving)
        serving = reader.start(SERVE)
        started.append(serving)
        read_until(serving.stderr, "enrolment at")
        parties = {}
        for enrolling in [
            reader.start(ENROL, instead={FIVE: "NAMES", "clinic-1": name, **given[name], "NAMES": ",".join(CLINICS)})
            for name in CLINICS
        ]:
            assert "write few_parties = true into policy.toml" in output_of(enrolling)
        for name in CLINICS:  # three institutions agree to exact sums of so few
            policy = folder / name / "policy.toml"
            policy.write_text(policy.read_text().replace("few_parties = false", "few_parties = true"))
        shown = reader.run(SHOW)
        assert "these records can be served" in reader.run(CHECK)
        for name in CLINICS:
            parties[name] = reader.start(PARTY_SERVE, instead={"clinic-1": name})
            started.append(parties[name])
        read_until(serving.stderr, "labels: 4 of 40")
        kill(serving)
        killed = labels(folder)
        serving = reader.start(SERVE)
        started.append(serving)
        out, err = serving.communicate(timeout=COMMAND_S)
        ended = {}
        for name, process in parties.items():
            _, log = process.communicate(timeout=COMMAND_S)
            ended[name] = (process.returncode, log)
        status = json.loads(reader.run(STATUS, instead={"consortium.toml": "consortium.toml --json"}))
        assert serving.returncode == 0, err
        yield Story(reader, killed, out, err, ended, shown, status, interrupted)


def test_an_interrupt_ends_the_coordinator_with_one_line(story: Story) -> None:
    assert story.interrupted.status == 130
    last = story.interrupted.err.strip().splitlines()[-1]
    assert last == "Interrupted. Nothing is lost: run the same command again, and it goes on."


def test_after_a_kill_the_same_labels_stand_and_nothing_is_paid_twice(story: Story) -> None:
    assert 4 <= len(story.labels_at_kill) < 40
    after = labels(story.reader.folder)
    assert len(after) == 40
    assert {query: after[query] for query in story.labels_at_kill} == story.labels_at_kill
    with Ledger.read(story.run.parent / "ledger.sqlite") as ledger:
        # A round that was charged and not released when the kill came is not charged again either.
        assert ledger.queries_charged() == 40 + 1  # the evaluation


def test_parties_came_back_by_themselves_and_ended_with_the_run(story: Story) -> None:
    for name, (status, log) in story.parties.items():
        assert status == 0, log
        assert log.count("connected to") == 2, (name, log)
        assert "ended: the run is finished" in log.splitlines()[-1]


def test_the_run_ends_in_a_student_and_a_report(story: Story) -> None:
    assert "finished: 40 labels of 40 queries" in story.served
    assert {"student.safetensors", "report.html", "labels.csv"} <= {path.name for path in story.run.iterdir()}


def test_status_says_who_takes_part_and_what_was_spent(story: Story) -> None:
    assert story.status["state"] == "finished" and story.status["served"] is False
    assert story.status["rounds"] >= 10
    for party in story.status["parties"].values():
        assert party["membership"] == "enrolled" and party["certificate_days_left"] >= 363
    privacy = story.status["privacy"]
    assert privacy["labels"] == 40
    assert privacy["epsilon_spent"] + privacy["epsilon_left"] == pytest.approx(4.0)


def test_show_says_what_the_party_would_answer(story: Story) -> None:
    # Enrolment wrote a policy that agrees to the announced way of summing alone.
    assert re.search(r"^takes part in sums\s+masked, masked\+noised$", story.shown, re.MULTILINE), story.shown
    assert re.search(r"^queries answered\s+0$", story.shown, re.MULTILINE), story.shown


def test_a_student_from_outside_learns_from_the_pool_and_labels_csv_alone(story: Story) -> None:
    """With a classifier of its own, and nothing of ours. How good forty labels are is up to their noise."""
    pool, holdout = (pd.read_csv(story.reader.folder / name) for name in ("pool.csv", "holdout.csv"))
    given = pd.read_csv(story.run / "labels.csv").dropna()
    columns = [name for name in pool if name in holdout and name != "diagnosis"]
    inputs, named = pool[columns].iloc[given["index"]], given["label"].astype(int).to_numpy()
    forest = RandomForestClassifier(bootstrap=False, random_state=0).fit(inputs, named)
    assert len(named) == 40 and (forest.predict(inputs) == named).all(), "each label belongs to another input"
    assert set(forest.predict(holdout[columns])) <= {0, 1}


def test_another_student_and_report_come_from_the_same_labels(story: Story) -> None:
    reader = story.reader
    assert re.search(r"^labels\s+40$", reader.run(FOREST), re.MULTILINE)
    assert (reader.folder / "forest.safetensors").exists()
    reader.run(REPORT)


def test_the_clinics_measured_the_student_and_each_is_shown_its_own_figure_alone(story: Story) -> None:
    found = read_run(story.run).evaluation
    assert found is not None and found.sum_mode == "masked+noised" and found.measures is not None, found
    figures = found.measures
    student, own = load_student(story.run / "student.safetensors"), pd.read_csv(story.reader.folder / "clinic-1.csv")
    right = (student.predict(own) == own["diagnosis"].to_numpy()).mean()
    shown = story.reader.run(SHOW)
    assert re.search(rf"^student right here\s+{round(right, 4)}$", shown, re.MULTILINE), shown
    assert figures.accuracy is not None
    assert re.search(rf"^student right overall\s+{round(figures.accuracy.value, 4)}$", shown, re.MULTILINE), shown
    low, high = round(figures.accuracy.low, 4), round(figures.accuracy.high, 4)
    assert re.search(rf"^student right overall interval\s+{low} to {high} \(95 %\)$", shown, re.MULTILINE), shown


def test_the_student_predicts_new_records_in_a_file_from_python_and_as_onnx(story: Story) -> None:
    reader = story.reader
    predict, unknown, calibrate, drift, export, evaluate = commands_of(text_of_page("using-the-student.md"))
    assert "predictions in predictions.csv: " in reader.run(predict)
    rows = pd.read_csv(reader.folder / "predictions.csv")
    of_classes = ["probability_malignant", "probability_benign"]
    assert list(rows)[:5] == ["diagnosis", "prediction", *of_classes, "clipped"]
    new = pd.read_csv(reader.folder / "holdout.csv")
    assert rows["prediction"].tolist() == load_student(story.run / "student.safetensors").predict(new).tolist()
    assert reader.run(unknown).count("\n") == len(rows) + 1
    assert "malignant is named from a probability of" in reader.run(calibrate)
    ill = new[new["diagnosis"] == "malignant"]
    assert (load_student(reader.folder / "own.safetensors").predict(ill) == "malignant").mean() >= 0.95
    assert f"{len(rows)} inputs " in reader.run(drift)
    assert re.search(r"probabilities on 100 inputs of pool.csv", reader.run(export))
    assert f"of {len(rows)} inputs" in reader.run(evaluate)
    source = "\n".join(blocks_of(text_of_page("using-the-student.md"), "python"))
    ran = subprocess.run(
        [sys.executable, "-c", source], cwd=reader.folder, capture_output=True, text=True, timeout=COMMAND_S, check=True
    )
    by_student, by_onnx = ran.stdout.splitlines()
    assert by_student.split()[0] == by_onnx.split()[0] == rows["prediction"][0]
    card = (story.run / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "Always answering “" in card and re.search(r"\| one person \| \d", card)


def test_the_columns_of_the_example_are_what_init_writes_from_the_pool(story: Story) -> None:
    story.reader.run(INIT)
    written = tomllib.loads((story.reader.folder / "own.toml").read_text())
    example = tomllib.loads((ROOT / "examples" / "consortium.toml").read_text())
    assert written["task"]["inputs"] == example["task"]["inputs"]
    assert set(written["task"]["classes"]) == set(example["task"]["classes"])


def test_the_rest_of_the_page_works_as_well(story: Story) -> None:
    reader = story.reader
    assert "signed throughout by the given key" in reader.run(VERIFY)
    assert "clinic-1" in reader.run(STATUS)
    reader.run("collegium statement consortium/run")
    fingerprint = re.search(r"^fingerprint\s+(\w{64})$", reader.run(PROVISION), re.MULTILINE)
    assert fingerprint is not None
    assert "--name clinic-6 --code" in reader.run(f"{PROVISION} --add clinic-6")
    assert "--name clinic-6 --code" in reader.run(f"{PROVISION} --renew-code clinic-6")
    assert "clinic-3" not in reader.run(f"{PROVISION} --revoke clinic-5", instead={"clinic-5": "clinic-3"})
    reader.run("collegium study new consortium.toml second")
    file = reader.folder / "consortium" / "studies" / "second" / "study.toml"
    file.write_text(file.read_text().replace("epsilon = 4.0", "epsilon = 5.0"))  # the first one has spent all
    assert re.search(r"pays for \d+ of 40 queries", reader.run(f"{PROVISION} --check --study second"))
    assert "second" in reader.run("collegium study list consortium.toml")
    with killed_at_the_end() as started:
        second = reader.start(f"{SERVE} --study second")
        started.append(second)
        read_until(second.stderr, "enrolment at")
        # Who is enrolled renews while the second study waits for its parties.
        assert "clinic-1 is enrolled until" in reader.run(RENEW, instead={"SHA256": fingerprint[1]})
        assert interrupt(second).status == 130
    accepted = reader.run(ACCEPT, instead={"SIGNING_KEY": "ab" * 32})
    assert accepted.startswith(f"clinic-2 is known by {'ab' * 32}, in place of ")
    assert reader.typed == set(reader.commands), set(reader.commands) - reader.typed
