"""Charge first, release after, one label per query, never past the budget; by threads and processes alike."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from collegium.errors import BudgetExceeded, ConfigurationError, LabelConflict, LedgerCorrupt, StorageError
from collegium.privacy.ledger.entry import Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.privacy.renyi import PAPER_ORDERS, WIDE_ORDERS, Conversion, RenyiCurve, gaussian_curve

OpenLedger = Callable[..., Ledger]
CURVE = gaussian_curve(2**0.5, 40.0, WIDE_ORDERS)
TEN = [f"pool:{index}" for index in range(10)]


def charge(ledger: Ledger, queries: list[str] | int = 10, curve: RenyiCurve = CURVE) -> int:
    return ledger.charge(purpose="gnmax:release", mechanism={"sigma": 40.0}, curve=curve, queries=queries)


def test_a_charge_and_its_labels_are_there_after_reopening(open_ledger: OpenLedger) -> None:
    with open_ledger() as ledger:
        assert ledger.epsilon().epsilon == 0.0
        paid = charge(ledger, TEN)
        ledger.release(paid, {"pool:0": 3, "pool:1": -1})
        spent, head = ledger.spent().values, ledger.head()
    with open_ledger() as ledger:
        assert ledger.labels() == {"pool:0": 3, "pool:1": -1}
        assert ledger.queries_charged() == 10
        np.testing.assert_array_equal(ledger.spent().values, spent)
        np.testing.assert_array_equal(spent, (CURVE * 10).values)
        assert ledger.head() == head


def test_epsilon_is_that_of_the_composed_curve(open_ledger: OpenLedger) -> None:
    other = gaussian_curve(1.0, 25.0, WIDE_ORDERS)
    with open_ledger() as ledger:
        charge(ledger, 100)
        charge(ledger, 50, other)
        expected = (CURVE * 100 + other * 50).to_epsilon(1e-5, Conversion.IMPROVED)
        assert ledger.epsilon().epsilon == pytest.approx(expected.epsilon, rel=1e-12)


@settings(max_examples=25)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_spent_does_not_depend_on_how_queries_are_cut_into_batches(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
    with Ledger.open(path, signer=None, orders=WIDE_ORDERS, delta=1e-5, terms=Terms(), name="") as ledger:
        for size in sizes:
            charge(ledger, size)
        np.testing.assert_array_equal(ledger.spent().values, (CURVE * sum(sizes)).values)


def test_affordable_is_the_largest_number_that_fits(open_ledger: OpenLedger) -> None:
    with open_ledger(epsilon_budget=2.0) as ledger:
        charge(ledger, 17)
        fit = ledger.affordable(CURVE, 10_000)
        assert (CURVE * (17 + fit)).to_epsilon(1e-5).epsilon <= 2.0 < (CURVE * (18 + fit)).to_epsilon(1e-5).epsilon
        assert ledger.affordable(CURVE, 5) == 5
        charge(ledger, fit)
        assert ledger.affordable(CURVE, 10_000) == 0
        assert ledger.epsilon().epsilon <= 2.0


def test_a_charge_past_the_budget_charges_nothing_and_says_what_to_do(open_ledger: OpenLedger) -> None:
    with open_ledger(epsilon_budget=2.0) as ledger:
        charge(ledger, ledger.affordable(CURVE, 10_000))
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
    endless = RenyiCurve(WIDE_ORDERS, np.full(len(WIDE_ORDERS), np.inf))
    with open_ledger(epsilon_budget=1e300) as ledger:
        assert ledger.affordable(endless, 1) == 0
    with open_ledger(epsilon_budget=None) as ledger:
        charge(ledger, 1, endless)
        assert ledger.epsilon().epsilon == np.inf


def test_failure_probabilities_use_up_delta(open_ledger: OpenLedger) -> None:
    risky = RenyiCurve(WIDE_ORDERS, CURVE.values, delta=3e-6)
    with open_ledger() as ledger:
        assert ledger.affordable(risky, 1_000_000) == 3


def test_a_filter_at_one_order_never_allows_more_than_the_best_order(open_ledger: OpenLedger, tmp_path: Path) -> None:
    allowed = {}
    for order in (None, 6.0, 16.0):
        ledger = Ledger.open(
            tmp_path / f"{order}.sqlite",
            signer=None,
            orders=WIDE_ORDERS,
            delta=1e-5,
            terms=Terms(epsilon_budget=2.0, filter_order=order),
            name="",
        )
        allowed[order] = ledger.affordable(CURVE, 10_000)
        charge(ledger, 10)
        assert order is None or ledger.epsilon().order == order
    assert 0 < allowed[6.0] < allowed[None]
    assert 0 < allowed[16.0] <= allowed[None]


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
        ({"orders": PAPER_ORDERS}, "orders = another grid"),
        ({"name": "six hospitals"}, "name = five hospitals"),
        ({"conversion": Conversion.CLASSIC}, "conversion = improved, not classic"),
        ({"signer": Ed25519PrivateKey.from_private_bytes(bytes(32))}, "another identity"),
        ({"signer": None}, "another identity"),
        ({"delta": 0.0}, "delta must lie in"),
        ({"filter_order": 8.5}, "not among the ledger's orders"),
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
        with pytest.raises(ConfigurationError, match="finite numbers"):
            ledger.charge(purpose="x", mechanism={"sigma": float("nan")}, curve=CURVE, queries=1)
        with pytest.raises(ConfigurationError, match="another grid"):
            charge(ledger, 1, gaussian_curve(1.0, 1.0, PAPER_ORDERS))
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
        assert ledger.queries_charged() == verify(ledger.path).queries == before + charged + 1


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
        orders=WIDE_ORDERS,
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


def test_two_processes_that_race_share_the_budget_and_agree_on_labels(path: Path, owner: Ed25519PrivateKey) -> None:
    context = get_context("spawn")
    racers = [context.Process(target=_race, args=(path, owner.private_bytes_raw(), own)) for own in (1, 2)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0, 0]
    within = verify(path, owner.public_key().public_bytes_raw()).queries
    assert (CURVE * within).to_epsilon(1e-5).epsilon <= 1.0 < (CURVE * (within + 2)).to_epsilon(1e-5).epsilon


def test_the_file_holds_no_private_key(open_ledger: OpenLedger, path: Path, owner: Ed25519PrivateKey) -> None:
    with open_ledger() as ledger:
        ledger.release(charge(ledger, TEN), dict.fromkeys(TEN, 1))
        kept = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert owner.public_key().public_bytes_raw().hex().encode() in kept
    for secret in (owner.private_bytes_raw(), owner.private_bytes_raw().hex().encode()):
        assert secret not in kept
