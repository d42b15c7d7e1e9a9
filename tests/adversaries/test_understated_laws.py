"""An operator whose software states less in the ledger than its mechanism costs, in an entry that is whole and signed.

Everybody computes each charge again from mechanism, parameters and unit. Where these are understated as well, the
parties' signatures show what they were asked for.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.clinics import VOTED, Clinics
from support.typist import told

from collegium.coordinator import statement
from collegium.coordinator.asking import Asking
from collegium.errors import LedgerCorrupt, QuorumNotReached
from collegium.parties.answer_book import FILE
from collegium.privacy.analysis import ledger_report
from collegium.privacy.ledger import chain, verification
from collegium.privacy.ledger.chain import Head, sign
from collegium.privacy.ledger.entry import Block
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.steps import Step
from collegium.privacy.ledger.witness import Witness, check_witness
from collegium_accounting.game.laws import Law, VectorLaw

pytestmark = pytest.mark.slow

Change = Callable[[dict[str, Any]], None]


def tenth(law: Law) -> Law:
    assert isinstance(law, VectorLaw)
    return replace(law, mu=law.mu / 10.0)


def rewritten(ledger: Path, clinics: Clinics, change: Change) -> None:
    """Every block changed, with a correct chain of hashes and the operator's signatures; no party signed it."""
    with closing(sqlite3.connect(ledger)) as database:
        rows = database.execute("SELECT seq, body FROM entries ORDER BY seq").fetchall()
        reached: Head | None = None
        for seq, body in rows:
            line = json.loads(body)
            for block in line.get("blocks", {}).values():
                change(block)
            text = json.dumps(line, sort_keys=True, separators=(",", ":")).encode()
            row = sign(reached, text, clinics.operator)
            reached = Head(row.seq, row.hash)
            changed = (row.body, row.hash, row.signature, seq)
            database.execute("UPDATE entries SET body = ?, hash = ?, signature = ? WHERE seq = ?", changed)
        database.execute("DELETE FROM checkpoint")
        database.execute("DELETE FROM witnesses")
        database.commit()


def less_noise_than_stated(block: dict[str, Any]) -> None:
    for law in block["laws"].values():
        law["mu"] = (float.fromhex(law["mu"]) / 10.0).hex()


def another_mechanism(block: dict[str, Any]) -> None:
    less_noise_than_stated(block)
    block["step"]["mechanism"] = "made-up"


def nothing_to_compare(block: dict[str, Any]) -> None:
    less_noise_than_stated(block)
    block["step"] = None


