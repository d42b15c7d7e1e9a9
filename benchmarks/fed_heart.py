"""The default on Fed-Heart-Disease of FLamby (Ogier du Terrail et al. 2022), as its benchmark divides the records.

``python -m benchmarks.fed_heart --parties 4 --json out.json`` prints a table and writes rows as ``benchmarks.frontier``
does. The four hospitals of UCI Heart Disease are its centres. Ten columns are inputs, records without a value in one of
them are left out, and each centre's are divided once into training and test records. δ is 1e-4, and ε = 100 stands for
no privacy. No record is public, so all training records are private and the map is drawn from the schema.

Rows are those of ``benchmarks.frontier``: accuracy on all test records together, and called ``…, by centre`` the mean
of the four centres' accuracies, which that benchmark publishes.
"""

import argparse
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from collegium_reproduction.data.tables import HOSPITALS, read_heart
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import train_test_split

from benchmarks.frontier import DELTA as THEIRS
from benchmarks.frontier import Floats, Methods, Row, Split, keep
from benchmarks.frontier_rivals import dp_ebm
from collegium.data import Examples, data_root, default_task
from collegium.data.drawn_pool import drawn_pool
from collegium.data.encoding import encode_table
from collegium.data.task import TableInputs
from collegium_accounting.game.gaussian import gaussian_epsilon, largest_mu

DELTA = 1e-4
LEFT_OUT = {"slope", "ca", "thal"}
"""The columns 10 to 12 of the files, counted from 0, which hardly any record outside Cleveland has."""
NAME = "hearts-flamby"
METHODS = ("class-sums", "noisy gradient", "dp-ebm", "pooled forest")


@dataclass(frozen=True)
class Figures:
    """What one draw reaches, between 0 and 1: on all test records, at each centre, and the means over centres."""

    accuracy: float
    balanced: float
    auroc: float
    by_centre: Floats
    balanced_by_centre: float

    @classmethod
    def of(cls, scores: Floats, truth: NDArray[np.int64], centres: list[NDArray[np.bool_]]) -> "Figures":
        """Of scores ``[n, 2]``, and which records are at each centre."""
        predicted = scores.argmax(axis=1)
        return cls(
            float((predicted == truth).mean()),
            float(balanced_accuracy_score(truth, predicted)),
            float(roc_auc_score(truth, scores[:, 1] - scores[:, 0])),
            np.array([(predicted == truth)[own].mean() for own in centres]),
            float(np.mean([balanced_accuracy_score(truth[own], predicted[own]) for own in centres])),
        )


def fed_heart(root: Path | None) -> tuple[Split, NDArray[Any]]:
    """The records without a pool, and the centre of each test record."""
    task = default_task("heart")
    assert isinstance(task.inputs, TableInputs)
    inputs = TableInputs(columns=tuple(column for column in task.inputs.columns if column.name not in LEFT_OUT))
    task = task.model_copy(update={"inputs": inputs})
    frame = read_heart("all", root).frame
    frame = frame[~frame[[column.name for column in inputs.columns]].isin(["?"]).any(axis=1)].reset_index(drop=True)
    ill = (frame["disease"] == "present").to_numpy().astype(np.int64)
    records = Examples(encode_table(frame, inputs, origin="heart"), ill)
    parts: list[list[NDArray[np.int64]]] = []
    for hospital in HOSPITALS:
        own = np.flatnonzero(frame["hospital"] == hospital)
        labels = records.labels()[own]
        both = np.bincount(labels, minlength=2).min() > 2
        parts.append(
            train_test_split(
                own, test_size=1 - 0.66, train_size=0.66, random_state=43, stratify=labels if both else None
            )
        )
    train, test = (np.concatenate(part) for part in zip(*parts, strict=True))
    split = Split(task, drawn_pool(inputs), records.take(train), records.take(test), drawn=True)
    return split, frame["hospital"].to_numpy()[test]


def with_their_delta(epsilon: float) -> float:
    """The ε at the δ of ``benchmarks.frontier`` of the Gaussian noise that has ``epsilon`` at `DELTA`."""
    return gaussian_epsilon(largest_mu(epsilon, DELTA), 0.0, THEIRS)


