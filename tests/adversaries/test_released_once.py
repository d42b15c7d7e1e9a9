"""Counts of records and class sums are released once a charge, whatever is done to the files beside the ledger."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.utils import shuffle
from support.coordinators import dies

import collegium as cg
from collegium.coordinator.rounds.masked_sum import MaskedTotal
from collegium.coordinator.rounds.readiness import FOLLOW_ATTEMPTS
from collegium.coordinator.run import coordinator as run
from collegium.coordinator.run.open_run import OpenRun
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.errors import QuorumNotReached
from collegium.models.noisy_sums import NoisySums
from collegium.parties.answer_book import FILE, AnswerBook
from collegium.privacy.ledger.entry import Charge
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.protocol.replies import Failure
from collegium.protocol.requests import ShowLedger
from collegium.settings import validate_config
from collegium_accounting.game.laws import Law, VectorLaw

X, Y = shuffle(*load_wine(return_X_y=True), random_state=0)
NAMES = [f"c-{n}" for n in range(5)]
POLICY = cg.PolicyConfig(
    minimum_noise_votes=1,
    minimum_noise_sums=0.05,
    queries=1000,
    record_epsilon=90.0,
    sum_modes=("clear", "masked", "masked+noised"),
)


def institutions(classes: int = 3, folder: Path | None = None) -> cg.LocalParties:
    task, labels = cg.Task.from_array(X[:40], classes=list("abc"[:classes])), np.minimum(Y, classes - 1)
    records = {name: (X[40 + n :: 5], labels[40 + n :: 5]) for n, name in enumerate(NAMES)}
    return cg.LocalParties(records, task, policy=POLICY, folder=folder)


@pytest.fixture
def parties() -> cg.LocalParties:
    return institutions()


def driven(folder: Path, parties: cg.LocalParties, absent: int = 0, **changes: Any) -> run.CoordinatorRun:
    values = {
        "name": "local",
        "task": parties.task,
        "pool": {"source": "wine"},
        "mechanism": {"name": "gnmax", "parameters": {"sigma": 3.0}},
        "budget": {"epsilon": 30.0},
        "queries": {"count": 20},
        "student": {"method": "random-forest", "options": {"trees": 5}},
        "teachers": {"kind": "random-forest", "options": {"trees": 5}},
        "votes": {"mode": "masked", "quorum": 0.9},
    }
    away = {f"away-{n}": b"\1" * 32 for n in range(absent)}
    reach = run.Reach(parties, roster=[*NAMES, *away], signing_keys=parties.signing_keys | away)
    public = PublicData(Examples(cg.encode(X[:40], parties.task)))
    if "mechanism" in changes:
        del values["teachers"]
    config = validate_config(values | changes, RunConfig, "test")
    return run.CoordinatorRun(config, reach, run.Storage(folder), public=public)


def charged(folder: Path, prefix: str, file: str = "ledger.sqlite", chain: str = "", of: str = "") -> list[Law]:
    """The laws of the charges whose purpose begins so, and names the mechanism ``of``, in order."""
    with Ledger.read(folder / file, chain=chain) as ledger:
        entries = [entry for entry in ledger.entries() if isinstance(entry.content, Charge)]
    verify(folder / file, chain=chain)
    purposes = [(entry.content.purpose, entry.terms) for entry in entries]  # type: ignore[union-attr]
    paid = [terms.blocks[purpose].laws for purpose, terms in purposes if purpose.startswith(prefix) and of in purpose]
    return [laws["record"] for laws in paid if laws]


def put_back(folder: Path) -> None:
    shutil.copy(folder / "older.json", folder / "run.json")


def forge(folder: Path) -> None:
    """As it is now, but for what it says was paid and asked: with noise that nobody paid for."""
    record = json.loads((folder / "run.json").read_text())
    record["evaluation"] |= {"paid": True, "asked": False, "fitted_from": "", "measures": None, "sigma": 2.5}
    record["pool_check"] |= {"paid": True, "asked": False, "found": None, "sigma": 1.5}
    (folder / "run.json").write_text(json.dumps(record))


@pytest.mark.slow
@pytest.mark.parametrize("change", [put_back, forge])
def test_an_older_or_edited_run_json_releases_no_counts_that_were_not_paid(
    parties: cg.LocalParties, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Four evaluations were released under one charge. What was released is found again, and asked of nobody."""
    mode = "masked+noised"
    counts: dict[str, Any] = {"evaluation": {"share": 0.1, "mode": mode}, "pool_check": {"share": 0.1, "mode": mode}}
    with pytest.raises(QuorumNotReached):  # paid, and not asked yet
        driven(tmp_path, parties, absent=4, **counts).label()
    shutil.copy(tmp_path / "run.json", tmp_path / "older.json")
    for number in (1, 2):
        record = driven(tmp_path, parties, **counts).run()
        for part, found in ((record.evaluation, "measures"), (record.pool_check, "found")):
            assert part is not None and part.why_not is None and getattr(part, found) is not None
            laws = charged(tmp_path, "evaluation" if found == "measures" else "pool_check")
            last = laws[-1]
            assert len(laws) == (1 if change is put_back else number) and isinstance(last, VectorLaw)
            assert last.mu * part.sigma == pytest.approx(np.sqrt(2.0 * part.parts), rel=1e-3), (
                "the law of what was released"
            )
        change(tmp_path)


