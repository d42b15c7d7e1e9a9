"""Charge first, release after, one label per query, never past the budget; by threads and processes alike."""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from unit.ledger.conftest import ONE

from collegium.errors import BudgetExceeded, ConfigurationError, LabelConflict, LedgerCorrupt, StorageError
from collegium.privacy.ledger.entry import Block, Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium_accounting.game.laws import Law, RenyiLaw, VectorLaw, block_epsilon
from collegium_accounting.renyi import WIDE_ORDERS, gaussian_curve

OpenLedger = Callable[..., Ledger]
TEN = [f"pool:{index}" for index in range(10)]


def charge(ledger: Ledger, queries: list[str] | int = 10, law: Law = ONE, purpose: str = "release") -> int:
    return ledger.charge(purpose, queries, {"record": law})


def affordable(ledger: Ledger, at_most: int, law: Law = ONE) -> int:
    return ledger.affordable("release", at_most, {"record": law})


def epsilon(queries: int) -> float:
    """By Balle and Wang's formula, by way of this test's own bisection."""
    mu, low, high = 2**0.5 / 40.0 * queries**0.5, 0.0, 100.0
    for _ in range(80):
        middle = (low + high) / 2.0
        delta = ndtr(mu / 2.0 - middle / mu) - math.exp(middle) * ndtr(-mu / 2.0 - middle / mu)
        low, high = (middle, high) if delta > 1e-5 else (low, middle)
    return high


def test_a_charge_and_its_labels_are_there_after_reopening(open_ledger: OpenLedger) -> None:
    with open_ledger() as ledger:
        assert ledger.epsilon() == 0.0
        paid = charge(ledger, TEN)
        ledger.release(paid, {"pool:0": 3, "pool:1": -1})
        spent, head = ledger.epsilon(), ledger.head()
    with open_ledger() as ledger:
        assert ledger.labels() == {"pool:0": 3, "pool:1": -1}
        assert ledger.queries_charged() == 10
        assert ledger.epsilon() == spent == pytest.approx(epsilon(10), rel=1e-6)
        assert ledger.head() == head


def test_all_gaussian_vectors_are_one_vector_whatever_their_order(open_ledger: OpenLedger) -> None:
    with open_ledger() as ledger:
        charge(ledger, 100)
        charge(ledger, 50, VectorLaw(1.0 / 25.0), "other")
        charge(ledger, 10)
        together = VectorLaw((110 * ONE.mu**2 + 50 / 25.0**2) ** 0.5)
        assert ledger.epsilon() == pytest.approx(block_epsilon({together: 1}, 1e-5), rel=1e-9)


