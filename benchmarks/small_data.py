"""What DP-SGD by Opacus and class sums tell of one of 500 records, measured: an audit beside the ε that each reports.

``python -m benchmarks.small_data`` prints a table (Opacus: ``pip install opacus``). The records are 500 of the breast
cancer data that scikit-learn bundles; the other 69 are the public pool. A run is done with all 500, or with 499 of
them: without one that has the wrong diagnosis. An attacker who knows the 499, and all but the noise, says which it was.

* ``opacus, all at once``: logistic regression, one step of all records. The score is the step along what the record
  changes.
* ``opacus, fixed divisor``: the same, but divided by 500 whether the record is there or not.
* ``opacus, batches of 50``: a network of 64 hidden units, one epoch. The score is the mean square of all steps.
* ``class sums``: one sum as parties compute it, with the noise of a release. The score is the sum along the same.

Each reports ``--epsilon`` at δ = 1e-5 for a record added or removed. What is measured are lower bounds, each of which
is wrong with probability 0.05 at most. Half of the runs choose a threshold and the other half are judged by it: p and q
are the bounds of Clopper and Pearson on how often a run with and without the record is above it. For any mechanism
ε ≥ log((p − δ)/q). Where the score is normal with the same noise under both data sets, μ ≥ Φ⁻¹(p) − Φ⁻¹(q), and the
Gaussian mechanism of that μ says more (Dong, Roth and Su 2022).
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from collegium.coordinator.selection.kernel_choice import kernel_spec
from collegium.coordinator.settings.run_config import SumsConfig
from collegium.data import Examples
from collegium.data.task import Task
from collegium.models.kernels import KernelMap
from collegium.parties.kinds.class_sums import RecordsOfClasses
from collegium_accounting.analysis.audit import clopper_pearson
from collegium_accounting.game.gaussian import gaussian_epsilon
from collegium_accounting.mechanisms import SystemNoise
from collegium_accounting.mechanisms.class_sums import ClassSums, bound_squared
from collegium_accounting.units import IntArray

RECORDS, DELTA, FAILURE, CLIPPING = 500, 1e-5, 0.05, 0.1
BATCHES = "opacus, batches of 50"
Floats = NDArray[np.float64]
Data = tuple[Floats, NDArray[np.int64], Floats]
Score = Callable[[bool], float]
"""Of one run: with the record, or without it."""


def records(seed: int) -> Data:
    """Inputs ``[500, 30]`` and classes of the records, the last with the wrong class, and the pool's inputs."""
    held = load_breast_cancer()
    order = np.random.default_rng(seed).permutation(len(held.target))
    private, pool = order[:RECORDS], order[RECORDS:]
    mean, deviation = held.data[pool].mean(axis=0), held.data[pool].std(axis=0)
    x, y = (held.data - mean) / deviation, held.target.astype(np.int64)
    clearest = int(np.abs(x[private].mean(axis=1)).argmax())  # a record that nobody would take for the other class
    private[[clearest, -1]] = private[[-1, clearest]]
    labels = y[private]
    labels[-1] = 1 - labels[-1]
    return x[private], labels, x[pool]


def opacus_score(data: Data, epsilon: float, *, hidden: int = 0, batch: int = RECORDS, divisor: int = 0) -> Score:
    """Trains with all records, or with all but the last; see the module for the scores."""
    import torch
    from opacus import PrivacyEngine
    from opacus.accountants.utils import get_noise_multiplier
    from torch import nn

    x, y, _ = data
    inputs, classes = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y)
    rate = batch / RECORDS
    sigma = get_noise_multiplier(
        target_epsilon=epsilon, target_delta=DELTA, sample_rate=rate, steps=round(1 / rate), accountant="prv"
    )

    def model() -> Any:
        torch.manual_seed(0)  # the first weights are public
        below = [nn.Linear(x.shape[1], hidden), nn.Tanh()] if hidden else []
        made = nn.Sequential(*below, nn.Linear(hidden or x.shape[1], 2, bias=False))
        torch.seed()
        return made

    def trained(n: int, noise: float) -> list[Any]:
        """The steps of an epoch, each a vector."""
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(inputs[:n], classes[:n]), n if batch == RECORDS else batch
        )
        network = model()
        private, optimizer, batches = PrivacyEngine().make_private(
            module=network,
            optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
            data_loader=loader,
            noise_multiplier=noise,
            max_grad_norm=CLIPPING,
        )[:3]
        if divisor:
            optimizer.expected_batch_size = divisor
        steps = []
        before = nn.utils.parameters_to_vector(network.parameters()).detach().clone()
        for part, labels in batches:
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(private(part), labels))
            optimizer.step()
            after = nn.utils.parameters_to_vector(network.parameters()).detach().clone()
            steps.append(after - before)
            before = after
        return steps

    if hidden:
        return lambda there: -float(torch.cat(trained(RECORDS - (not there), sigma)).square().mean())
    direction = trained(RECORDS, 0.0)[0] - trained(RECORDS - 1, 0.0)[0]
    return lambda there: float(trained(RECORDS - (not there), sigma)[0] @ direction)