@pytest.mark.slow
def test_an_evaluation_that_was_paid_for_two_classes_is_paid_anew_for_three(
    parties: cg.LocalParties, tmp_path: Path
) -> None:
    """Three parts move √3 times as far as one: 3.7 were released and 2.0 charged."""
    told: dict[str, Any] = {"evaluation": {"sigma": 2.0, "mode": "clear"}}
    with pytest.raises(QuorumNotReached):
        driven(tmp_path, institutions(2), absent=4, **told).run()
    (two,) = charged(tmp_path, "evaluation")
    record = driven(tmp_path, parties, **told).run()
    assert record.evaluation is not None and record.evaluation.measures is not None and record.evaluation.sigma == 2.0
    first, then = charged(tmp_path, "evaluation")
    assert isinstance(two, VectorLaw) and isinstance(then, VectorLaw)
    assert first == two and then.mu == pytest.approx(np.sqrt(3.0) * two.mu)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("died_at", "found_then"),
    [("kinds.pool_check.CountCoverage", True), ("noise.noise_on_entries", False), ("kinds.pool_check.pool_fit", True)],
)
def test_a_pool_check_whose_process_died_is_made_with_the_charge_that_is_left(
    parties: cg.LocalParties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died_at: str, found_then: bool
) -> None:
    """It was paid and never made. Where counts may have been seen, and were not kept, it is not made again."""

    told: dict[str, Any] = {"pool_check": {"share": 0.1, "mode": "clear"}}
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(f"collegium.coordinator.{died_at}", dies)
        driven(tmp_path, parties, **told).label()
    found = driven(tmp_path, parties, **told).label().pool_check
    assert found is not None and (found.found is not None) == found_then
    assert len(charged(tmp_path, "pool_check")) == 1