@settings(max_examples=25)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_spent_does_not_depend_on_how_queries_are_cut_into_batches(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
    with Ledger.open(path, signer=None, delta=1e-5, terms=Terms(), name="") as ledger:
        for size in sizes:
            charge(ledger, size)
        assert ledger.epsilon() == block_epsilon({ONE: sum(sizes)}, 1e-5)


def test_affordable_is_the_largest_number_that_fits(open_ledger: OpenLedger) -> None:
    with open_ledger(epsilon_budget=2.0) as ledger:
        charge(ledger, 17)
        fit = affordable(ledger, 10_000)
        assert epsilon(17 + fit) <= 2.0 < epsilon(18 + fit)
        assert affordable(ledger, 5) == 5
        charge(ledger, fit)
        assert affordable(ledger, 10_000) == 0
        assert ledger.epsilon() <= 2.0


def test_a_charge_past_the_budget_charges_nothing_and_says_what_to_do(open_ledger: OpenLedger) -> None:
    with open_ledger(epsilon_budget=2.0) as ledger:
        charge(ledger, affordable(ledger, 10_000))
        head = ledger.head()
        with pytest.raises(
            BudgetExceeded, match=r"^1\.99\d* of 2\.0 charged.*raise budget\.epsilon in consortium\.toml"
        ):
            charge(ledger, 1)
        assert ledger.head() == head
    with open_ledger(epsilon_budget=2.5) as ledger:
        assert charge(ledger, 1) == head.seq + 2  # after an entry of the new terms


def test_a_party_names_its_own_setting_when_its_budget_is_spent(open_ledger: OpenLedger) -> None:
    with (
        open_ledger(epsilon_budget=0.0, budget_setting="limits.epsilon in policy.toml") as ledger,
        pytest.raises(BudgetExceeded, match=r"raise limits\.epsilon in policy\.toml or stop"),
    ):
        charge(ledger, 1)


def test_an_unbounded_cost_never_fits_a_budget(open_ledger: OpenLedger) -> None:
    endless = RenyiLaw((np.inf,) * len(WIDE_ORDERS))
    with open_ledger(epsilon_budget=1e300) as ledger:
        assert affordable(ledger, 1, endless) == 0
    with open_ledger(epsilon_budget=None) as ledger:
        charge(ledger, 1, endless)
        assert ledger.epsilon() == np.inf


def test_failure_probabilities_use_up_delta(open_ledger: OpenLedger) -> None:
    risky = RenyiLaw(tuple(0.5 * order * ONE.mu**2 for order in WIDE_ORDERS), delta=3e-6)
    with open_ledger() as ledger:
        assert affordable(ledger, 1_000_000, risky) == 3


def test_rounds_beyond_those_that_were_stated_are_refused(open_ledger: OpenLedger) -> None:
    with open_ledger(epsilon_budget=None) as ledger:
        ledger.allow({"release": Block({"record": ONE})}, {"release": 20})
        charged = ledger.charge("release", 15)
        assert ledger.affordable("release", 100) == ledger.left("release") == 5
        with pytest.raises(BudgetExceeded, match="only 5 of 6"):
            ledger.charge("release", 6)
        ledger.allow({"release": Block({"record": ONE})}, {"release": 20})
        assert ledger.left("release") == 20 and ledger.charge("release", 6) > charged


def test_blocks_fixed_together_cost_what_was_stated_whatever_is_used_of_them(open_ledger: OpenLedger) -> None:
    """Answers decide how many queries pass the test: what was used tells of them, and is no guarantee."""
    test, answer = VectorLaw(1.0 / 150.0), ONE
    blocks = {"test": Block({"record": test}), "answer": Block({"record": answer})}
    with open_ledger() as ledger:
        ledger.allow(blocks, {"test": 100, "answer": 100})
        whole = block_epsilon({test: 100, answer: 100}, 1e-5)
        for _ in range(3):
            ledger.charge("test", 10)
            assert ledger.epsilon() == pytest.approx(whole)
        ledger.charge("answer", 1)
        with ledger.reading() as chain:
            assert chain.spending.adaptive
        assert whole > block_epsilon({test: 30, answer: 1}, 1e-5)
        assert ledger.epsilon() == pytest.approx(whole)
        assert ledger.affordable("answer", 1000) == 99


def test_blocks_get_what_the_budget_takes_together_the_first_one_all_that_is_wanted(open_ledger: OpenLedger) -> None:
    test, answer = VectorLaw(1.0 / 150.0), ONE
    blocks = {"test": Block({"record": test}), "answer": Block({"record": answer})}
    with open_ledger(epsilon_budget=1.0) as ledger:
        ledger.allow(blocks, {"test": 500, "answer": 500})
        tests, answers = ledger.left("test"), int(ledger.left("answer"))
        assert tests == 500 and 10 < answers < 100
        assert block_epsilon({test: 500, answer: answers}, 1e-5) <= 1.0
        assert block_epsilon({test: 500, answer: answers + 3}, 1e-5) > 1.0
        ledger.charge("test", 500)
        with pytest.raises(BudgetExceeded):
            ledger.charge("answer", answers + 1)


def test_two_studies_of_the_same_laws_add_up_and_do_not_share_one_path(open_ledger: OpenLedger) -> None:
    """The second study's numbers may be chosen after the first one's answers."""
    test, answer = VectorLaw(1.0 / 30.0), RenyiLaw.of(gaussian_curve(1, 40.0, WIDE_ORDERS))
    with open_ledger() as ledger:
        for study, numbers in (("one", (20, 20)), ("two", (0, 40))):
            names = f"test of {study}", f"answer of {study}"
            blocks = dict(zip(names, (Block({"record": test}), Block({"record": answer})), strict=True))
            ledger.allow(blocks, dict(zip(names, numbers, strict=True)))
            ledger.charge(names[1], numbers[1])
        alone = [block_epsilon({test: tests, answer: answers}, 0.5e-5) for tests, answers in ((20, 20), (0, 40))]
        assert ledger.epsilon() == pytest.approx(sum(alone), rel=1e-6)


def test_what_a_run_paid_as_a_whole_makes_its_answers_free_and_nothing_else(open_ledger: OpenLedger) -> None:
    with open_ledger() as ledger:
        ledger.allow({"release": Block({"record": ONE}), "answers": Block({})}, {"release": 3, "answers": 0})
        with pytest.raises(LedgerCorrupt, match="the whole run is not paid for"):
            ledger.charge("answers", TEN)
        ledger.charge("release", 3)
        paid = ledger.epsilon()
        ledger.charge("answers", TEN)
        assert ledger.epsilon() == paid == pytest.approx(epsilon(3), rel=1e-6)


@pytest.mark.parametrize("rounds", [{}, {"release": 0}])
def test_a_run_that_states_no_round_to_be_paid_makes_nothing_free(
    open_ledger: OpenLedger, rounds: dict[str, int]
) -> None:
    blocks = {purpose: Block({"record": ONE}) for purpose in rounds}
    with open_ledger() as ledger:
        ledger.allow(blocks | {"answers": Block({})}, rounds | {"answers": 0})
        ledger.charge("evaluation", 1, {"record": ONE})
        with pytest.raises(LedgerCorrupt, match="the whole run is not paid for"):
            ledger.charge("answers", TEN)


def test_counts_that_are_charged_apart_do_not_keep_a_paid_run_from_its_answers(open_ledger: OpenLedger) -> None:
    with open_ledger() as ledger:
        ledger.allow({"release": Block({"record": ONE}), "answers": Block({})}, {"release": 3, "answers": 0})
        ledger.charge("evaluation", 1, {"record": ONE})
        ledger.charge("release", 3)
        ledger.charge("answers", TEN)


def test_a_label_needs_a_charge_that_paid_for_it(open_ledger: OpenLedger) -> None:
    with open_ledger() as ledger:
        with pytest.raises(ConfigurationError, match="charge first, then release"):
            ledger.release(1, {"pool:0": 1})
        paid = charge(ledger, 2)
        with pytest.raises(ConfigurationError, match="only 2 are left"):
            ledger.release(paid, dict.fromkeys(TEN[:3], 0))
        ledger.release(paid, {"pool:0": 0})
        with pytest.raises(ConfigurationError, match="only 1 are left"):
            ledger.release(paid, {"pool:1": 0, "pool:2": 0})
        assert ledger.labels() == {"pool:0": 0}


def test_what_a_charge_paid_for_is_opened_once(open_ledger: OpenLedger) -> None:
    with open_ledger() as ledger:
        paid, counted = charge(ledger, TEN), charge(ledger, 3)
        ledger.spend(paid, for_labels=True, on_sum="ab" * 32)
        head = ledger.head()
        for again in (paid, counted, head.seq + 1):
            with pytest.raises(ConfigurationError, match=f"entry {again} paid for was released before"):
                ledger.spend(again, for_labels=True, on_sum="cd" * 32)
        assert ledger.head() == head


@pytest.mark.parametrize("parameter", [math.nan, math.inf, b"bytes"])
def test_terms_that_cannot_be_written_as_they_are_leave_no_entry(
    open_ledger: OpenLedger, path: Path, parameter: Any
) -> None:
    with open_ledger() as ledger:
        head = ledger.head()
    with pytest.raises(ConfigurationError, match="only plain texts and finite numbers"):
        open_ledger(mechanism={"name": "gnmax", "sigma": parameter})
    with Ledger.read(path) as ledger:
        assert ledger.head() == head


def test_the_same_label_again_changes_nothing(open_ledger: OpenLedger) -> None:
    with open_ledger() as ledger:
        paid = charge(ledger, 1)
        ledger.release(paid, {"pool:0": 7})
        head = ledger.head()
        ledger.release(paid, {"pool:0": 7})
        assert ledger.head() == head


def test_a_second_label_for_a_query_is_refused_and_the_rest_is_kept(open_ledger: OpenLedger) -> None:
    with open_ledger() as ledger:
        first, second = charge(ledger, 1), charge(ledger, 2)
        ledger.release(first, {"pool:0": 7})
        with pytest.raises(LabelConflict) as conflict:
            ledger.release(second, {"pool:0": 8, "pool:1": 2})
        assert conflict.value.labels == {"pool:0": 7, "pool:1": 2} == ledger.labels()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"delta": 1e-6}, "delta = 1e-05, not 1e-06"),
        ({"name": "six hospitals"}, "name = five hospitals"),
        ({"signer": Ed25519PrivateKey.from_private_bytes(bytes(32))}, "another identity"),
        ({"signer": None}, "another identity"),
        ({"delta": 0.0}, "delta must lie in"),
        ({"epsilon_budget": float("nan")}, "finite number"),
    ],
)
def test_settings_that_do_not_agree_are_refused(open_ledger: OpenLedger, changes: dict[str, object], what: str) -> None:
    open_ledger().close()
    with pytest.raises(ConfigurationError, match=what):
        open_ledger(**changes)


