"""The statement that a board files is true of the ledger, and refused once anything of it is changed."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.clinics import NAMES, VOTED, Clinics, signed_clinics
from support.typist import told

from collegium.coordinator.report import statement
from collegium.coordinator.report.page import render as render_report
from collegium.coordinator.report.statement import _digest, check_statement, render, spent_of, statement_of
from collegium.coordinator.run.run_folder import read_run
from collegium.errors import IdentityError, LedgerCorrupt
from collegium.protocol.certificates import Authority
from collegium.protocol.identities import issue_kit
from collegium_accounting.terminal import epsilon_text

Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def filed(clinics: Clinics) -> dict[str, Any]:
    return statement_of(clinics.folder / "first", "2026-11-24T05:00:00+00:00")


@pytest.mark.slow
def test_one_figure_stands_in_statement_report_verify_and_what_a_party_shows(
    clinics: Clinics, filed: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = clinics.folder / "first"
    (promise,) = [one for one in filed["facts"]["ledger"]["promises"] if one["unit"] == "record"]
    figure = epsilon_text(promise["epsilon"])
    assert f'<strong class="figure">{figure}</strong>' in render(filed)
    assert f"ε = {figure}." in render_report(read_run(run))
    assert f"ε = {figure} for one record (replace)" in told(capsys, "ledger", "verify", str(run))[1]
    assert re.search(rf" {re.escape(figure)} ", told(capsys, "ledger", "show", str(run))[1])


def test_a_figure_is_never_printed_smaller_than_it_is() -> None:
    assert [epsilon_text(one) for one in (0.99998, 0.7, 0.1, 0.68413762, 12.3411, 0.0, float("inf"))] == [
        "1", "0.7", "0.1", "0.6842", "12.35", "0", "∞",
    ]  # fmt: skip


def test_page_and_json_are_written_and_verified_by_one_command(
    clinics: Clinics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, page, values = clinics.folder / "first", tmp_path / "statement.html", tmp_path / "statement.json"
    assert told(capsys, "statement", str(run), "--output", str(page)) == (0, f"{page}\n")
    code, said = told(capsys, "statement", str(run), "--json")
    values.write_text(said)
    certificate = str(clinics.folder / "coordinator" / "certificate.pem")
    for file in (page, values):
        code, said = told(capsys, "statement", str(run), "--verify", str(file), "--public-key", certificate)
        assert code == 0 and "signed by the given key" in said
        code, said = told(capsys, "statement", str(run), "--verify", str(file), "--json")
        assert code == 0 and json.loads(said)["facts"]["ledger"] == spent_of(clinics.folder / "ledger.sqlite")
    copy = tmp_path / "copy"  # an auditor holds the ledger alone
    copy.mkdir()
    shutil.copy(clinics.folder / "ledger.sqlite", copy)
    assert told(capsys, "statement", str(copy), "--verify", str(page))[0] == 0


def test_a_record_for_the_registry_is_printed_or_written(
    clinics: Clinics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = str(clinics.folder / "first"), tmp_path / "record.yaml"
    code, said = told(capsys, "statement", run, "--format", "registry")
    assert code == 0 and "epsilon" in said
    assert told(capsys, "statement", run, "--format", "registry", "--output", str(file)) == (0, "")
    assert [line for line in file.read_text().splitlines() if "epsilon" in line] == [
        line for line in said.splitlines() if "epsilon" in line
    ]


def test_it_says_what_was_asked_of_whom_and_who_is_trusted(clinics: Clinics, filed: dict[str, Any]) -> None:
    facts = filed["facts"]
    (charge,) = facts["ledger"]["charged"]
    assert (charge["rounds"], charge["mechanism"]) == (4, "gnmax") and facts["ledger"]["labels"] == 4
    assert [party["name"] for party in facts["recorded"]["parties"]] == NAMES
    keys = {name: key.hex() for name, key in clinics.roster.items()}
    assert {party["name"]: party["signing_key"] for party in facts["recorded"]["parties"]} == keys
    assert "Every institution adds its share" in facts["words"]["who_adds_the_noise"]
    honest = facts["ledger"]["honest_survivors"]
    assert f"ε counts the noise of {honest} of 5 institutions" in facts["words"]["who_could_collude"]
    assert all(digest for digest in facts["recorded"]["certificates"].values())


def test_a_changed_configuration_changes_nothing_of_what_the_ledger_says(clinics: Clinics, tmp_path: Path) -> None:
    for name in ("ledger.sqlite", "first/run.json"):
        shutil.copy(clinics.folder / name, tmp_path)
    before = spent_of(clinics.folder / "ledger.sqlite")
    shutil.copytree(clinics.folder / "coordinator", tmp_path / "coordinator")
    text = (tmp_path / "run.json").read_text()
    (tmp_path / "run.json").write_text(text.replace('"epsilon": 60.0', '"epsilon": 0.01').replace("3.0", "300.0"))
    assert statement_of(tmp_path, "now")["facts"]["ledger"] == json.loads(json.dumps(before))


def lower_epsilon(made: dict[str, Any]) -> None:
    for one in made["facts"]["ledger"]["promises"]:
        one["epsilon"] /= 2.0


def no_promise(made: dict[str, Any]) -> None:
    made["facts"]["ledger"]["promises"].pop()


def another_unit(made: dict[str, Any]) -> None:
    made["facts"]["ledger"]["promises"][0]["unit"] = "party"


def fewer_charges(made: dict[str, Any]) -> None:
    made["facts"]["ledger"]["charged"][0]["rounds"] = 1


def later_date(made: dict[str, Any]) -> None:
    made["facts"]["ledger"]["since_utc"] = "2030-01-01T00:00:00+00:00"


def more_noise(made: dict[str, Any]) -> None:
    made["facts"]["ledger"]["charged"][0]["parameters"]["sigma"] = 300.0


def kinder_words(made: dict[str, Any]) -> None:
    made["facts"]["words"]["not_protected"] = ["Nothing."]


def another_head(made: dict[str, Any]) -> None:
    made["facts"]["ledger"]["head"] = "3:" + "00" * 32


CHANGES = [
    lower_epsilon,
    no_promise,
    another_unit,
    fewer_charges,
    later_date,
    more_noise,
    kinder_words,
    another_head,
]


@pytest.mark.parametrize("resigned", [False, True], ids=["forged", "signed by a lying operator"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_statement_that_says_other_than_the_ledger_is_refused_even_where_it_is_signed(
    clinics: Clinics, filed: dict[str, Any], tmp_path: Path, change: Change, resigned: bool
) -> None:
    made = json.loads(json.dumps(filed))
    change(made)
    if resigned:
        made["signature"] = clinics.operator.sign(_digest(made["facts"])).hex()
    for name, text in (("s.json", json.dumps(made)), ("s.html", render(made))):
        (tmp_path / name).write_text(text)
        with pytest.raises(LedgerCorrupt):
            check_statement(clinics.folder / "first", tmp_path / name)


def test_text_that_a_reader_sees_cannot_be_changed_beside_what_was_signed(
    clinics: Clinics, filed: dict[str, Any], tmp_path: Path
) -> None:
    page, file = render(filed), tmp_path / "statement.html"
    seen = page.replace('<strong class="figure">', '<strong class="figure">0.')
    assert seen != page
    for changed in (seen, page.replace("What is not protected", "What is protected"), page + "<p>approved</p>"):
        file.write_text(changed)
        with pytest.raises(LedgerCorrupt, match="words of the statement were changed"):
            check_statement(clinics.folder / "first", file)


def test_what_the_operator_recorded_is_under_the_signature_too(
    clinics: Clinics, filed: dict[str, Any], tmp_path: Path
) -> None:
    made = json.loads(json.dumps(filed))
    made["facts"]["recorded"]["pool"]["sha256"] = "00" * 32
    (tmp_path / "s.json").write_text(json.dumps(made))
    with pytest.raises(LedgerCorrupt, match="changed or forged"):
        check_statement(clinics.folder / "first", tmp_path / "s.json")


@pytest.mark.slow
def test_a_filed_statement_stays_true_when_the_ledger_goes_on(tmp_path: Path) -> None:
    clinics, file = signed_clinics(tmp_path), tmp_path / "filed.json"
    clinics.ask(VOTED, 4, mode="masked+noised")
    file.write_text(json.dumps(statement_of(tmp_path / "first", "then")))
    before = check_statement(tmp_path / "first", file)
    clinics.ask(VOTED, 8, study="second", mode="masked+noised")
    assert check_statement(tmp_path / "first", file) == before
    after = statement_of(tmp_path / "second", "now")["facts"]["ledger"]["promises"]
    assert after[0]["epsilon"] > before["facts"]["ledger"]["promises"][0]["epsilon"]


def test_nobody_else_can_sign_a_statement(clinics: Clinics, tmp_path: Path) -> None:
    for name in ("ledger.sqlite", "first/run.json"):
        shutil.copy(clinics.folder / name, tmp_path)
    with pytest.raises(IdentityError):
        statement_of(tmp_path, "now")
    issue_kit(Authority.create("clinics"), tmp_path / "coordinator", "coordinator", "coordinator")
    with pytest.raises(IdentityError, match="is not the one that signs"):
        statement_of(tmp_path, "now")


def test_what_is_no_statement_is_one_clear_line(
    clinics: Clinics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("", "[]", "{}", '{"facts": 3}', '<pre id="signed">x</pre>', '{"facts": {"format": 2}}'):
        (tmp_path / "x").write_text(text)
        code, said = told(capsys, "statement", str(clinics.folder / "first"), "--verify", str(tmp_path / "x"))
        assert code == 9 and said.count("\n") == 1 and "holds no statement" in said


def test_hostile_names_neither_break_the_page_nor_what_is_read_back(filed: dict[str, Any]) -> None:
    made = json.loads(json.dumps(filed))
    made["facts"]["recorded"]["classes"] = ['</pre><script>alert("1")</script>', "&lt;"]
    page = render(made)
    assert "<script" not in page
    (signed,) = statement._SIGNED.findall(page)
    assert json.loads(html.unescape(signed)) == made
