"""How a run asks, and what is published: weights of least squares, with their standard errors.

With A the noisy sum of (1, φ)(1, φ)ᵀ, its negative eigenvalues set to 0, b that of (1, φ)·y and τ the noise on each of
their entries, the weights are A·(A² + (1 + d)·τ²)⁻¹·b for d weights: a Wiener filter that trusts no direction in which
A is hardly larger than its noise, which is 2·√d·τ long. What the filter holds back, of weights as large as those that
were found, is a part of each standard error: a column that says nothing has a large one.
"""

from typing import Any, NamedTuple

import numpy as np

from collegium.coordinator.kinds.record_counts import OtherCounts
from collegium.coordinator.run.run_record import Table
from collegium.coordinator.settings.kinds import register_counts
from collegium.coordinator.settings.run_config import CountsConfig
from collegium.protocol.question import QuestionTerms
from collegium_accounting.mechanisms.record_counts import ONE
from collegium_accounting.renyi import FloatArray
from regression.question import SumSquares, entries, parts_of


class RegressionConfig(CountsConfig):
    target: str
    columns: tuple[str, ...]


class Fit(NamedTuple):
    """Weights of (1, φ) ``[d]`` for a target from -1 to 1, the root of its mean squared error, and standard errors."""

    weights: FloatArray
    errors: FloatArray
    missed: float
    error_of_missed: float


def fit(sums: FloatArray, noise: float, width: int) -> Fit:
    """What sums ``[entries]`` in which a record's vector is at most 1 long, with this noise on each, come to."""
    size = width + 2
    rows, columns = np.triu_indices(size)
    whole = np.zeros((size, size))
    whole[rows, columns] = whole[columns, rows] = 3.0 * sums / np.where(rows == columns, 1.0, np.sqrt(2.0))
    tau, count, unit = 3.0 * noise / np.sqrt(2.0), max(1.0, whole[0, 0]), np.eye(size - 1)
    values, vectors = np.linalg.eigh(whole[:-1, :-1])
    own = (vectors * np.maximum(values, 0.0)) @ vectors.T
    filtered = np.linalg.solve(own @ own + size * tau**2 * unit, own)
    weights = filtered @ whole[:-1, -1]
    residual = np.append(-weights, 1.0)
    missed = np.sqrt(max(0.0, residual @ whole @ residual) / count)
    of_noise = tau**2 * (1.0 + 2.0 * weights @ weights)
    held_back = unit - filtered @ own
    spread = filtered @ (missed**2 * own + of_noise * unit) @ filtered.T
    variances = np.diag(spread + (weights @ weights / len(weights)) * held_back @ held_back.T)
    of_missed = np.sqrt(2.0) * tau * (residual @ residual) / (2.0 * count * max(missed, 1e-3))
    return Fit(weights, np.sqrt(variances), float(missed), float(of_missed))


@register_counts
class Regression(OtherCounts):
    question, settings = SumSquares, RegressionConfig

    @classmethod
    def _columns(cls, config: Any, settings: Any) -> tuple[list[int], list[str]]:
        """Where target and columns are in the schema, and what the columns' encoded numbers are called."""
        at, numbers = cls.columns_at(config, (settings.target, *settings.columns)), list[str]()
        parts_of(config.task, at[0], tuple(at[1:]))
        for column in [config.task.inputs.columns[one] for one in at[1:]]:
            number = column.kind != "category" and (f"half of {column.low:g} to {column.high:g}", "missing")
            numbers += [f"{column.name}: {value}" for value in number or (*column.categories, "other")]
        return at, numbers

    @classmethod
    def parts_and_cells(cls, config: Any, settings: Any) -> tuple[int, int]:
        (target, *columns), numbers = cls._columns(config, settings)
        cells = entries(len(numbers))
        terms = QuestionTerms("record-counts", {"parts": 1, "cells": cells})
        SumSquares(terms, "any", False, target, tuple(columns), len(numbers))  # it can be asked
        return 1, cells

    def ask(self, terms: QuestionTerms, ledger_id: str, per_party: bool) -> SumSquares:
        (target, *columns), numbers = self._columns(self._config, self._settings)
        return SumSquares(terms, ledger_id, per_party, target, tuple(columns), len(numbers))

    def table(self, counts: FloatArray, error: float) -> Table:
        (target, *columns), numbers = self._columns(self._config, self._settings)
        scale = ONE / self._asked()[1].longest
        found, asked = fit(counts * scale, error * scale, len(numbers)), self._config.task.inputs.columns[target]
        half, middle = (asked.high - asked.low) / 2.0, (asked.high + asked.low) / 2.0
        each = half * np.append(1.0, np.full(len(numbers), len(columns) ** -0.5))
        estimates = [*(found.weights * each + np.append(middle, np.zeros(len(numbers)))), half * found.missed]
        errors = [*(found.errors * each), half * found.error_of_missed]
        named = ["constant", *numbers, "root mean squared error"]
        rows = zip(named, np.round(estimates, 4).tolist(), np.round(errors, 4).tolist(), strict=True)
        return Table(columns=(asked.name, "estimate", "standard error"), rows=tuple(rows))