def test_bad_input_is_refused_and_leaves_the_ledger_as_it_was(open_ledger: OpenLedger) -> None:
    with open_ledger() as ledger:
        paid = charge(ledger, 3)
        head = ledger.head()
        for queries in (0, -1, [], ["a", "a"], "ab"):
            with pytest.raises(ConfigurationError):
                charge(ledger, queries)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="state no block 'x'"):
            ledger.charge("x", 1)
        for labels in ({"a": -2}, {1: 1}):
            with pytest.raises(ConfigurationError):
                ledger.release(paid, labels)  # type: ignore[arg-type]
        assert ledger.head() == head
        assert charge(ledger, 1) == head.seq + 1


def test_a_full_disk_charges_nothing_and_the_ledger_goes_on(open_ledger: OpenLedger) -> None:
    connections: list[sqlite3.Connection] = []
    with open_ledger(on_connect=connections.append) as ledger:
        charge(ledger, 10)
        (pages,) = connections[0].execute("PRAGMA page_count").fetchone()
        connections[0].execute(f"PRAGMA max_page_count={pages}")
        before = ledger.queries_charged()
        charged = 0
        with pytest.raises(StorageError, match="full"):
            for _ in range(50):
                charge(ledger, 1)
                charged += 1
        assert ledger.queries_charged() == before + charged
        connections[0].execute("PRAGMA max_page_count=1000000")
        charge(ledger, 1)
        assert ledger.queries_charged() == verify(ledger.path).periods[-1][1] == before + charged + 1


