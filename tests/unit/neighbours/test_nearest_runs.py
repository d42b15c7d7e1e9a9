"""Runs by the nearest of a sample: modes that agree, drop-outs, restarts, the exact mode, and what is refused."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collegium_reproduction.exact_nearest import ExactNearest
from collegium_reproduction.nearest.coordinator import nearest_edges_squared
from collegium_reproduction.nearest.party import SampledRecords
from support.coordinators import coordinator_for
from support.digit_parties import NAMES, PARTIES, ROSTER, begin_ledger, members, run_config
from support.misbehaving import Unheard, Unreliable
from support.nearest import AGREED

from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.errors import (
    BudgetExceeded,
    ConfigurationError,
    QuorumNotReached,
    UnsupportedAccounting,
)
from collegium.parties.policy import PolicyConfig
from collegium.parties.teachers.splits import simulated_key
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.question import encode
from collegium.protocol.requests import Ask, SecureSumStep
from collegium_accounting.analysis.account import account
from collegium_accounting.mechanisms import create

pytestmark = pytest.mark.slow

NOISE = {"threshold": 9.0, "sigma1": 4.0, "sigma2": 3.0, "sampling_rate": 0.3}

SETTINGS: dict[str, Any] = {
    "mechanism": {"name": "knn", "parameters": NOISE},
    "neighbours": {"features": "hog", "dimensions": 16, "share": 0.045, "k": 20},
    "budget": {"epsilon": 60},
    "queries": {"count": 30, "batch": 12},
    "votes": {"mode": "clear", "quorum": 0.5},
}


def config(**changes: Any) -> RunConfig:
    return run_config(SETTINGS, changes)


class Consortium(Unreliable):
    """Parties, and who is cut off at which request."""

    def __init__(self, private: Examples, folder: Path, silent: Unheard | None = None, **options: Any) -> None:
        super().__init__(members(private, folder, **options), "trial")
        self._unheard = silent or self._unheard


def labels(folder: Path) -> list[list[str]]:
    with (folder / "labels.csv").open(encoding="utf-8") as file:
        return list(csv.reader(file))


def purposes(consortium: Consortium) -> list[tuple[str, int]]:
    asked = [question for name, question in consortium.questions() if name == NAMES[0]]
    return [(question.terms.stage, len(question.inputs.indices)) for question in asked]


@pytest.fixture
def go(public: PublicData, private: Examples, tmp_path: Path) -> Callable[..., Any]:
    def run(
        folder: str = "run",
        *,
        silent: Any = None,
        vote_sum: Any = None,
        agreed: Any = None,
        records: Examples | None = None,
        **changes: Any,
    ) -> Any:
        consortium = Consortium(records or private, tmp_path / "parties", silent, agreed=agreed)
        begin_ledger(tmp_path / folder)
        coordinator = coordinator_for(
            config(**changes), consortium, tmp_path / folder, public=public, signing_keys=ROSTER, vote_sum=vote_sum
        )
        run.consortium = consortium  # type: ignore[attr-defined]
        return coordinator.label()

    return run


def test_clear_and_masked_sums_give_the_same_labels_and_each_stage_its_own_sample(go: Any, tmp_path: Path) -> None:
    clear = go("clear")
    stages = purposes(go.consortium)
    masked = go("masked", votes__mode="masked")
    assert labels(tmp_path / "clear") == labels(tmp_path / "masked")
    assert clear.labels.answered > 15 and clear.labels.quality.accuracy > 0.9
    assert masked.privacy.epsilon == clear.privacy.epsilon
    assert [stage for stage, _ in stages] == ["threshold", "release"] * (len(stages) // 2)
    assert sum(size for stage, size in stages if stage == "release") == clear.labels.answered


def test_every_question_is_charged_before_it_is_asked(go: Any, tmp_path: Path) -> None:
    seen: list[int] = []

    def watching(name: str, body: Any) -> bool:
        if isinstance(body, Ask) and name == NAMES[0]:
            paid = sum(entry.content.queries for entry in charges(tmp_path / "run"))
            seen.append(paid - asked[0])
            asked[0] += body.question.shape[0]
        return False

    asked = [0]
    go(silent=watching)
    assert len(seen) >= 4 and min(seen) > 0


def charges(folder: Path) -> list[Any]:
    ledger = Ledger.read(folder / "ledger.sqlite")
    try:
        return [entry for entry in ledger.entries() if type(entry.content).__name__ == "Charge"]
    finally:
        ledger.close()


def test_who_drops_out_between_its_answer_and_the_sum_is_left_out_of_it(go: Any, tmp_path: Path) -> None:
    masked = {"votes__mode": "masked"}
    dropped = go("dropped", silent=lambda n, b: n == NAMES[3] and isinstance(b, SecureSumStep), **masked)
    assert sorted({name for name, asked in go.consortium.questions() if asked.terms.stage == "threshold"}) == NAMES
    assert NAMES[3] in dropped.rounds[0].failed
    go("without", silent=lambda n, b: n == NAMES[3], **masked)
    assert labels(tmp_path / "dropped") == labels(tmp_path / "without")


STRICT = PolicyConfig(**AGREED, minimum_noise_votes=1, queries=1000, record_epsilon=1000.0, few_parties=True)
"""Agrees to one exact sum about an input."""


@pytest.mark.parametrize("stage", ["threshold", "release"])
def test_a_run_goes_on_with_the_parties_of_its_first_sums_about_an_input_once_these_are_back(
    stage: str, go: Any
) -> None:
    """``stage``: the one for which the last party is away; the first start ends before anything is released."""
    again = {"agreed": STRICT, "votes__mode": "masked", "queries": {"count": 4, "batch": 4}}
    now = [""]

    def away(name: str, body: Any) -> bool:
        now[0] = body.question.terms.stage if isinstance(body, Ask) else now[0]
        return (name == NAMES[3] and now[0] == stage) or (stage == "threshold" and now[0] == "release")

    with pytest.raises(QuorumNotReached):
        go(silent=away, **again)
    missing = NAMES[3] if stage == "release" else NAMES[0]
    with pytest.raises(QuorumNotReached, match=f"{missing} must be there"):
        go(silent=lambda name, _: name == missing, **again)
    assert go.consortium.questions() == []
    assert go(**again).labels.stopped is None
    assert {name for name, _ in go.consortium.questions()} == set(NAMES if stage == "release" else NAMES[:3])


def test_parties_that_keep_dropping_out_stop_the_run_with_a_line_that_says_so(go: Any) -> None:
    left, gone = NAMES[1:], set()

    def falling(name: str, body: Any) -> bool:
        if isinstance(body, Ask) and left and name == left[-1]:
            gone.add(left.pop())
        return name in gone

    with pytest.raises(QuorumNotReached, match="start the run again"):
        go(silent=falling)


def test_an_interrupted_run_is_taken_up_without_another_charge_and_gives_the_same_labels(
    go: Any, tmp_path: Path
) -> None:
    go("whole")
    for stage in ("threshold", "release"):
        with pytest.raises(QuorumNotReached):
            go("cut", silent=lambda n, b, p=stage: isinstance(b, Ask) and b.question.terms.stage == p)
    go("cut")
    assert labels(tmp_path / "whole") == labels(tmp_path / "cut")
    sizes = {name: [one.content.queries for one in charges(tmp_path / name)] for name in ("whole", "cut")}
    assert sizes["cut"] == sizes["whole"]


def test_the_exact_mode_answers_through_the_same_interface_and_nearly_the_same(
    go: Any, public: PublicData, private: Examples, tmp_path: Path
) -> None:
    records = {
        name: SampledRecords(
            private.take(np.arange(number, len(private), PARTIES)), config().task.inputs, simulated_key(1, name)
        )
        for number, name in enumerate(NAMES)
    }
    exact = ExactNearest(records, public.pool.x, "trial")
    run = go("exact", vote_sum=exact)
    assert run.labels.quality.accuracy > 0.9
    assert go.consortium.questions() == [], "nobody was asked over the protocol"
    go("binned", neighbours__bins=256)
    same = [a == b for a, b in zip(labels(tmp_path / "exact"), labels(tmp_path / "binned"), strict=True)]
    assert np.mean(same) > 0.9


def no_network() -> bytes:
    raise AssertionError("nobody asked for a network pretrained on the pool")


def test_a_network_pretrained_on_the_pool_finds_the_records_and_is_made_once(go: Any, tmp_path: Path) -> None:
    few = {"count": 4, "batch": 2}
    student = {"method": "contrastive", "options": {"contrast_steps": 3}}
    run = go("learned", neighbours__features="pretrained", queries=few, student=student)
    assert run.labels.answered + run.labels.abstained == 4
    sent = {body.features.digest(): body.features for _, body in go.consortium.questions()}
    assert [one.name for one in sent.values()] == ["network"], "every question names the same one"
    assert len(list(tmp_path.rglob("pretrained-*.safetensors"))) == 1
    go("again", neighbours__features="pretrained", queries=few, student=student)
    assert {body.features.digest() for _, body in go.consortium.questions()} == set(sent)


def test_edges_are_finest_where_the_kth_neighbour_is_expected() -> None:
    features = np.random.default_rng(0).normal(0, 300, (2000, 6)).astype(np.int16)
    edges = nearest_edges_squared(features, np.arange(5), 0.05, 64)
    assert edges.shape == (5, 63) and (np.diff(edges, axis=1) >= 0).all()
    distances = np.sort(np.square(features.astype(np.int64) - features[0]).sum(axis=1))
    shares = np.searchsorted(distances, edges[0]) / len(features)
    assert abs(shares[31] - 0.05) < 0.002 and shares[0] < 0.003 and shares[-1] > 0.99
    assert np.diff(shares)[29:33].max() < 0.0026, "a twentieth of the k nearest to an interval"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"votes__mode": "masked+noised"},
            "does not suit knn, which works with 'clear' or 'masked'; .* individual-knn",
        ),
        ({"neighbours__records_at_least": 60}, "expected to hold 18"),
        ({"neighbours__k": None}, "neighbours.k: Input should be a valid integer"),
        ({"neighbours": None}, "belong together"),
        ({"neighbours__features": "network"}, "need the setting network"),
        ({"budget__unit": "party"}, "must be 'record'"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        config(**changes)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.01, float("nan")])
def test_a_sampling_rate_outside_its_range_is_refused(rate: float) -> None:
    with pytest.raises(ConfigurationError, match="sampling_rate"):
        create("knn", k=20, classes=10, **NOISE | {"sampling_rate": rate})


def test_data_dependent_accounting_is_refused_under_sampling() -> None:
    mechanism: Any = create("knn", k=20, classes=10, **NOISE)
    with pytest.raises(UnsupportedAccounting, match="Poisson"):
        account(mechanism, votes=np.ones((1, 10), dtype=np.int64))


def test_a_budget_below_one_query_stops_before_anyone_is_asked(go: Any) -> None:
    with pytest.raises(BudgetExceeded, match="does not fit"):
        go(budget__epsilon=0.05)
    assert go.consortium.questions() == []


def test_samples_of_fewer_than_k_go_on_in_silence(go: Any) -> None:
    """Stopping, or saying so, would tell how many records were sampled, and nobody paid for that."""
    run = go(neighbours__k=1000, neighbours__share=0.9)
    assert run.labels.answered > 0
    assert "1000" not in run.labels.model_dump_json() and run.cautions == go("other").cautions


EVERYTHING_PASSES = {"mechanism": {"name": "knn", "parameters": NOISE | {"threshold": -1000.0}}}


@pytest.mark.parametrize("mode", ["clear", "masked"])
def test_each_stage_is_one_question_and_what_is_asked_depends_on_no_record(
    mode: str, go: Any, private: Examples
) -> None:
    """An institution that knew all other records read one from the distances that were asked about next."""
    data = {
        "all": private,
        "one record less": private.take(np.arange(len(private) - 1)),
        "another label": Examples(private.x, np.append(private.labels()[:-1], (private.labels()[-1] + 1) % 10)),
        "few, of one class": Examples(private.x[:40], np.zeros(40, dtype=np.int64)),
    }
    asked: dict[str, list[tuple[str, bytes]]] = {}
    for name, records in data.items():
        go(
            name.replace(" ", "-"),
            records=records,
            votes__mode=mode,
            queries={"count": 6, "batch": 6},
            **EVERYTHING_PASSES,
        )
        assert [stage for stage, _ in purposes(go.consortium)] == ["threshold", "release"]
        asked[name] = [(party, encode(question)) for party, question in go.consortium.questions()]
    assert all(what == asked["all"] for what in asked.values())