def fewer_votes(block: dict[str, Any]) -> None:
    step = Step.read(block["step"])
    votes = {unit: (max(1, count // 2), "add-remove") for unit, (count, _) in step.units.items()}
    honest = replace(step, units=votes)
    laws = {unit: law for unit, law in honest.laws.items() if isinstance(law, VectorLaw)}
    block["laws"] = {n: {"kind": "vector", "mu": law.mu.hex(), "slack": law.slack.hex()} for n, law in laws.items()}
    block["step"]["units"] = votes


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Clinics:
    clinics = Clinics(tmp_path_factory.mktemp("honest"))
    clinics.ask(VOTED, 4, mode="masked+noised")
    return clinics


def test_what_parties_agreed_to_is_what_an_honest_ledger_charges(
    finished: Clinics, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = told(capsys, "ledger", "verify", str(finished.folder))
    assert code == 0 and "followed, as they signed, by c-0 to entry" in said and "also agreed" not in said
    with Ledger.read(finished.folder / "ledger.sqlite") as ledger:
        agreed = [json.loads(witness.agreed) for witness in ledger.witnesses().values()]
    assert [one["answers"] for (one,) in agreed] == [4] * 5
    assert {one["mechanism"] for (one,) in agreed} == {"gnmax"}


def test_a_partys_own_ledger_is_verified_in_the_same_way(finished: Clinics, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = told(capsys, "ledger", "verify", str(finished.folder / "c-0" / FILE), "--chain", "party")
    assert code == 0 and "4 answers in 1 charges" in said


@pytest.mark.parametrize("change", [less_noise_than_stated, another_mechanism, nothing_to_compare, fewer_votes])
def test_an_entry_that_states_less_than_its_mechanism_costs_is_refused_by_verify_and_by_the_report(
    finished: Clinics, tmp_path: Path, change: Change, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(finished.folder / "ledger.sqlite")) as source, closing(sqlite3.connect(ledger)) as to:
        source.backup(to)
    (tmp_path / "run.json").write_bytes((finished.folder / "first" / "run.json").read_bytes())
    assert told(capsys, "report", str(tmp_path))[0] == 0
    rewritten(ledger, finished, change)
    for command in (["ledger", "verify"], ["report"]):
        code, said = told(capsys, *command, str(tmp_path))
        assert code == 8 and said.count("\n") == 1
        assert any(words in said for words in ("states less for", "cannot be computed", "and not the mechanism"))


def test_the_second_program_computes_each_charge_from_the_mechanism_too(
    finished: Clinics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(finished.folder / "ledger.sqlite")) as source, closing(sqlite3.connect(ledger)) as to:
        source.backup(to)
    rewritten(ledger, finished, less_noise_than_stated)
    for module in (chain, verification, ledger_report):
        monkeypatch.setattr(module, "check_terms", lambda *_, **__: None)
    code, said = told(capsys, "ledger", "verify", str(tmp_path))
    assert code == 8 and "report this" in said


def test_parties_open_no_sum_under_a_ledger_that_states_less_than_its_mechanism_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = statement.law_of
    with monkeypatch.context() as planted:
        for module in (chain, ledger_report):  # its own software does not check what it states
            planted.setattr(module, "check_terms", lambda *_, **__: None)
        planted.setattr(statement, "law_of", lambda *given: tenth(honest(*given)))
        with pytest.raises(QuorumNotReached) as refused:
            Clinics(tmp_path).ask(VOTED, 4, mode="masked+noised")
    assert {said.partition(":")[0] for said in refused.value.outcomes.values()} == {"refused-ledger"}
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as database:
        entries = [json.loads(body)["kind"] for (body,) in database.execute("SELECT body FROM entries")]
    assert "release" not in entries


def test_an_operator_that_understates_the_mechanism_too_is_shown_by_what_the_parties_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law and parameters agree with each other in every entry, so that the ledger alone shows nothing."""
    honest = statement.law_of

    def step_of(mechanism: Any, *given: Any) -> Step:
        return Step.of(replace(mechanism, sigma=10.0 * mechanism.sigma), *given)

    def law_of(stage: Any, *given: Any) -> Law:
        return honest(replace(stage, sigma=10.0 * stage.sigma), *given)

    with monkeypatch.context() as planted:
        planted.setattr(statement, "Step", SimpleNamespace(of=step_of))
        planted.setattr(statement, "law_of", law_of)
        Clinics(tmp_path).ask(VOTED, 4, mode="masked+noised")
    code, said = told(capsys, "ledger", "verify", str(tmp_path))
    assert code == 8 and "signed that it agreed to 4 answers for gnmax" in said


@pytest.mark.parametrize("change", ["fewer charged", "two classes", "fewer teachers", "less noise"])
def test_charges_that_do_not_cover_what_a_party_agreed_to_are_found(finished: Clinics, change: str) -> None:
    with Ledger.read(finished.folder / "ledger.sqlite") as ledger:
        charged, witness, identity = ledger.charged(), ledger.witnesses()["c-0"], ledger.identity()
    assert check_witness("c-0", witness, charged, identity) == []
    assert check_witness("c-0", witness, [], bytes(32)) == [identity.hex()[:32]]

    def less(block: Block) -> Block:
        step = block.step
        assert step is not None
        match change:
            case "two classes":
                step = replace(step, classes=2)
            case "fewer teachers":
                step = replace(step, units={"party": (0, "replace")})
            case "less noise":
                step = replace(step, parameters=step.parameters | {"sigma": 3.1})
        return replace(block, step=step)

    ((terms, rounds),) = charged
    terms = replace(terms, blocks={name: less(block) for name, block in terms.blocks.items()})
    fewer = {name: n - (change == "fewer charged") for name, n in rounds.items()}
    with pytest.raises(LedgerCorrupt, match="one of them lies"):
        check_witness("c-0", witness, [(terms, fewer)], identity)


def test_one_charge_pays_for_one_sum_however_many_honest_parties_that_counts_on(finished: Clinics) -> None:
    with Ledger.read(finished.folder / "ledger.sqlite") as ledger:
        charged, witness, identity = ledger.charged(), ledger.witnesses()["c-0"], ledger.identity()
    (said,) = json.loads(witness.agreed)
    assert said["honest_survivors"] > 1 and said["answers"] == 4

    def signed(*answers: int) -> Witness:
        lines = [said | {"honest_survivors": honest, "answers": n} for honest, n in enumerate(answers, start=1)]
        return witness._replace(agreed=json.dumps(lines))

    assert check_witness("c-0", signed(3, 1), charged, identity) == []
    with pytest.raises(LedgerCorrupt, match="one of them lies"):
        check_witness("c-0", signed(3, 2), charged, identity)


def test_a_second_draw_under_one_charge_is_shown_by_what_the_parties_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its program writes no release before it opens a sum, and asks once more after it saw the first one's counts."""
    clinics, seen, total = Clinics(tmp_path), list[Any](), Asking.total

    def sees_and_asks_again(asking: Asking, *asked: Any) -> Any:
        seen.append(total(asking, *asked))
        if len(seen) == 1:
            for file in asking.journal.folder.glob("open-sum-*"):
                file.unlink()
            raise KeyboardInterrupt
        return seen[-1]

    monkeypatch.setattr(Asking, "total", sees_and_asks_again)
    monkeypatch.setattr(Asking, "_spend_on", lambda asking, sum_, charge, labels: asking.follow(sum_.parties))
    with pytest.raises(KeyboardInterrupt):
        clinics.ask(VOTED, 4, mode="masked+noised")
    clinics.ask(VOTED, 4, mode="masked+noised")
    drawn = [result.groups[0][0] for result in seen]
    assert len(drawn) == 2 and drawn[0].shape == drawn[1].shape and (drawn[0] != drawn[1]).any()
    code, said = told(capsys, "ledger", "verify", str(clinics.folder))
    assert code == 8 and "signed that it agreed to 8 answers" in said and "the ledger charges 4" in said
