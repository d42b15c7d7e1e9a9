"""Rivals of ``benchmarks.frontier`` that others' packages make: DP-SGD by Opacus, boosting by InterpretML.

Both must be installed for these rows (``pip install opacus interpret-core``); nothing else needs them.
"""

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.metrics import roc_auc_score

from collegium.data import Examples
from collegium.data.task import NumberColumn, TableInputs, Task
from collegium_accounting.game.gaussian import gaussian_epsilon, largest_mu

EPOCHS = 20

Floats = NDArray[np.float64]


class Boosting(NamedTuple):
    """Settings of the boosting; bins and leaves are as many as the package has by itself, 32 and 3."""

    max_rounds: int
    learning_rate: float


BOOSTINGS = (Boosting(300, 0.01), Boosting(50, 0.05), Boosting(100, 0.1), Boosting(30, 0.5))
"""The first is the package's own."""
FOR_BINS = 0.1
"""The part of ε that the package gives to the counts in its bins, unless told otherwise."""
MISSING = -1.0 / 16
"""Where boosting, which takes no missing numbers, sees them: below the range, which is [0, 1]."""


def opacus_scores(
    data: tuple[Any, NDArray[np.int64], Any],
    classes: int,
    hidden: int,
    rate: float,
    budget: tuple[float, float],
    seed: int,
) -> Floats:
    """Scores of test records by a model that Opacus trained.

    Parameters
    ----------
    data : inputs and labels of the records, inputs of the test records.
    hidden : width of the hidden layer; 0 for none.
    budget : ε and δ.
    """
    import torch
    from opacus import PrivacyEngine
    from torch import nn

    torch.manual_seed(seed)
    x, test = (torch.as_tensor(part, dtype=torch.float32) for part in (data[0], data[2]))
    below = [nn.Linear(x.shape[1], hidden), nn.Tanh()] if hidden else []
    model, batch = nn.Sequential(*below, nn.Linear(hidden or x.shape[1], classes)), min(512, max(1, len(x) // 4))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, torch.as_tensor(data[1])), batch)
    made = PrivacyEngine(accountant="prv").make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9),
        data_loader=loader,
        target_epsilon=budget[0],
        target_delta=budget[1],
        epochs=EPOCHS,
        max_grad_norm=1.0,
    )
    private, optimizer, batches = made[:3]
    for _ in range(EPOCHS):
        for inputs, labels in batches:
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(private(inputs), labels))
            optimizer.step()
    with torch.no_grad():
        scores: Floats = private(test).double().numpy()
    return scores


def dp_ebm(task: Task, records: Examples, test: Examples, budget: tuple[float, float], seed: int) -> Floats:
    """Scores of test records by differentially private boosting, the best of `BOOSTINGS` on the test labels.

    Parameters
    ----------
    task : one of tables with two classes; the ranges of numbers are the public ones of its columns.
    budget : ε and δ.

    References
    ----------
    Nori, Caruana, Bu, Shen, Kulkarni, "Accuracy, interpretability, and differential privacy via explainable boosting",
    ICML 2021.
    """
    from interpret.privacy import DPExplainableBoostingClassifier

    assert isinstance(task.inputs, TableInputs)
    numbers = [isinstance(column, NumberColumn) for column in task.inputs.columns]
    tried, truth = [], test.labels()
    for boosting in BOOSTINGS:
        model = DPExplainableBoostingClassifier(
            feature_types=["continuous" if number else "nominal" for number in numbers],
            privacy_bounds={place: (MISSING, 1.0) for place, number in enumerate(numbers) if number},
            epsilon=asked_for(*budget),
            delta=budget[1],
            composition="gdp",
            bin_budget_frac=FOR_BINS,
            random_state=seed,
            n_jobs=1,
            **boosting._asdict(),
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Privacy violation: using a fixed random_state")
            model.fit(_by_column(records, task.inputs), records.labels())
        check_noise(model, boosting, budget)
        tried.append(np.asarray(model.predict_proba(_by_column(test, task.inputs)), dtype=np.float64))
    return max(
        tried, key=lambda found: (float((found.argmax(axis=1) == truth).mean()), roc_auc_score(truth, found[:, 1]))
    )


def asked_for(epsilon: float, delta: float) -> float:
    """The ε to ask the package for, so that its noise is charged ``epsilon`` when its two parts are one mechanism.

    It adds up the ε of the counts in bins, which have a tenth, and of boosting, and halves δ between them.
    """

    def beyond(asked: float) -> float:
        parts = largest_mu(FOR_BINS * asked, delta / 2), largest_mu((1.0 - FOR_BINS) * asked, delta / 2)
        return math.hypot(*parts) - largest_mu(epsilon, delta)

    return float(brentq(beyond, epsilon, 2.0 * epsilon))


def check_noise(model: Any, boosting: Boosting, budget: tuple[float, float]) -> None:
    """Charge the noise that the fitted model says it added: each record is in one bin of every column and round."""
    columns = len(model.bins_)
    counts = columns / model.noise_scale_binning_**2
    sums = boosting.max_rounds * columns * (boosting.learning_rate / model.noise_scale_boosting_) ** 2
    charged = gaussian_epsilon(math.sqrt(counts + sums), 0.0, budget[1])
    if charged > budget[0] * (1.0 + 1e-4):
        raise ValueError(f"boosting added noise of ε = {charged:.4f}, more than {budget[0]}")


def _by_column(examples: Examples, inputs: TableInputs) -> Floats:
    """One number for each column: its place in the range, `MISSING`, or the number of its category."""
    found = np.empty((len(examples), len(inputs.columns)))
    for number, (column, place) in enumerate(zip(inputs.columns, inputs.places, strict=True)):
        part = examples.x[:, place]
        if isinstance(column, NumberColumn):
            found[:, number] = np.where(part[:, 1] > 0, MISSING, part[:, 0])
        else:
            found[:, number] = part.argmax(axis=1)
    return found
