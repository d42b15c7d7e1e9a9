"""How often a small study before the main one tells an institution that its classes are exchanged.

    python -m benchmarks.trial_study --trials 5

Five institutions, at one of which two classes are exchanged, ask what `collegium study new --trial` asks: class sums
and an evaluation, half of ε each. It prints how often that institution read so in its log, and how often another one,
or one of five without a fault, was warned.
"""

import argparse
import logging
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

import collegium as cg

FAULTY = "institution-0"
SHARE = 0.5


class Warned(logging.Handler):
    """The institutions that were warned."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.names: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.names.add(str(getattr(record, "fields", {})["party"]))


def cancers(rng: np.random.Generator) -> tuple[pd.DataFrame, pd.Series]:
    """569 cells of scikit-learn's breast cancers, in another order each time."""
    found = load_breast_cancer(as_frame=True).frame.sample(frac=1, random_state=int(rng.integers(2**31)))
    return found.drop(columns="target"), found["target"].map({0: "malignant", 1: "benign"})


def patients(rng: np.random.Generator, classes: int) -> tuple[pd.DataFrame, pd.Series]:
    """1,900 invented patients of whom about 80 % can be told."""
    rows = 1900
    age, pulse = rng.integers(18, 95, rows), rng.normal(80, 18, rows).clip(40, 130)
    arrival = rng.choice(["ambulance", "on foot", "referred"], rows, p=[0.3, 0.5, 0.2])
    risk = 0.05 * (age - 55) + 0.05 * (pulse - 80) + 1.5 * (arrival == "ambulance") + rng.normal(0, 0.7, rows)
    outcome = np.select([risk > 2.2, risk > 0.2], ["intensive" if classes == 3 else "ward", "ward"], "home")
    return pd.DataFrame({"age": age, "pulse": pulse, "arrival": arrival}), pd.Series(outcome)


def warned(inputs: pd.DataFrame, labels: pd.Series, epsilon: float, *, faulty: bool) -> set[str]:
    """Who is warned in one trial study."""
    pool, names = inputs[: len(inputs) // 5], sorted(set(labels))
    rest = np.arange(len(pool), len(inputs))
    records = {f"institution-{n}": (inputs.iloc[rest[n::5]], labels.iloc[rest[n::5]]) for n in range(5)}
    if faulty:
        x, y = records[FAULTY]
        records[FAULTY] = x, y.replace({names[0]: names[1], names[1]: names[0]})
    listening, log = Warned(), logging.getLogger("collegium.parties.kinds.evaluation")
    log.addHandler(listening)
    try:
        parties = cg.LocalParties(records, cg.Task.from_frame(pool, classes=names))
        coordinator = cg.Coordinator(parties, pool, epsilon=epsilon, evaluation_share=SHARE)
        coordinator.label()
        coordinator.fit()
    finally:
        log.removeHandler(listening)
    return listening.names


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 0.2, 0.3])
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # that noise hides much, which is what is measured
    sets: dict[str, Callable[[np.random.Generator], tuple[pd.DataFrame, pd.Series]]] = {
        "breast-cancer": cancers,
        "two outcomes": partial(patients, classes=2),
        "three outcomes": partial(patients, classes=3),
    }
    for name, make in sets.items():
        for epsilon in options.epsilon:
            told = wrongly = 0
            for seed in range(options.trials):
                drawn = make(np.random.default_rng(seed))
                found = warned(*drawn, epsilon, faulty=True)
                told += FAULTY in found
                wrongly += bool(found - {FAULTY}) + bool(warned(*drawn, epsilon, faulty=False))
            print(f"{name}, ε = {epsilon:g}: told {told} of {options.trials}, wrongly {wrongly}", flush=True)


if __name__ == "__main__":
    main()