def scores_of(made: Methods, epsilon: float, parties: int, methods: list[str]) -> Iterator[tuple[str, Floats]]:
    """Each method's scores of the test records, in one draw of its noise."""
    same, split = with_their_delta(epsilon), made.split
    if "class-sums" in methods:
        yield "class-sums", made.class_sums(same)
        if parties:
            yield f"class-sums, {parties} parties", made.noised_by(parties).class_sums(same)
    if "noisy gradient" in methods:
        yield "noisy gradient", made.noisy_gradient(same)
    if "dp-ebm" in methods:
        yield "dp-ebm", dp_ebm(split.task, split.private, split.test, (epsilon, DELTA), made.seed)


def measured(
    epsilons: list[float], seeds: int, parties: int, methods: list[str]
) -> dict[tuple[str, float | None], list[Figures]]:
    """The figures of each method and ε, one for each draw of the noise."""
    split, centre = fed_heart(data_root(None))
    truth, own = split.test.labels(), [centre == hospital for hospital in HOSPITALS]
    for hospital, here in zip(HOSPITALS, own, strict=True):
        print(f"{hospital}: {here.sum()} test records, {truth[here].sum()} of them ill")
    found: dict[tuple[str, float | None], list[Figures]] = {}

    def note(method: str, epsilon: float | None, scores: Floats) -> None:
        found.setdefault((method, epsilon), []).append(Figures.of(scores, truth, own))

    made = Methods(split, 0)
    print(f"{len(split.private)} training records, CPU: {made.cost}", flush=True)
    for seed in range(seeds):
        drawn = copy(made)  # the kernels are those of all draws
        drawn.seed = seed
        if "pooled forest" in methods:
            note("pooled forest", None, drawn.pooled_forest())
        for epsilon in epsilons:
            for method, scores in scores_of(drawn, epsilon, parties, methods):
                note(method, epsilon, scores)
    return found


def rows_of(found: dict[tuple[str, float | None], list[Figures]]) -> list[Row]:
    """Two rows for each method and ε: of all test records together, and of the mean over centres."""
    rows = []
    for (method, epsilon), draws in found.items():
        together = [[one.accuracy, one.balanced, one.auroc] for one in draws]
        by_centre = [[one.by_centre.mean(), one.balanced_by_centre, 0.0] for one in draws]
        for name, figures in ((method, together), (f"{method}, by centre", by_centre)):
            accuracy, balanced, area = (round(100.0 * float(mean), 2) for mean in np.mean(figures, axis=0))
            spread = round(100.0 * float(np.std([one[0] for one in figures])), 2)
            rows.append(Row(NAME, name, epsilon, len(draws), accuracy, spread, balanced, area or None))
    return rows


def table(found: dict[tuple[str, float | None], list[Figures]]) -> str:
    """Accuracy as Markdown: the mean over centres ± the spread of draws, all together, and at each centre."""
    lines = [
        "| ε | method | mean of centres | all together | " + " | ".join(HOSPITALS) + " |",
        "|" + "---|" * (4 + len(HOSPITALS)),
    ]
    for (method, epsilon), draws in sorted(found.items(), key=lambda one: one[0][1] or np.inf):
        centres = 100.0 * np.array([one.by_centre for one in draws])
        mean, together = centres.mean(axis=1), 100.0 * float(np.mean([one.accuracy for one in draws]))
        cells = [
            "" if epsilon is None else f"{epsilon:g}",
            method,
            f"{mean.mean():.1f} ± {mean.std():.1f}",
            f"{together:.1f}",
            *(f"{one:.1f}" for one in centres.mean(axis=0)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilons", default="0.1,1,100")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--parties", type=int, default=4, help="the default also with the noise that so many add")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--json", type=Path, help="where the rows are kept; a file's other rows stay")
    asked = parser.parse_args()
    epsilons = [float(text) for text in asked.epsilons.split(",")]
    found = measured(epsilons, asked.seeds, asked.parties, asked.methods.split(","))
    print(table(found))
    if asked.json is not None:
        keep(rows_of(found), asked.json)


if __name__ == "__main__":
    main()
