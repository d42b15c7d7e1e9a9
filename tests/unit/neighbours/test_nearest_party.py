"""A party's part in the nearest of a sample: coins, distances, learned features, its own account and refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from collegium_reproduction.exact_nearest import closest
from collegium_reproduction.nearest.party import Sampler, intervals_of
from collegium_reproduction.nearest.question import CountNearest
from safetensors.numpy import save
from support.liar_networks import follow_company, largest, ordinary
from support.nearest import AGREED
from support.record_votes import RECORDS, TASK, Clinic, plane, records

from collegium.coordinator.selection.pool_geometry import fit_features, standard_scaling
from collegium.data import Examples
from collegium.data.task import ImageInputs, Task
from collegium.errors import DataError, ProtocolViolation, Refused, StorageError
from collegium.models.devices import each_alone
from collegium.models.features import Features, dimensions, distances_squared, extract
from collegium.models.networks import build_network, network_inputs
from collegium.models.quantising import quantised
from collegium.models.whole_layers import ONE as WHOLE_ONE
from collegium.parties.answer_book import AnswerBook
from collegium.parties.answers import Answer
from collegium.parties.neighbours import search as search_module
from collegium.parties.neighbours.search import Search
from collegium.parties.policy import Policy, PolicyConfig, described
from collegium.protocol.kinds.near_records import weight_units
from collegium.protocol.messages import Request
from collegium.protocol.question import PoolRange, QuestionTerms
from collegium.protocol.replies import Counts, Failure
from collegium.protocol.requests import Ask
from collegium_accounting.divergences.independent import sampled_gaussian_curve
from collegium_accounting.game.laws import RenyiLaw, together
from collegium_accounting.renyi import WIDE_ORDERS

DIGITS = Task(classes=tuple("0123456789"), inputs=ImageInputs(height=8, width=8))
PARAMETERS = {"k": 30.0, "classes": RECORDS, "threshold": 20.0, "sampling_rate": 0.4, "sigma1": 9.0, "sigma2": 4.0}


def question(clinic: Clinic, *, positions: tuple[int, ...] = (0, 1, 2), **changes: Any) -> CountNearest:
    parameters = PARAMETERS | changes.pop("parameters", {})
    terms = QuestionTerms(changes.pop("mechanism", "knn"), parameters, changes.pop("adjacency", "add-remove"),
                  changes.pop("mode", "clear"), changes.pop("stage", "release"), changes.pop("honest", 0))  # fmt: skip
    body = CountNearest(
        terms,
        "ledger",
        Features("raw"),
        PoolRange(clinic.pool.sha256, positions),
        RECORDS,
        np.array([[100**2, 300**2]] * len(positions), dtype=np.int64),
    )
    return replace(body, **changes)


def test_samples_are_poisson_and_independent_over_questions() -> None:
    """20,000 people, 40 questions: sizes and overlaps within 6 deviations (failure below 1e-6 in all)."""
    people, rate = 20_000, 0.15
    sampler = Sampler(b"s" * 32, [str(number).encode() for number in range(people)])
    drawn = np.stack([sampler.drawn(f"question {number}".encode(), rate) for number in range(40)])
    sizes, spread = drawn.sum(axis=1), math.sqrt(people * rate * (1 - rate))
    assert (np.abs(sizes - people * rate) < 6 * spread).all()
    both = (drawn[:-1] & drawn[1:]).sum(axis=1)
    assert (np.abs(both - people * rate**2) < 6 * math.sqrt(people * rate**2 * (1 - rate**2))).all()
    assert sampler.drawn(b"all", 1.0).all() and not sampler.drawn(b"none", 1e-12).any()


def test_samples_repeat_for_a_question_and_do_not_depend_on_who_else_is_there() -> None:
    names = [str(number).encode() for number in range(500)]

    def sampled(key: bytes, people: list[bytes]) -> np.ndarray:
        sampler = Sampler(key, people)
        return sampler.drawn(b"question", 0.5)[sampler.person]

    whole = sampled(b"s" * 32, names)
    assert (whole == sampled(b"s" * 32, names)).all()
    assert (np.delete(whole, 100) == sampled(b"s" * 32, names[:100] + names[101:])).all()
    assert (whole != sampled(b"t" * 32, names)).any(), "another party, other coins"


def test_counts_between_other_distances_are_about_the_same_records() -> None:
    clinic = Clinic(None)
    far = clinic.ask(question(clinic))
    finer = np.array([[100**2, 200**2, 300**2, 400**2]] * 3, dtype=np.int64)
    near = clinic.ask(question(clinic, edges_squared=finer), round_id="finer")
    assert isinstance(far, Counts) and isinstance(near, Counts)
    assert far.counts.shape == (3, 3 * RECORDS) and near.counts.shape == (3, 5 * RECORDS)
    by_class, inside = far.counts.reshape(3, 3, RECORDS), near.counts.reshape(3, 5, RECORDS)
    merged = [inside[:, 0], inside[:, 1] + inside[:, 2], inside[:, 3] + inside[:, 4]]
    assert (by_class == np.stack(merged, axis=1)).all() and inside.any(axis=(0, 2))[1:].all()
    assert 0 < far.counts.sum() < 3 * RECORDS
    assert (clinic.ask(question(clinic), round_id="again").counts == far.counts).all()


def test_an_entry_counts_the_records_of_one_class_in_one_interval() -> None:
    """By the definition, where everybody is in the sample; every record has a class of its own."""
    clinic = Clinic(None)
    answer = clinic.ask(question(clinic, parameters={"sampling_rate": 1.0})).counts.reshape(3, 3, RECORDS)
    whole = np.floor(records().x.astype(float) * 1024 + 0.5)
    for row in range(3):
        asked = np.floor(plane(60, 2)[row].astype(float) * 1024 + 0.5)
        inside = np.searchsorted([100**2, 300**2], ((whole - asked) ** 2).sum(axis=1), side="right")
        assert (answer[row] == (np.arange(3)[:, None] == inside)).all()


@pytest.mark.parametrize(
    "other", [{"stage": "threshold"}, {"ledger_id": "other"}, {"parameters": {"sigma1": 8.0}}, {"run": "other"}]
)
def test_another_question_has_a_fresh_sample(other: dict[str, Any]) -> None:
    """800 coins of 0.4 agree with probability 0.52 where independent: within 0.3 to 0.7, 12 and 10 deviations."""
    clinic = Clinic(None)
    everywhere = {
        "positions": tuple(range(20)),
        "edges_squared": np.full((20, 2), 2**50, dtype=np.int64),
    }
    run = other.get("run", "run")
    first = clinic.ask(question(clinic, **everywhere))
    changes = {name: value for name, value in other.items() if name != "run"}
    second = clinic.ask(question(clinic, **everywhere, **changes), run=run, round_id="other")
    agree = (first.counts[:, :RECORDS] == second.counts[:, :RECORDS]).mean()
    assert 0.3 < agree < 0.7


def test_counts_stop_at_k() -> None:
    """Of one class in one interval: no more of them can be among the k nearest."""
    clinic = Clinic(None)
    clinic.restart(Examples(records().x, np.zeros(RECORDS, dtype=np.int64)))
    everybody = clinic.ask(question(clinic, parameters={"k": 30.0, "sampling_rate": 1.0})).counts
    assert everybody.max() > 3
    capped = clinic.ask(question(clinic, parameters={"k": 3.0, "sampling_rate": 1.0}), round_id="capped").counts
    assert (capped == np.minimum(everybody, 3)).all()


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"mode": "masked+noised", "honest": 3}, "refused-mode", "of this mode"),
        ({"mechanism": "gnmax"}, "refused-mechanism", "does not agree"),
        ({"adjacency": "replace"}, "refused-mechanism", "does not agree"),
        ({"parameters": {"sigma2": 0.0}}, "refused-mechanism", "does not agree"),
        ({"parameters": {"classes": 7}}, "refused-mechanism", "does not agree"),
        ({"stage": "curiosity"}, "refused-mechanism", "does not agree"),
        ({"stage": ""}, "refused-mechanism", "does not agree"),
        ({"positions": (0, 99)}, "protocol", "outside the pool"),
        ({"features": Features("raw", np.ones((3, 1), dtype=np.float32))}, "data", "3 features"),
        ({"features": Features("standard", scaling=np.ones((2, 9), dtype=np.float32))}, "data", "9 columns"),
        ({"features": Features("hog")}, "data", "for images"),
    ],
)
def test_a_party_refuses_what_it_cannot_answer(changes: dict[str, Any], code: str, says: str) -> None:
    clinic = Clinic(None)
    edges = {"edges_squared": np.array([[1, 2]] * len(changes.get("positions", (0, 1, 2))), dtype=np.int64)}
    answer = clinic.ask(question(clinic, **edges, **changes))
    assert isinstance(answer, Failure) and answer.code == code and says in answer.message


@pytest.mark.parametrize(
    "wrong",
    [
        {"parameters": {"sampling_rate": 0.0}},
        {"parameters": {"sampling_rate": 1.5}},
        {"parameters": {"k": 0.5}},
        {"edges_squared": np.array([[2, 1]] * 3, dtype=np.int64)},
        {"edges_squared": np.array([[1, 2]] * 2, dtype=np.int64)},
        {"edges_squared": np.zeros((3, 0), dtype=np.int64)},
    ],
)
def test_a_request_that_cannot_be_right_does_not_exist(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProtocolViolation):
        question(Clinic(None), **wrong)


@pytest.mark.parametrize(("stage", "l2"), [("threshold", 1.0), ("release", math.sqrt(2.0))])
def test_the_partys_own_charge_is_the_sampled_gaussians(stage: str, l2: float) -> None:
    asked = question(Clinic(None), stage=stage)
    sigma = PARAMETERS["sigma1" if stage == "threshold" else "sigma2"]
    ours = together(stage.law(described(asked).unit()) for stage in asked.stages())
    assert isinstance(ours, RenyiLaw)
    np.testing.assert_allclose(ours.values, sampled_gaussian_curve(l2, sigma, 0.4, WIDE_ORDERS).values, rtol=1e-12)


def test_a_policy_ends_what_sampled_neighbours_may_cost_a_record(tmp_path: Path) -> None:
    config = PolicyConfig(**AGREED, record_epsilon=2.0, sum_modes=("clear",))
    account = AnswerBook(tmp_path, "clinic", config, None)
    clinic = Clinic(tmp_path, policy=Policy(config), account=account)
    answered = []
    for number in range(12):
        positions = (3 * number, 3 * number + 1, 3 * number + 2)
        answered.append(clinic.ask(question(clinic, positions=positions), round_id=f"round-{number}"))
    refused = [one for one in answered if isinstance(one, Failure)]
    assert 4 < len(refused) < 12 and {one.code for one in refused} == {"refused-cost"}
    assert 1.0 < account.record_spent() <= 2.0 and account.spent() == 0.0
    account.close()
    again = AnswerBook(tmp_path, "clinic", config, None)
    assert again.record_spent() > 1.0, "the spending outlives the process"
    again.close()
    poor = AnswerBook(tmp_path / "poor", "clinic", config.model_copy(update={"record_epsilon": 0.01}), None)
    with pytest.raises(Refused, match="record_epsilon"):
        asked = question(clinic, positions=(1, 2))
        poor.leave(Answer.to("run", asked, [b"one", b"two"], b""), np.zeros((2, 2), dtype=np.int64))
    poor.close()


@pytest.mark.parametrize("scale", [1, 400, 30_000])
def test_search_finds_exactly_what_whole_numbers_say(scale: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "_DISTANCES_AT_ONCE", 2000)
    generator = np.random.default_rng(scale)
    records = generator.integers(-scale, scale + 1, (700, 33)).astype(np.int16)
    records[100:200] = records[0]
    records[200:300] = records[0] + 1
    queries = np.concatenate([records[:1], generator.integers(-scale, scale + 1, (6, 33)).astype(np.int16)])
    exact = np.square(records.astype(np.int64)[:, None] - queries.astype(np.int64)).sum(axis=2)
    some = np.flatnonzero(generator.random(700) < 0.7)
    for number, view in enumerate(Search(records).views(queries)):
        truth = exact[:, number]
        assert (np.abs(view.near.astype(np.float64) - truth) <= view.error).all()
        assert (view.exact(some) == truth[some]).all()
        edges = np.sort(np.concatenate([truth[:5], truth[::50], truth[::50] + 1]))
        assert (intervals_of(view, some, edges) == np.searchsorted(edges, truth[some], side="right")).all()
        for k in (1, 40, 150, 2000):
            rows, found = closest(view, some, k)
            last = np.sort(truth[some])[min(k, len(some)) - 1]
            assert sorted(rows) == sorted(some[truth[some] <= last]) and (found == truth[rows]).all()


@pytest.mark.parametrize("columns", [3, 64])
def test_records_on_the_border_of_a_radius_are_decided_in_whole_numbers(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 records are planted one unit inside, on and outside of a radius that single precision cannot resolve."""
    monkeypatch.setattr(search_module, "_DISTANCES_AT_ONCE", 20_000)
    generator = np.random.default_rng(columns)
    records = generator.integers(-30_000, 30_001, (3000, columns)).astype(np.int16)
    query = generator.integers(-9000, 9001, columns).astype(np.int16)
    near = query + generator.integers(4000, 7001, columns)
    records[:1000:5] = near.astype(np.int16)
    truth = np.square(records.astype(np.int64) - query).sum(axis=1)
    assert truth[0] > 2**25, "single precision does not hold it"
    for radius in (truth[0] - 1, truth[0], truth[0] + 1):
        for kernel in ("flat", "quadratic"):
            (view,) = Search(records).within(query[None], np.array([radius]))
            weigh = partial(weight_units, radius_squared=int(radius), kernel=kernel, levels=7)
            units = view.steps(np.arange(len(view.rows)), weigh)
            everywhere = weight_units(truth, int(radius), kernel, 7)
            assert sorted(view.rows[units > 0]) == np.flatnonzero(everywhere).tolist()
            assert (units == everywhere[view.rows]).all()