def test_a_ledger_replaced_under_an_open_one_is_noticed(open_ledger: OpenLedger, path: Path) -> None:
    with open_ledger() as ledger:
        charge(ledger, 10)
        vandal = sqlite3.connect(path)
        vandal.execute("DELETE FROM entries WHERE seq = 2")
        vandal.commit()
        vandal.close()
        with pytest.raises(LedgerCorrupt, match="entry 2: it was changed or removed"):
            charge(ledger, 10)


def test_threads_share_one_ledger(open_ledger: OpenLedger) -> None:
    with open_ledger() as ledger:
        paid: list[int] = []
        threads = [threading.Thread(target=lambda: paid.extend(charge(ledger, 1) for _ in range(10))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(paid) == list(range(2, 42))
        assert ledger.queries_charged() == 40


def _race(path: Path, key: bytes, own: int) -> None:
    """Charge and release label ``own`` for the same 30 queries as the other process, until the budget ends."""
    ledger = Ledger.open(
        path,
        signer=Ed25519PrivateKey.from_private_bytes(key),
        delta=1e-5,
        terms=Terms(epsilon_budget=1.0),
        name="race",
    )
    try:
        for index in range(1000):
            paid = charge(ledger, 2)
            try:
                ledger.release(paid, {f"pool:{index % 30}": own, f"{own}:{index}": own})
            except LabelConflict as conflict:
                assert conflict.labels[f"{own}:{index}"] == own
    except BudgetExceeded:
        return
    raise AssertionError("the budget was never reached")


@pytest.mark.slow
def test_two_processes_that_race_share_the_budget_and_agree_on_labels(path: Path, owner: Ed25519PrivateKey) -> None:
    context = get_context("spawn")
    racers = [context.Process(target=_race, args=(path, owner.private_bytes_raw(), own)) for own in (1, 2)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0, 0]
    within = verify(path, owner.public_key().public_bytes_raw()).periods[-1][1]
    assert epsilon(within) <= 1.0 < epsilon(within + 2)


def test_the_file_holds_no_private_key(open_ledger: OpenLedger, path: Path, owner: Ed25519PrivateKey) -> None:
    with open_ledger() as ledger:
        ledger.release(charge(ledger, TEN), dict.fromkeys(TEN, 1))
        kept = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert owner.public_key().public_bytes_raw().hex().encode() in kept
    for secret in (owner.private_bytes_raw(), owner.private_bytes_raw().hex().encode()):
        assert secret not in kept