@pytest.mark.slow
def test_class_sums_whose_file_was_removed_are_paid_again(
    parties: cg.LocalParties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removed after they were drawn and before a label was: they were drawn again for nothing."""
    mode = "masked+noised"

    told: dict[str, Any] = {"mechanism": {"name": "class-sums", "parameters": {"sigma": 3.0}}, "votes": {"mode": mode}}
    for number in (1, 2):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(NoisySums, "_fit", dies)
            driven(tmp_path, parties, **told).label()
        assert len(charged(tmp_path, "")) == number
        next(tmp_path.glob("released-*")).unlink()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["clear", "masked+noised"])
@pytest.mark.parametrize("part", ["evaluation", "class sums"])
def test_what_is_released_and_paid_anew_is_charged_at_each_institution_or_refused_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, part: str
) -> None:
    """It was the same answer to them and free: one charge of theirs stood for every release that had fresh noise.

    Where they add the noise themselves, each answer is charged; else there is one.
    """
    noised = mode == "masked+noised"
    parties = institutions(folder=tmp_path / "parties")

    def evaluated() -> bool:
        told: dict[str, Any] = {"evaluation": {"share": 0.1, "mode": mode}}
        if not (tmp_path / "older.json").exists():
            driven(tmp_path, parties, **told).label()
            shutil.copy(tmp_path / "run.json", tmp_path / "older.json")
        put_back(tmp_path)
        for kept in tmp_path.glob("released-*"):
            kept.unlink()
        found = driven(tmp_path, parties, **told).run().evaluation
        assert found is not None and (found.measures is not None or "refused-queries" in str(found.why_not))
        return found.measures is not None

    def summed() -> bool:
        how = {"mechanism": {"name": "class-sums", "parameters": {"sigma": 3.0}}, "votes": {"mode": mode}}
        with monkeypatch.context() as patched, pytest.raises((KeyboardInterrupt, QuorumNotReached)) as ended:
            patched.setattr(NoisySums, "_fit", dies)
            driven(tmp_path, parties, **how).label()
        for kept in tmp_path.glob("released-*"):
            kept.unlink()
        return ended.type is KeyboardInterrupt

    released = evaluated if part == "evaluation" else summed
    own = tmp_path / "parties" / NAMES[0]
    for number in (1, 2, 3):
        assert released() == (noised or number == 1)
        laws = charged(own, "", FILE, "record", "of record-counts" if part == "evaluation" else "of class-sums")
        assert len(laws) == (number if noised else 1) and len(set(laws)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "mode"),
    [(part, mode) for part in ("evaluation", "class sums") for mode in ("clear", "masked+noised")]
    + [("labels", "masked+noised")],
)
def test_a_ledger_put_back_to_before_a_release_is_noticed_by_every_party(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, part: str
) -> None:
    """It held the charge, not spent: fresh noise was drawn under it each time that the files were put back.

    The process ends as soon as there are noisy numbers, so that whatever the parties were shown came before them.
    """

    parties, own, kept = institutions(folder=tmp_path / "parties"), tmp_path / "own", tmp_path / "kept"
    for name, party in parties._parties.items():
        party._ledger._book = AnswerBook(tmp_path / "heads" / name, name, POLICY, None)
    told: dict[str, Any] = {"evaluation": {"share": 0.1, "mode": mode}}
    last = "collegium.coordinator.kinds.evaluation.ask_each"
    if part != "evaluation":
        told = {"votes": {"mode": mode}}
        last = "collegium.coordinator.kinds.labels.Labels._keep"
        if part == "class sums":
            told["mechanism"] = {"name": "class-sums", "parameters": {"sigma": 3.0}}
            last = "collegium.coordinator.kinds.class_sums.NoisySums"
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr("collegium.coordinator.asking.Asking.total", dies)
            driven(own, parties, **told).label()
    else:
        driven(own, parties, **told).label()
    shutil.copytree(own, kept)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(last, dies)
        driven(own, parties, **told).run()
    shutil.rmtree(own)
    shutil.copytree(kept, own)
    if part != "evaluation":
        with pytest.raises(QuorumNotReached, match="refused-ledger"):
            driven(own, parties, **told).run()
    else:
        found = driven(own, parties, **told).run().evaluation
        assert found is not None and found.measures is None and "refused-ledger" in str(found.why_not)
    assert len(charged(own, "evaluation" if part == "evaluation" else "")) == 1


@pytest.mark.slow
def test_nothing_is_released_while_parties_cannot_be_told_that_its_charge_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator that cut the line then, and put its files back, drew the noise anew each time under one charge."""
    parties, failing = institutions(), [FOLLOW_ATTEMPTS]
    heard, spent = parties.ask, Ledger.spend

    def cut(requests: Any, **options: Any) -> Any:
        if failing[0] and any(isinstance(body, ShowLedger) for body in requests.values()):
            failing[0] -= 1
            return dict.fromkeys(requests, Failure("unreachable", "cut off"))
        return heard(requests, **options)

    def spends(self: Ledger, charge: int, **how: bool) -> None:
        spent(self, charge, **how)
        failing[0] = cut_then

    monkeypatch.setattr(parties, "ask", cut)
    monkeypatch.setattr(Ledger, "spend", spends)
    told: dict[str, Any] = {"mechanism": {"name": "class-sums", "parameters": {"sigma": 3.0}}}
    told["votes"] = {"mode": "masked+noised"}
    with pytest.raises(QuorumNotReached, match="0 parties follow the ledger to its last entry, 4 are needed"):
        driven(tmp_path, parties, **told).label()
    cut_then = FOLLOW_ATTEMPTS
    with pytest.raises(QuorumNotReached, match=r"4 are needed; .*: their sum is kept; start again when they are back"):
        driven(tmp_path, parties, **told).label()
    assert len(charged(tmp_path, "")) == 1, "before it was spent it served again"
    assert not list(tmp_path.glob("released-*"))
    cut_then = FOLLOW_ATTEMPTS - 1
    labels = driven(tmp_path, parties, **told).label().labels
    assert labels is not None and labels.answered == 40 and len(charged(tmp_path, "")) == 1


def test_one_charge_opens_one_sum_whichever_files_the_operator_puts_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sums were collected under one charge, and each party keeps what opens either of them."""
    parties = institutions(folder=tmp_path / "parties")
    told: dict[str, Any] = {"mechanism": {"name": "class-sums", "parameters": {"sigma": 3.0}}}
    told["votes"] = {"mode": "masked+noised"}
    spent, opened = Ledger.spend, MaskedTotal.open

    own, kept = tmp_path / "own", tmp_path / "kept.safetensors"
    monkeypatch.setattr(Ledger, "spend", dies)
    with pytest.raises(KeyboardInterrupt):
        driven(own, parties, **told).label()
    (first,) = own.glob("open-sum-*")
    first = first.rename(kept)
    monkeypatch.setattr(Ledger, "spend", spent)
    monkeypatch.setattr(MaskedTotal, "open", dies)
    with pytest.raises(KeyboardInterrupt):
        driven(own, parties, **told).label()
    (second,) = own.glob("open-sum-*")
    assert len(charged(own, "")) == 1, "the first sum was not opened: its charge served again"
    setups = []

    def opens(self: MaskedTotal) -> Any:
        setups.append(self.coordinators[0].setup.digest.hex()[:32])
        return opened(self)

    monkeypatch.setattr(MaskedTotal, "open", opens)
    shutil.copy(first, own / f"open-sum-{'0' * 32}.safetensors")
    labels = driven(own, parties, **told).label().labels
    assert labels is not None and labels.answered == 40 and len(charged(own, "")) == 1
    assert setups == [second.stem.removeprefix("open-sum-")]


@pytest.mark.slow
def test_labels_that_older_files_have_drawn_anew_are_charged_by_every_party_that_added_the_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are put back before parties were shown the labels' entries. The published ledger holds one charge."""
    parties, own, kept = institutions(folder=tmp_path / "parties"), tmp_path / "own", tmp_path / "kept"
    how: dict[str, Any] = {"teachers": {"kind": "linear"}, "votes": {"mode": "masked+noised"}}

    def dies(_: OpenRun) -> None:
        raise KeyboardInterrupt

    with pytest.raises(QuorumNotReached):
        driven(own, parties, absent=4, **how).label()
    shutil.copytree(own, kept)
    for number in (1, 2):
        shutil.rmtree(own)
        shutil.copytree(kept, own)
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(OpenRun, "_note_batch", dies)
            driven(own, parties, **how).label()
        account = tmp_path / "parties" / NAMES[0] / FILE
        with Ledger.read(own / "ledger.sqlite") as published, Ledger.read(account, chain="party") as held:
            assert (len(published.labels()), published.queries_charged(), held.queries_charged()) == (
                20,
                20,
                20 * number,
            )