def test_the_products_of_a_gpu_are_exact() -> None:
    """The same lines on torch's CPU: double precision holds whole numbers of this size exactly."""
    generator = np.random.default_rng(0)
    records, queries = (generator.integers(-30_000, 30_001, (n, 50)).astype(np.int16) for n in (300, 7))
    search = Search(records)
    exact = np.square(records.astype(np.int64) - queries[:, None].astype(np.int64)).sum(axis=2)
    near = torch.empty((7, 290), dtype=torch.float64)
    assert (search._near_on_gpu(queries, 10, near).numpy() == exact[:, 10:]).all()


def test_search_would_miss_without_the_error_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search, "_error", lambda search, query: 0.0)
    with pytest.raises(AssertionError):
        test_search_finds_exactly_what_whole_numbers_say(30_000, pytest.MonkeyPatch())
    with pytest.raises(AssertionError):
        test_records_on_the_border_of_a_radius_are_decided_in_whole_numbers(64, pytest.MonkeyPatch())


def test_search_refuses_features_of_another_dimension() -> None:
    with pytest.raises(DataError, match="dimensions"):
        list(Search(np.zeros((3, 4), np.int16)).views(np.zeros((1, 5), np.int16)))


def network(name: str = "small-cnn") -> bytes:
    torch.manual_seed(0)
    made = build_network(name, DIGITS)
    made.train()
    made(torch.rand(64, 1, 8, 8))  # so that batch normalisation has seen something
    return quantised([made], DIGITS, network_inputs(images(300))).to_bytes()


