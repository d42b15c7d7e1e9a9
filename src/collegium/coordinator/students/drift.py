"""Whether new inputs are still like the public pool that a student learned from: column by column, and by its answers.

Columns of numbers and the probabilities of the classes are compared by the Kolmogorov-Smirnov distance, categories by
half the sum of the absolute differences of their shares. A p-value says how often inputs like the pool's would be as
far or further from it; it is multiplied by the number of comparisons. A missing value counts as a value of its own.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.data.task import NumberColumn, TableInputs
from collegium.models.student import Student

LEVEL = 0.01
"""The chance of inputs like the pool's to be called different in anything."""
LEAST = 0.1
"""A smaller distance is none that matters, however sure it is."""


def drift(student: Student, pool: NDArray[Any], new: NDArray[Any]) -> pd.DataFrame:
    """How far new inputs are from the pool, both encoded, ``[n, …]``.

    Returns
    -------
    Frame with a row for each comparison, the furthest first: ``what`` (a column, or the probability of a class),
    ``distance`` from 0 to 1, ``p_value``, and ``differs``.
    """
    from scipy.stats import chi2_contingency, ks_2samp

    rows: list[tuple[str, float, float]] = []

    def compare_numbers(what: str, one: NDArray[Any], other: NDArray[Any]) -> None:
        found = ks_2samp(one, other, method="asymp")
        rows.append((what, float(found.statistic), float(found.pvalue)))

    start = 0
    for column in student.task.inputs.columns if isinstance(student.task.inputs, TableInputs) else ():
        parts = [x[:, start : start + column.width] for x in (pool, new)]
        start += column.width
        if isinstance(column, NumberColumn):
            compare_numbers(column.name, *(np.where(part[:, 1] == 1, -1.0, part[:, 0]) for part in parts))
            continue
        counts = np.stack([part.sum(axis=0) for part in parts])
        shares = counts / counts.sum(axis=1, keepdims=True)
        seen = counts[:, counts.sum(axis=0) > 0]
        p_value = float(chi2_contingency(seen).pvalue) if seen.shape[1] > 1 else 1.0
        rows.append((column.name, float(np.abs(shares[0] - shares[1]).sum() / 2), p_value))
    probabilities = [student.probabilities(x) for x in (pool, new)]
    for number, name in enumerate(student.task.classes):
        compare_numbers(f"probability of {name}", *(shares[:, number] for shares in probabilities))
    table = pd.DataFrame(rows, columns=["what", "distance", "p_value"])
    table["p_value"] = np.minimum(1.0, table["p_value"] * len(table))
    table["differs"] = (table["p_value"] <= LEVEL) & (table["distance"] >= LEAST)
    return table.sort_values("distance", ascending=False, ignore_index=True)
