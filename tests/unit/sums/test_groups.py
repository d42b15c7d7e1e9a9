"""Sums by groups: a record is in one of them, each is protected by itself, and their total is what is used."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.absent import absent
from support.keys import keys_in_order
from support.misbehaving import Misbehaving
from support.sums_scene import dies_opening

from collegium.coordinator.rounds.masked_sum import MaskedSum
from collegium.coordinator.run import coordinator as run
from collegium.coordinator.run.factories import division
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.data.task import ImageInputs, NumberColumn, TableInputs, Task
from collegium.errors import ConfigurationError, QuorumNotReached
from collegium.models.arrays import load_arrays
from collegium.parties.policy import PolicyConfig
from collegium.privacy.ledger.entry import Charge
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.protocol.replies import Failure
from collegium.protocol.requests import Ask, SecureSumStep
from collegium.protocol.secure_sum import Phase, plan_graph
from collegium.protocol.secure_sum.errors import InsufficientPlan
from collegium.protocol.secure_sum.groups import group_of, groups_of, plan_groups
from collegium.settings import validate_config
from collegium.simulations.local import LocalParties
from collegium_accounting import account
from collegium_accounting.mechanisms.class_sums import ClassSums, bound_squared, count_of_one

ROSTER = {f"party-{number}": number.to_bytes(32, "big") for number in range(25)}


@pytest.mark.parametrize(("parties", "groups"), [(9, 3), (25, 3), (25, 8)])
def test_every_party_is_in_one_group_that_the_roster_decides(parties: int, groups: int) -> None:
    roster = dict(list(ROSTER.items())[:parties])
    dealt = groups_of(roster, groups)
    assert sorted(name for group in dealt for name in group) == sorted(roster)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    assert groups_of(dict(reversed(roster.items())), groups) == dealt
    assert all(group_of(roster, groups, name) == group for group in dealt for name in group)
    others = groups_of(roster | {"party-0": b"\xff" * 32}, groups)
    assert [sorted(group) for group in others] != [sorted(group) for group in dealt], "a key decides too"


@pytest.mark.parametrize(("parties", "groups"), [(8, 3), (9, 2), (9, 4), (9, 0)])
def test_groups_that_are_too_few_or_too_small_are_refused(parties: int, groups: int) -> None:
    with pytest.raises(InsufficientPlan):
        groups_of(dict(list(ROSTER.items())[:parties]), groups)


@pytest.mark.parametrize("parties", [9, 12, 20, 25, 60, 250])
def test_all_colluders_in_one_group_leave_the_noise_that_is_charged(parties: int) -> None:
    roster = {f"party-{number}": number.to_bytes(32, "big") for number in range(parties)}
    together, colluding = plan_graph(parties, 0.3, 0.1, quorum=0.8), max(1, math.ceil(0.1 * parties - 1e-9))
    groups = plan_groups(roster, 3, 0.3, 0.1, 0.8)
    sums = MaskedSum(None, "ours", roster, together, True, groups)  # type: ignore[arg-type]
    for _, plan in groups:
        assert plan.colluding >= colluding and 2 * plan.quorum > plan.parties + colluding
        # Σ of the honest shares is σ² or more, whichever members stay away, and all who collude sit here.
        assert plan.quorum - colluding - plan.isolated >= sums.added.honest_survivors >= 1


def configured(**changes: Any) -> RunConfig:
    task = Task(classes=tuple("0123456789"), inputs=ImageInputs(height=8, width=8))
    values: dict[str, Any] = {
        "name": "local",
        "task": task,
        "pool": {"source": "digits"},
        "mechanism": {"name": "class-sums"},
        "budget": {"epsilon": 4.0},
        "student": {"method": "kernel", "options": {"steps": 0}},
    }
    return validate_config(values | changes, RunConfig, "test")


def test_the_number_of_groups_follows_from_public_facts() -> None:
    assert division(configured(), 9).groups == 3
    assert division(configured(), 8).groups == 1
    dear = configured(budget={"epsilon": 0.05})
    first = division(dear, 9)
    assert (first.groups, first.once) == (3, True) and "in the first sum alone" in first.why
    assert 1.0 < first.noise < 1.06 < division(configured(votes={"groups": 3}), 9).noise, "of the mean of eight sums"
    assert division(dear.model_copy(update={"sums": dear.sums.model_copy(update={"rounds": 1})}), 9).groups == 1
    assert division(configured(budget={"epsilon": 4.0, "unit": "party"}), 9).groups == 1
    assert division(configured(votes={"mode": "clear"}), 9).groups == 1
    assert division(configured(votes={"groups": 1}), 9).groups == 1
    for wrong in ({"groups": 2}, {"groups": 4}, {"groups": 3, "mode": "clear"}):
        with pytest.raises(ConfigurationError, match=r"votes\.groups"):
            division(configured(votes=wrong), 9)


@pytest.mark.parametrize("parties", [9, 25, 250])
def test_two_classes_have_groups_at_an_epsilon_of_1_beside_an_evaluation_and_a_pool_check(parties: int) -> None:
    inputs = TableInputs(columns=(NumberColumn(name="age", low=0, high=100),))
    asked: dict[str, Any] = {"budget": {"epsilon": 1.0}, "evaluation": {"share": 0.1}, "pool_check": {"share": 0.1}}
    two, ten = configured(task=Task(classes=("no", "yes"), inputs=inputs), **asked), configured(**asked)
    assert (division(two, parties).groups, division(two, parties).once) == (3, False)
    assert (division(ten, parties).groups, division(ten, parties).once) == (3, True)


FIFTEEN = tuple(f"clinic-{number:02}" for number in range(15))
NAMES, NINE = FIFTEEN[:12], FIFTEEN[:9]
SIZES = dict(zip(FIFTEEN, range(30, 30 + 20 * 15, 20), strict=True))


@pytest.fixture(scope="module")
def public(shuffled: Examples) -> PublicData:
    return PublicData(shuffled.take(np.arange(1500, 1797)))


def institutions(shuffled: Examples, names: tuple[str, ...], seed: int | None = None) -> Misbehaving:
    """Institutions of different sizes, so that the count of a sum tells whose it is."""
    ends = np.cumsum([SIZES[name] for name in names])
    rows = {name: np.arange(end - SIZES[name], end) % 1500 for name, end in zip(names, ends, strict=True)}
    records = {name: (shuffled.x[own, ..., 0], shuffled.labels()[own]) for name, own in rows.items()}
    policy = PolicyConfig(minimum_noise_sums=0.1, queries=20, record_epsilon=9_999.0, sum_modes=("masked+noised",))
    return Misbehaving(records, configured().task, policy=policy, seed=seed)


def driven(parties: LocalParties, public: PublicData, folder: Path, **changes: Any) -> run.CoordinatorRun:
    reach = run.Reach(parties, roster=parties.names(), signing_keys=parties.signing_keys)
    little_noise = {"mechanism": {"name": "class-sums", "parameters": {"sigma": 0.2}}, "budget": {"epsilon": 999.0}}
    asked = configured(**little_noise | changes | ({} if parties.seed is None else {"seed": parties.seed}))
    return run.CoordinatorRun(asked, reach, run.Storage(folder), public=public)


def kept(folder: Path) -> tuple[Any, Any]:
    (file,) = folder.glob("released-*")
    arrays, about = load_arrays(file, "released vector")
    return arrays["values"], about


@pytest.mark.bits
def test_a_run_keeps_one_sum_of_each_group_and_pays_once(
    shuffled: Examples, public: PublicData, tmp_path: Path
) -> None:
    parties = institutions(shuffled, NINE)
    record = driven(parties, public, tmp_path).label()
    values, about = kept(tmp_path)
    one = count_of_one(10)
    assert [set(members) for members in about["parties"]] == [set(one) for one in groups_of(parties.signing_keys, 3)]
    for vector, noise, members in zip(values, about["noise"], about["parties"], strict=True):
        expected = sum(SIZES[name] for name in members)
        assert abs(vector[-1] / one - expected) < 4.9 * noise / one < 15, "six standard deviations: 1e-6 each"
        # σ of all members, of whom one may collude and does not count: σ·√(3/2).
        assert noise == pytest.approx(0.2 * math.sqrt(bound_squared(10)) * math.sqrt(3 / 2), rel=1e-6)
    with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
        charges = [one.content for one in ledger.entries() if isinstance(one.content, Charge)]
    assert charges[0].queries == 1 and len(charges) == 2, "the second is that of the labels"
    again = driven(parties, public, tmp_path).label()
    assert again.rounds == record.rounds, "nobody is asked again"


DEAR: dict[str, Any] = {"mechanism": {"name": "class-sums", "parameters": {"sigma": 4.0}}, "sums": {"rounds": 3}}
"""Groups in all three sums would have 4·√(9/2)/√3 contributions of noise, for ten classes."""


@pytest.mark.bits
def test_where_groups_cost_too_much_the_first_sum_alone_is_by_groups(
    shuffled: Examples, public: PublicData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys_in_order(monkeypatch)  # with other noise, about one of 1,000 runs would be by groups again
    parties = institutions(shuffled, NINE, seed=1)
    driven(parties, public, tmp_path, **DEAR).label()
    kept = [load_arrays(file, "released vector")[1] for file in tmp_path.glob("released-*")]
    entry, honest = 4.0 * math.sqrt(bound_squared(10)), plan_graph(9, 0.3, 0.1, quorum=0.8).of_all.honest_survivors
    by_groups, together = entry * math.sqrt(3 / 2), entry * math.sqrt(9 / honest)
    noise = sorted((len(about["parties"]), about["noise"][-1]) for about in kept)
    assert noise == [(1, pytest.approx(together)), (1, pytest.approx(together)), (3, pytest.approx(by_groups))]
    with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
        epsilon = ledger.epsilon()
        charges = [one.content for one in ledger.entries() if isinstance(one.content, Charge)]
    assert Counter(one.purpose for one in charges[:-1]) == {"sums": 1, "sums not by groups": 2}
    three = account(ClassSums(sigma=4.0, classes=10, rounds=3), delta=1e-5).epsilon
    assert three <= epsilon < three * (1 + 1e-6), "it costs what it costs in any case"
    least, highest = verify(tmp_path / "ledger.sqlite").bounds("record", "add-remove")
    assert least <= epsilon <= highest
    again = driven(parties, public, tmp_path, **DEAR)
    parties.ask = _nobody_is_asked  # type: ignore[method-assign]
    assert again.label().labels is not None


@pytest.mark.bits
@pytest.mark.parametrize("changes", [{}, {"votes": {"groups": 1}}])
def test_a_later_sum_that_was_begun_is_opened_by_another_process_and_paid_once(
    shuffled: Examples, public: PublicData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    keys_in_order(monkeypatch)
    parties = institutions(shuffled, NINE, seed=1)
    with dies_opening(2):
        driven(parties, public, tmp_path, **DEAR).label()
    record = driven(parties, public, tmp_path, **DEAR | changes).label()
    assert record.labels is not None and record.labels.answered == 297, "all that was paid counts"
    with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
        charges = [one.content for one in ledger.entries() if isinstance(one.content, Charge)]
    assert len(charges) == 4
    assert changes or [one.purpose for one in charges[:-1]] == ["sums", *["sums not by groups"] * 2]


@pytest.mark.bits
def test_a_group_that_lacks_a_party_is_summed_with_the_others(
    shuffled: Examples, public: PublicData, tmp_path: Path
) -> None:
    parties = institutions(shuffled, NINE)
    honest, late = parties.ask, NINE[4]

    def without_one(requests: Any, **how: Any) -> Any:
        steps = {name: body for name, body in requests.items() if name != late or not isinstance(body, SecureSumStep)}
        return dict.fromkeys(requests, Failure("deadline", "no answer in time")) | honest(steps, **how)

    parties.ask = without_one  # type: ignore[method-assign]
    record = driven(parties, public, tmp_path).label()
    _, about = kept(tmp_path)
    assert about["parties"] == [[name for name in NINE if name != late]]
    assert record.rounds[-1].answered == 8 and record.labels is not None and record.labels.answered == 297


@pytest.mark.bits
def test_once_a_group_was_short_of_parties_no_later_sum_of_the_run_needs_all_of_them(
    shuffled: Examples, public: PublicData, tmp_path: Path
) -> None:
    """In groups of five, two of whom may collude: with four of them there, two add all the noise, and else three."""
    parties = institutions(shuffled, FIFTEEN)
    of_five, of_four = (0.2 * math.sqrt(bound_squared(10)) * math.sqrt(5 / honest) for honest in (3, 2))

    def by_groups(folder: Path) -> list[float]:
        driven(parties, public, folder, sums={"rounds": 3}).label()
        found = [load_arrays(file, "released vector")[1] for file in folder.glob("released-*")]
        return [one["noise"][0] for one in found if len(one["parties"]) == 3]

    assert by_groups(tmp_path / "all") == pytest.approx([of_five] * 3)
    for name in sorted(groups_of(parties.signing_keys, 3)[0])[:2]:
        absent(parties, name, Phase.MASK, 1)  # the first sum is then of the other thirteen, together
    assert by_groups(tmp_path / "two away") == pytest.approx([of_four] * 2)


@pytest.mark.bits
def test_sums_of_groups_that_were_begun_are_opened_by_another_process(
    shuffled: Examples, public: PublicData, tmp_path: Path
) -> None:
    parties = institutions(shuffled, NINE)
    with dies_opening(1):
        driven(parties, public, tmp_path).label()
    assert len(list(tmp_path.glob("open-sum-*"))) == 1
    before = len(parties.asked)
    driven(parties, public, tmp_path).label()
    values, about = kept(tmp_path)
    assert len(values) == 3 and sorted(name for group in about["parties"] for name in group) == list(NINE)
    asked = {type(body) for heard in parties.asked[before:] for body in heard.values()}
    assert asked and Ask not in asked, "no vector is asked for again"
    assert not list(tmp_path.glob("open-sum-*"))


@pytest.mark.bits
def test_a_party_refuses_a_group_that_bears_fewer_colluders_than_all_together(
    shuffled: Examples, public: PublicData, tmp_path: Path
) -> None:
    """Two of twelve may collude, and both may sit among these four."""
    parties = institutions(shuffled, NAMES)
    with pytest.raises(QuorumNotReached, match="protection against 1 colluders is proposed, fewer than demanded"):
        driven(parties, public, tmp_path, votes={"collusion": 0.05}).label()
    assert driven(parties, public, tmp_path / "another").label().state == "labelled"


def _nobody_is_asked(requests: Any, **_: Any) -> Any:
    raise AssertionError(f"{sorted(requests)} were asked again")


@pytest.mark.bits
def test_every_round_is_kept_by_groups_and_the_next_follows_from_the_total(
    shuffled: Examples, public: PublicData, tmp_path: Path
) -> None:
    record = driven(institutions(shuffled, NINE), public, tmp_path, sums={"rounds": 3}).label()
    files = list(tmp_path.glob("released-*"))
    assert len(files) == 3
    for file in files:
        assert load_arrays(file, "released vector")[0]["values"].shape[0] == 3
    assert record.groups is not None and len(record.groups.members) == 3
    assert record.label_accuracy is not None and record.label_accuracy > 0.8
