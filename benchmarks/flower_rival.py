"""Federated averaging by Flower: the rival ``dp-fedavg`` of `benchmarks.frontier` and `benchmarks.party_unit`.

Flower's simulation engine carries the messages and Flower's own strategies average: `FedAvg` and, where a whole party
is protected, its wrapper `DifferentialPrivacyServerSideFixedClipping`. Ours is what a client does in a round: 4
full-batch steps of multinomial logistic regression on its own records. One run of the engine serves all rates and ε of
one split of a data set, one after the other. What each claim of ε rests on:

* **A record** (`Trial` without ``clipping``): a client clips the gradient of each record at 1 and adds the noise for
  all rounds and steps itself, so that neither the server nor how it averages matters. `FedAvg` weights by the numbers
  of records, which are not hidden.
* **A party** (with ``clipping``): the wrapper clips each update at C and adds noise of deviation z·C/n to each number
  of the mean, z being its noise multiplier and n the number of clients that it was told. That is a Gaussian mechanism
  with multiplier z on the sum of the updates if each counts for 1/n. `FedAvg` weights by numbers of records however,
  and a party with k times the mean number moves the mean k times as far as the noise allows for. Without an
  accountant of Flower's the wrapper does not look at the weights. So every client says here that it has one record.
* `FedAvg` also divides by the number of clients that answer, so that a party that stays away moves the mean by up to
  2·C/n. Here the number of parties counts as public, and a party that is removed as one whose update is nothing, to
  the rival's advantage. (Such an update, of length 0, ends the wrapper's clipping with a division by zero; parties
  without records therefore take no part.)
* The noise of the wrapper is from NumPy's global generator, rounded to 32 bits.
"""

import logging
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collegium.simulations.simulate import prepare_flower

if TYPE_CHECKING:
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy

ROUNDS, LOCAL_STEPS = 10, 4
RATES = (1.0, 4.0)
ACTORS = 2
Floats = NDArray[np.float32]
Records = tuple[Floats, NDArray[np.int64]]
"""φ and classes of a client's records."""


@dataclass(frozen=True)
class Trial:
    """One training.

    Parameters
    ----------
    noise : deviation of the noise on the sum of a client's clipped gradients, in each of its steps; with ``clipping``
        the wrapper's noise multiplier.
    clipping : length at which a client's whole update is clipped; None where records are protected.
    """

    rate: float
    noise: float
    clipping: float | None = None


def gradient(records: Records, weights: Floats, noise: float | None, generator: np.random.Generator) -> Floats:
    """The mean gradient, times the root of the number of features.

    With ``noise`` that of each record is clipped at 1, and noise is added to their sum.
    """
    x, labels = records
    scores = x @ weights
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    errors = shares / shares.sum(axis=1, keepdims=True) - np.eye(weights.shape[1], dtype=np.float32)[labels]
    if noise is not None:
        lengths = np.linalg.norm(errors, axis=1) * np.linalg.norm(x, axis=1)
        errors = errors / np.maximum(1.0, lengths)[:, None]
    total = x.T @ errors
    if noise is not None:
        total += generator.normal(0.0, noise, total.shape).astype(np.float32)
    found: Floats = total / len(x) * x.shape[1] ** 0.5
    return found


def keep(parts: Sequence[Records], folder: Path) -> None:
    """Write the records of each client where `answer` finds them."""
    for number, (x, labels) in enumerate(parts):
        np.save(folder / f"x-{number}.npy", x)
        np.save(folder / f"labels-{number}.npy", labels)


def answer(message: "Message", context: "Context") -> "Message":
    """What a client does with the model of a round: it trains it on its own records."""
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

    config, number = message.content.config_records["config"], int(context.node_config["partition-id"])
    given: Any = dict(config)
    x, labels = (np.load(Path(given["folder"]) / f"{name}-{number}.npy", mmap_mode="r") for name in ("x", "labels"))
    weights = message.content.array_records["arrays"]["weights"].numpy().copy()
    generator = np.random.default_rng([*given["seed"], given["server-round"], number])
    for _ in range(LOCAL_STEPS):
        weights -= given["rate"] * gradient((x, labels), weights, given.get("noise"), generator)
    arrays = ArrayRecord({"weights": Array(weights)})
    counted = MetricRecord({"num-examples": len(x) if "noise" in given else 1})
    return Message(RecordDict({"arrays": arrays, "metrics": counted}), reply_to=message)


def strategy_of(trial: Trial, clients: int) -> "Strategy":
    """Flower's own, for all clients; its metric of a round is how many answered."""
    from flwr.app import MetricRecord
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

    def count(replies: "list[RecordDict]", _key: str) -> "MetricRecord":
        return MetricRecord({"answered": len(replies)})

    mean = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients, train_metrics_aggr_fn=count
    )
    if trial.clipping is None:
        return mean
    return DifferentialPrivacyServerSideFixedClipping(mean, trial.noise, trial.clipping, clients)


def trained(grid: "Grid", trial: Trial, clients: int, start: "ArrayRecord", config: dict[str, Any]) -> Floats:
    """The weights after all rounds of one trial.

    Raises
    ------
    RuntimeError
        If a client did not answer: Flower's strategies go on without it.
    """
    from flwr.app import ConfigRecord

    asked = config | {"rate": trial.rate} | ({"noise": trial.noise} if trial.clipping is None else {})
    result = strategy_of(trial, clients).start(grid, start, num_rounds=ROUNDS, train_config=ConfigRecord(asked))
    answered = [metrics["answered"] for metrics in result.train_metrics_clientapp.values()]
    if answered != [clients] * ROUNDS:
        raise RuntimeError(f"of {clients} clients answered, by the round: {answered}")
    found: Floats = result.arrays["weights"].numpy()
    return found


def start_ray() -> None:
    """Start the engine's Ray beforehand: once Flower's server app runs, it waits for ever where Ray does not start."""
    import ray

    paths = os.pathsep.join([*sys.path, *filter(None, [os.environ.get("PYTHONPATH")])])
    ray.init(
        address="local",  # without an address Ray joins whatever cluster it finds on this machine
        num_cpus=ACTORS,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )


def averaged(parts: Sequence[Records], classes: int, trials: Sequence[Trial], seed: int) -> list[Floats]:
    """The weights ``[features, classes]`` of each trial, by one run of Flower's engine with a client for each part."""
    with TemporaryDirectory() as name:
        prepare_flower(Path(name))
        from flwr.app import Array, ArrayRecord
        from flwr.clientapp import ClientApp
        from flwr.serverapp import ServerApp
        from flwr.simulation import run_simulation

        keep(parts, Path(name))
        client, server, found = ClientApp(), ServerApp(), list[Floats]()
        client.train()(answer)

        @server.main()
        def _main(grid: "Grid", _context: "Context") -> None:
            start = ArrayRecord({"weights": Array(np.zeros((parts[0][0].shape[1], classes), dtype=np.float32))})
            np.random.seed(seed)  # the wrapper's noise
            for number, trial in enumerate(trials):
                config = {"folder": name, "seed": [seed, number]}
                found.append(trained(grid, trial, len(parts), start, config))

        logging.getLogger("flwr").setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start_ray()
            run_simulation(server, client, len(parts), backend_config={"client_resources": {"num_cpus": 1}})
        return found


def best_of(found: Sequence[Floats], test: NDArray[Any], truth: NDArray[np.int64]) -> NDArray[np.float64]:
    """The scores of test records by those weights that have most of these right, to the rival's advantage."""
    scores = [(test @ weights).astype(np.float64) for weights in found]
    return max(scores, key=lambda one: float((one.argmax(axis=1) == truth).mean()))