def class_sums(data: Data) -> tuple[IntArray, IntArray]:
    """The sum of all records, as parties compute it, and that of all but the last."""
    x, y, pool = data
    task = Task.model_validate({"classes": ["malignant", "benign"], "inputs": {"kind": "vector", "size": x.shape[1]}})
    inputs, public = x.astype(np.float32), pool.astype(np.float32)
    kernel = KernelMap.of_pool(kernel_spec(SumsConfig(), public, task.inputs, 2, 1.0, 0), public, task.inputs)
    everybody, others = (
        RecordsOfClasses(Examples(inputs[:n], y[:n]), task).sums(kernel) for n in (RECORDS, RECORDS - 1)
    )
    return everybody, others


def sums_score(data: Data, epsilon: float) -> Score:
    """The noisy sum of all records, or of all but the last, along what the last adds."""
    everybody, others = class_sums(data)
    sigma = ClassSums.within_budget({"classes": 2}, epsilon, DELTA)["sigma"] * bound_squared(2) ** 0.5
    direction = (everybody - others).astype(np.float64)
    noise = SystemNoise()

    def score(there: bool) -> float:
        released = (everybody if there else others) + np.asarray(noise.gaussian(sigma, direction.shape))
        return float(released.astype(np.float64) @ direction)

    return score


def measured(score: Score, runs: int) -> tuple[float, float, float]:
    """Lower bounds on ε, for any mechanism and for a Gaussian one, and the seconds that it took."""
    from scipy.special import ndtri

    began = time.monotonic()
    found = np.array([[score(True), score(False)] for _ in range(runs)])
    chosen, judged = found[: runs // 2], found[runs // 2 :]
    failure = FAILURE / 2.0

    def rates(threshold: float, of: Floats) -> tuple[float, float]:
        hits, others = (of >= threshold).sum(axis=0)
        return clopper_pearson(int(hits), len(of), failure)[0], clopper_pearson(int(others), len(of), failure)[1]

    def general(threshold: float, of: Floats) -> float:
        low, high = rates(threshold, of)
        return float(np.log((low - DELTA) / high)) if low > DELTA else 0.0

    def gaussian(threshold: float, of: Floats) -> float:
        low, high = rates(threshold, of)
        return float(ndtri(low) - ndtri(high))

    thresholds = np.quantile(chosen, np.linspace(0.01, 0.99, 99))

    def bound(of: Callable[[float, Floats], float]) -> float:
        return max(0.0, of(thresholds[int(np.argmax([of(one, chosen) for one in thresholds]))], judged))

    mu = bound(gaussian)
    by_gaussian = gaussian_epsilon(mu, 0.0, DELTA) if mu > 0.0 else 0.0
    return bound(general), by_gaussian, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", type=float, default=1.2)
    parser.add_argument("--runs", type=int, default=2000, help="with 500 and with 499 records, for each row")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of the 500 records")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # Opacus says that its noise is not drawn from a secure generator
    data, epsilon = records(asked.seed), asked.epsilon
    made: dict[str, Callable[[], Score]] = {
        "class sums": lambda: sums_score(data, epsilon),
        "opacus, all at once": lambda: opacus_score(data, epsilon),
        "opacus, fixed divisor": lambda: opacus_score(data, epsilon, divisor=RECORDS),
        BATCHES: lambda: opacus_score(data, epsilon, hidden=64, batch=50),
    }
    print("| method | ε reported | runs | ε measured, any mechanism | Gaussian | seconds |\n|---|---|---|---|---|---|")
    for name, score in made.items():
        runs = asked.runs // 10 if name == BATCHES else asked.runs
        general, by_gaussian, seconds = measured(score(), runs)
        shown = "–" if name == BATCHES else f"{by_gaussian:.2f}"
        print(f"| {name} | {epsilon:g} | {runs} | {general:.2f} | {shown} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