def images(count: int) -> np.ndarray:
    return np.random.default_rng(4).integers(0, 256, (count, 8, 8, 1)).astype(np.uint8)


def test_network_features_of_a_record_are_the_same_in_any_company() -> None:
    features = Features("network", network=network())
    x = images(300)
    together = extract(features, x, DIGITS.inputs)
    assert together.shape == (300, dimensions(features, DIGITS.inputs)) and together.any()
    shuffled = np.random.default_rng(5).permutation(300)[:137]
    assert (extract(features, x[shuffled], DIGITS.inputs) == together[shuffled]).all()
    assert (extract(features, x[7:8], DIGITS.inputs) == together[7:8]).all()
    assert (extract(features, x[:20], DIGITS.inputs, "auto") == together[:20]).all()
    length = np.sqrt(np.square(together.astype(float)).sum(axis=1))
    assert np.abs(length / WHOLE_ONE - 1).max() < 0.01


def test_features_of_the_largest_numbers_are_the_same_in_any_company(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that cancel, and are as large as they may be. Planted: numbers of the company."""
    x = images(40)
    for made in (largest(DIGITS), ordinary(DIGITS)):
        features = Features("network", network=made)
        alone = np.concatenate([extract(features, x[[row]], DIGITS.inputs) for row in range(40)])
        assert (extract(features, x, DIGITS.inputs) == alone).all()
        assert (extract(features, x[1:4], DIGITS.inputs) == alone[1:4]).all()
    assert alone.any()

    follow_company(monkeypatch)
    assert (extract(features, x[1:4], DIGITS.inputs) != alone[1:4]).any()


def test_a_number_that_depends_on_the_company_is_computed_alone() -> None:
    """Also where it fails, gives another shape or no finite number; nothing is told of that but a 0."""
    x = np.arange(5.0, dtype=np.float32)[:, None]

    def asked(block: np.ndarray) -> Any:
        kind = int(block[0, 0]) if len(block) == 1 else 9
        return [[1.0, 2.0], [np.nan, 3.0], [np.inf, -np.inf], [7.0], [1 / (kind - 4), 5.0]][kind]

    found = each_alone(asked, x, 2)
    assert found.tolist() == [[1, 2], [0, 3], [0, 0], [0, 0], [0, 0]]
    addresses = {each_alone(lambda one: [one.ctypes.data % 64], x[start:], 1).max() for start in range(4)}
    assert addresses == {0}


def test_ranks_among_values_out_of_order_are_refused() -> None:
    """A search in them begins where that for the record before it ended, and so tells of that record."""
    column = np.array([[2.0], [0.0], [3.0], [1.0]], dtype=np.float32)
    company = (-1.0, 0.5, 1.5, 2.5, 3.5)
    assert len({np.searchsorted(column[:, 0], np.float32([first, 1.5]))[1] for first in company}) > 1
    with pytest.raises(ProtocolViolation, match="ascending"):
        Features("ranks", scaling=column)


def test_a_network_for_other_inputs_or_none_at_all_is_refused() -> None:
    features = Features("network", network=network())
    with pytest.raises(DataError, match="other inputs"):
        dimensions(features, ImageInputs(height=28, width=28))
    for broken in (b"not a network", save({"weight": np.zeros(3)})):
        with pytest.raises(StorageError, match="network"):
            dimensions(Features("network", network=broken), DIGITS.inputs)


def test_standard_columns_are_scaled_by_the_pool_alone() -> None:
    clinic = Clinic(None)
    pool = np.asarray(clinic.pools.open(clinic.pool.sha256)[np.arange(60)])
    features = fit_features("standard", None, pool, TASK.inputs)
    values = extract(features, pool, TASK.inputs)
    assert np.abs(values.mean(axis=0)).max() < 2
    assert np.abs(values.std(axis=0)[[0, 2]] - 1024).max() < 2 and not values[:, [1, 3]].any()
    assert (standard_scaling(pool) == features.scaling).all()
    answer = clinic.ask(question(clinic, features=features))
    assert isinstance(answer, Counts)
    assert distances_squared(values, values[:2]).dtype == np.int64


def test_requests_with_every_kind_of_features_survive_the_wire() -> None:
    clinic = Clinic(None)
    scaling = np.arange(8, dtype=np.float32).reshape(2, 4)
    for features in (Features("standard", scaling=scaling), Features("network", network=network())):
        sent = Request("request", "run", Ask("round", question(clinic, features=features)))
        again = Request.from_bytes(sent.to_bytes())
        assert again.to_bytes() == sent.to_bytes()
        assert again.body.question.features.digest() == features.digest() != Features("raw").digest()
