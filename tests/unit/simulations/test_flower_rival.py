"""Federated averaging by Flower, beside which benchmarks put the default, protects what it says: no Ray is started."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from benchmarks.flower_rival import Records, Trial, answer, gradient, keep, strategy_of, trained
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

FEATURES, CLASSES, LENGTH = 1000, 4, 0.01
SIZES = (3, 5, 400)


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Flower sets in a process that runs an app; a message cannot be made without it."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def parties(tmp_path: Path) -> list[Records]:
    """Two small parties and a large one, whose records lie where clients find them."""
    generator = np.random.default_rng(0)
    parts = [
        (generator.normal(size=(size, FEATURES)).astype(np.float32), generator.integers(CLASSES, size=size))
        for size in SIZES
    ]
    keep(parts, tmp_path)
    return parts


class Clients:
    """A grid whose nodes answer at once; those in ``away`` do not."""

    def __init__(self, count: int, away: Iterable[int] = ()) -> None:
        self.count, self.away = count, set(away)

    def get_node_ids(self) -> list[int]:
        return list(range(1, self.count + 1))

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        nodes = {message.metadata.dst_node_id - 1: message for message in messages}
        return [reply_of(number, nodes[number]) for number in sorted(nodes) if number not in self.away]


def reply_of(number: int, message: Message) -> Message:
    return answer(message, Context(1, number, {"partition-id": number}, RecordDict(), {}))


def start() -> ArrayRecord:
    return ArrayRecord({"weights": Array(np.zeros((FEATURES, CLASSES), dtype=np.float32))})


def test_a_record_moves_the_sum_of_gradients_by_its_clipping_at_most() -> None:
    generator = np.random.default_rng(0)
    x, labels = generator.normal(size=(9, 20)).astype(np.float32), generator.integers(CLASSES, size=9)
    weights = generator.normal(size=(20, CLASSES)).astype(np.float32)

    def moved(noise: float | None) -> float:
        sums = [
            len(own) / 20**0.5 * gradient((own, labels[: len(own)]), weights, noise, generator) for own in (x, x[:-1])
        ]
        return float(np.linalg.norm(sums[0] - sums[1]))

    x[-1] *= 50
    labels[-1] = (x[-1] @ weights).argmin()  # as wrong as can be
    assert moved(0.0) == pytest.approx(1.0, rel=1e-4)
    assert moved(None) > 10


def aggregate(trial: Trial, folder: Path, removed: int | None = None, weigh: bool = False) -> np.ndarray:
    """The weights after one round; the update of a party that is ``removed`` is next to nothing."""
    strategy = strategy_of(trial, 3)
    config = ConfigRecord({"folder": str(folder), "seed": [0, 0], "rate": trial.rate})
    replies = []
    for message in strategy.configure_train(1, start(), config, Clients(3)):
        party = message.metadata.dst_node_id - 1
        reply = reply_of(party, message)
        if party == removed:
            nothing = np.full((FEATURES, CLASSES), 1e-12, dtype=np.float32)
            reply.content["arrays"] = ArrayRecord({"weights": Array(nothing)})
        if weigh:
            reply.content["metrics"] = MetricRecord({"num-examples": SIZES[party]})
        replies.append(reply)
    arrays, _metrics = strategy.aggregate_train(1, replies)
    assert arrays is not None
    return arrays["weights"].numpy()


def test_no_party_moves_the_mean_further_than_the_noise_allows_for(parties: list[Records], tmp_path: Path) -> None:
    exact = Trial(1.0, 0.0, LENGTH)

    def moved(removed: int, weigh: bool = False) -> float:
        found = aggregate(exact, tmp_path, weigh=weigh) - aggregate(exact, tmp_path, removed, weigh)
        return float(np.linalg.norm(found))

    assert [moved(party) for party in range(3)] == pytest.approx([LENGTH / 3] * 3, rel=1e-4)
    assert moved(2, weigh=True) > 2.9 * LENGTH / 3  # weighted by records, as FedAvg would have it


def test_the_noise_on_the_mean_is_the_multiplier_on_the_sum(parties: list[Records], tmp_path: Path) -> None:
    noise = aggregate(Trial(1.0, 7.0, LENGTH), tmp_path) - aggregate(Trial(1.0, 0.0, LENGTH), tmp_path)
    # Of 4,000 numbers: further away with a chance of 1e-6.
    assert (noise**2).mean() == pytest.approx((7.0 * LENGTH / 3) ** 2, rel=0.12)


def test_a_client_that_does_not_answer_is_not_passed_over(parties: list[Records], tmp_path: Path) -> None:
    config = {"folder": str(tmp_path), "seed": [0, 0]}
    found = trained(Clients(3), Trial(1.0, 0.1), 3, start(), config)
    assert found.shape == (FEATURES, CLASSES) and found.any()
    with pytest.raises(RuntimeError, match="of 3 clients answered"):
        trained(Clients(3, away=[1]), Trial(1.0, 0.1), 3, start(), config)
