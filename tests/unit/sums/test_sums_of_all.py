"""Class sums that need the vectors of all institutions: less noise where all are there, nothing lost where not."""

import math
from pathlib import Path
from typing import Any

import pytest
from support.absent import absent
from support.sums_scene import LENGTH, NAMES, POOL, TASK, dies_opening, records

from collegium.coordinator.run import coordinator as run
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.models.arrays import load_arrays
from collegium.parties import kind as party_kind
from collegium.parties.policy import PolicyConfig
from collegium.privacy.ledger.entry import Charge
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.protocol.secure_sum import Phase
from collegium.settings import validate_config
from collegium.simulations.local import LocalParties
from collegium_accounting.mechanisms.class_sums import bound_squared

SIGMA = 4.0
ONE_AWAY, ALL = math.sqrt(5 / 3), math.sqrt(5 / 4)
"""The noise of five in units of what is charged: three of them are counted on, or four where all are in the sum."""


@pytest.fixture
def parties(tmp_path: Path) -> LocalParties:
    held = {name: records(number, 40) for number, name in enumerate(NAMES)}
    policy = PolicyConfig(minimum_noise_sums=0.1, queries=20, record_epsilon=99.0, sum_modes=("masked+noised",))
    by_name = {name: (one.x, one.labels()) for name, one in held.items()}
    return LocalParties(by_name, TASK, policy=policy, folder=tmp_path / "parties")


def run_of(parties: LocalParties, folder: Path, **values: Any) -> run.CoordinatorRun:
    values = {"name": "local", "task": TASK, "pool": {"source": "pool"}, "budget": {"epsilon": 99.0}} | values
    reach = run.Reach(parties, roster=sorted(parties.signing_keys), signing_keys=parties.signing_keys)
    config = validate_config(values, RunConfig, "test")
    return run.CoordinatorRun(config, reach, run.Storage(folder), public=PublicData(Examples(POOL)))


def noise(folder: Path, *, short: bool = False) -> list[float]:
    """The noise on each class sum that was released; on each ``short`` vector of counts."""
    found = [load_arrays(file, "released vector") for file in folder.glob("released-*")]
    return [about["noise"][0] for arrays, about in found if (arrays["values"].size < LENGTH) == short]


def labelled(parties: LocalParties, folder: Path, bound: str = "exact", **more: Any) -> list[float]:
    """The noise of each class sum that a run released, in what is charged; each was paid once."""
    values = {
        "mechanism": {"name": "class-sums", "parameters": {"sigma": SIGMA}},
        "budget": {"epsilon": 99.0, "bound": bound},
        "sums": {"rounds": 3},
    }
    record = run_of(parties, folder, **values, **more).label()
    assert record.labels is not None and record.labels.answered == len(POOL)
    verify(folder / "ledger.sqlite")
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        charges = [one.content for one in ledger.entries() if isinstance(one.content, Charge)]
        assert ledger.terms().honest_survivors == 3, "no sum is promised to hold more"
    others = ["pool_check"] if more else []
    assert [one.purpose for one in charges] == others + ["sums"] * 3 + ["sums, paid with the run"]
    assert len(noise(folder, short=True)) == len(others)
    return sorted(one / (SIGMA * math.sqrt(bound_squared(3))) for one in noise(folder))


@pytest.mark.bits
@pytest.mark.parametrize("bound", ["exact", "classic"])
def test_where_all_are_there_each_adds_less_noise(parties: LocalParties, tmp_path: Path, bound: str) -> None:
    assert labelled(parties, tmp_path, bound) == pytest.approx([ALL] * 3, rel=1e-4)


@pytest.mark.bits
@pytest.mark.parametrize("phase", [Phase.ADVERTISE, Phase.SHARE, Phase.MASK])
@pytest.mark.parametrize("bound", ["exact", "classic"])
def test_where_a_vector_does_not_come_the_sum_is_taken_without_it_and_paid_once(
    parties: LocalParties, tmp_path: Path, phase: Phase, bound: str
) -> None:
    """The first sum is of all; the second is begun again, with the noise of four, and the third does not try."""
    absent(parties, NAMES[0], phase, 2, 3)
    expected = sorted([ALL, math.sqrt(4 / 3), ONE_AWAY])
    assert labelled(parties, tmp_path, bound) == pytest.approx(expected, rel=1e-4)


@pytest.mark.bits
def test_counts_have_less_noise_where_all_are_there_and_a_run_tries_once_to_have_all(
    parties: LocalParties, tmp_path: Path
) -> None:
    """The pool check is the first sum: where a vector does not come, it is taken again, and no sum tries after that."""
    check = {"pool_check": {"sigma": 3.0}}
    assert labelled(parties, tmp_path / "all", **check) == pytest.approx([ALL] * 3, rel=1e-4)
    absent(parties, NAMES[0], Phase.MASK, 1)
    assert labelled(parties, tmp_path / "again", **check) == pytest.approx([ONE_AWAY] * 3, rel=1e-4)
    (of_all,), (again,) = (noise(tmp_path / name, short=True) for name in ("all", "again"))
    assert again / of_all == pytest.approx(ONE_AWAY / ALL, rel=1e-4)


@pytest.mark.bits
def test_each_institution_compares_its_own_figure_with_that_of_all(parties: LocalParties, tmp_path: Path) -> None:
    """The figure is shown under the name of the round that was asked: that of all institutions, where all are there."""
    record = run_of(parties, tmp_path / "run", evaluation={"share": 0.2}).run()
    assert record.evaluation is not None and record.evaluation.measures is not None
    accuracy = record.evaluation.measures.accuracy
    for name in NAMES:
        kept = party_kind.kept(next((tmp_path / "parties").rglob(f"{name}/evaluation.json")))
        assert kept["consortium_interval"] == pytest.approx([accuracy.low, accuracy.high])


@pytest.mark.bits
@pytest.mark.parametrize("phase", [Phase.SIGN, Phase.UNMASK])
def test_once_all_vectors_came_nobody_is_waited_for(parties: LocalParties, tmp_path: Path, phase: Phase) -> None:
    absent(parties, NAMES[0], phase, 2)
    assert labelled(parties, tmp_path) == pytest.approx([ALL] * 3, rel=1e-4)


@pytest.mark.bits
@pytest.mark.parametrize("number", [1, 2])
def test_a_sum_of_all_that_was_begun_is_opened_without_one_of_them(
    parties: LocalParties, tmp_path: Path, number: int
) -> None:
    """The coordinator dies before it opens it, and one institution is away when it is started again."""
    with dies_opening(number):
        labelled(parties, tmp_path)
    gone = parties._parties.pop(NAMES[0])
    ask = parties.ask
    with pytest.MonkeyPatch.context() as patch:
        there = parties._parties.keys()
        patch.setattr(parties, "ask", lambda asked, **how: ask({n: asked[n] for n in asked if n in there}, **how))
        noise = labelled(parties, tmp_path)
    assert gone is not None
    assert noise == pytest.approx(sorted([ALL] * number + [math.sqrt(4 / 3)] * (3 - number)), rel=1e-4)
