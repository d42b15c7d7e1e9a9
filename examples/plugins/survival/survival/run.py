"""How a run asks, and what is published: a life table, and weights of proportional odds in discrete time.

The life table is the Kaplan–Meier estimate over intervals, of the cells of all rounds; who is censored within one was
at risk for half of it. With I the information matrix by table and moments, and residual sums G under weights θ, each
round gives the Newton estimate G + I·(θ − θ₀) of what weights should satisfy, where θ₀ has the table's hazards and no
columns. Their mean, the s-th with weight s, is multiplied by I/(I² + ν²) with ν the noise on it: a Wiener filter.
"""

from typing import Any

import numpy as np
from pydantic import Field

from collegium.coordinator.kinds.record_counts import Noisy, OtherCounts
from collegium.coordinator.run.run_record import Table
from collegium.coordinator.settings.kinds import register_counts
from collegium.coordinator.settings.run_config import CountsConfig
from collegium.models.codes import Weights
from collegium.protocol.question import QuestionTerms
from collegium_accounting.mechanisms.record_counts import ONE
from collegium_accounting.renyi import FloatArray
from survival.question import UNIT, SumSurvival, entries, parts_of


class SurvivalConfig(CountsConfig):
    time: str
    columns: tuple[str, ...]
    bins: int = 12
    rounds: int = Field(default=5, ge=1, le=6)


def life_table(rounds: list[Noisy], bins: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Who is at risk in each interval, the hazard there, and the standard error of the curve's logarithm."""
    cells = np.mean([one.counts[: 2 * (bins + 1)] for one in rounds], axis=0).reshape(2, bins + 1)
    noise = rounds[0].error / np.sqrt(len(rounds))
    at_risk = np.maximum(cells.sum(axis=0)[::-1].cumsum()[::-1] - cells[0] / 2.0, 1.0)[:bins]
    hazard = np.clip(cells[1, :bins] / at_risk, 0.5 / (at_risk + 1.0), 1.0 - 0.5 / (at_risk + 1.0))
    of_noise = (noise / at_risk) ** 2 * (1.0 + 2.0 * hazard**2 * np.arange(bins + 1, 1, -1)) / (1.0 - hazard) ** 2
    return at_risk, hazard, np.sqrt(np.cumsum(hazard / (1.0 - hazard) / at_risk + of_noise))


def fits(rounds: list[Noisy], bins: int, width: int) -> list[FloatArray]:
    """After each round, log-odds of each interval and weights of ``width`` numbers, then their standard errors."""
    found, own = list[FloatArray](), slice(2 * (bins + 1), 2 * (bins + 1) + bins + width)
    moments = rounds[0].counts[own.start :] * (ONE / UNIT) / max(1.0, rounds[0].counts[: own.start].sum())
    mean, second = moments[:width], moments[width : width * (width + 1)].reshape(width, width)
    for number in range(1, len(rounds) + 1):
        at_risk, hazard, _ = life_table(rounds[:number], bins)
        start, varies = np.append(np.log(hazard / (1.0 - hazard)), np.zeros(width)), at_risk * hazard * (1.0 - hazard)
        cross, squares = np.outer(varies, mean), varies.sum() * (second + second.T) / 2.0
        information, shares = np.block([[np.diag(varies), cross], [cross.T, squares]]), np.arange(1.0, max(number, 2))
        sums = [one.counts[own] * (ONE / UNIT) for one in rounds[1:number]]
        newton = [one + information @ (whole(at) - start) for one, (at, _) in zip(sums, found, strict=True)]
        variance = np.eye(len(start)) * np.square(rounds[0].error * ONE / UNIT * shares / shares.sum()).sum()
        filtered = np.linalg.solve(information @ information + variance, information)
        moved = filtered @ np.average(newton or [0.0 * start], axis=0, weights=shares)
        squared = np.diag(filtered @ (information + variance) @ filtered.T)
        found.append(np.array([np.clip(start + moved, -20.0, 20.0), np.sqrt(np.maximum(squared, 0.0))]))
    return found


def whole(weights: FloatArray) -> FloatArray:
    """Weights in whole parts of 1/1024: the same ones follow from the same sums on any machine."""
    return np.rint(weights * 1024.0) / 1024.0


@register_counts
class Survival(OtherCounts):
    question, settings = SumSurvival, SurvivalConfig

    @classmethod
    def rounds_of(cls, settings: Any) -> int:
        return int(settings.rounds)

    @classmethod
    def _columns(cls, config: Any, settings: Any) -> tuple[list[int], list[str]]:
        """Where time and columns are in the schema, and what the columns' encoded numbers are called."""
        at, numbers = cls.columns_at(config, (settings.time, *settings.columns)), list[str]()
        parts_of(config.task, at[0], tuple(at[1:]))
        for column in [config.task.inputs.columns[one] for one in at[1:]]:
            number = column.kind != "category" and (f"half of {column.low:g} to {column.high:g}", "missing")
            numbers += [f"{column.name}: {value}" for value in number or (*column.categories, "other")]
        return at, numbers

    @classmethod
    def parts_and_cells(cls, config: Any, settings: Any) -> tuple[int, int]:
        (time, *columns), numbers = cls._columns(config, settings)
        cells = entries(settings.bins, len(numbers))
        terms = QuestionTerms("record-counts", {"parts": 2, "cells": cells})
        SumSurvival(terms, "any", False, time, tuple(columns), settings.bins, len(numbers))  # it can be asked
        return 2, cells

    def ask(self, terms: QuestionTerms, ledger_id: str, per_party: bool) -> SumSurvival:
        ((time, *columns), numbers), bins = self._columns(self._config, self._settings), self._settings.bins
        weights = fits(self.before, bins, len(numbers))[-1][0] if self.before else None
        known = None if weights is None else Weights.of(whole(weights)[:, None])
        return SumSurvival(terms, ledger_id, per_party, time, tuple(columns), bins, len(numbers), known)

    def table(self, counts: FloatArray, error: float) -> Table:
        (time, *columns), numbers = self._columns(self._config, self._settings)
        rounds, bins = [*self.before, Noisy(counts, error)], self._settings.bins
        (_, hazard, of_log), (weights, errors) = life_table(rounds, bins), fits(rounds, bins, len(numbers))[-1]
        curve, scale = np.cumprod(1.0 - hazard), np.repeat([1.0, len(columns) ** -0.5], [bins, len(numbers)])
        low, high = (getattr(self._config.task.inputs.columns[time], name) for name in ("low", "high"))
        ends = [f"{low + (high - low) * number / bins:g}" for number in range(bins + 1)]
        named = [f"survive {end}" for end in ends[1:]] + [f"log-odds of the event from {end}" for end in ends[:-1]]
        found = np.concatenate([curve, weights * scale]), np.concatenate([curve * of_log, errors * scale])
        rows = zip([*named, *numbers], *(one.round(4).tolist() for one in found), strict=True)
        return Table(columns=(f"by {self._settings.time}", "estimate", "standard error"), rows=tuple(rows))
