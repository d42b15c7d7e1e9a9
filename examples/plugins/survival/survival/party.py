"""How records answer: every step is done record by record in whole numbers, so that none depends on another one."""

import math

import numpy as np

from collegium.errors import DataError
from collegium.models.codes import powers_of
from collegium.parties.kind import Asked, PartyKind, register
from collegium_accounting.mechanisms.class_sums import ONE as PHI_ONE
from collegium_accounting.mechanisms.record_counts import counts_of, records_of_person, weights_of
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import IntArray
from survival.question import UNIT, SumSurvival, parts_of


@register
class Surviving(PartyKind[SumSurvival]):
    question = SumSurvival

    def validate(self, question: SumSurvival) -> None:
        _, *columns = parts_of(self.own.task, question.time, question.columns)
        if question.width != sum(part.stop - part.start for part in columns):
            raise DataError("survival is about other numbers than the schema has")

    def compute(self, question: SumSurvival, asked: Asked) -> IntArray:
        examples, summed = self.own.examples, np.zeros(question.length, dtype=np.int64)
        time, *columns = parts_of(self.own.task, question.time, question.columns)
        count, labels = len(examples), examples.labels()
        weights = weights_of(examples.groups, count, per_party=question.per_party)
        of_person = np.full(count, count) if question.per_party else records_of_person(examples.groups, count)
        for block in [slice(start, start + 2048) for start in range(0, count, 2048)]:
            x = np.asarray(examples.x[block], dtype=np.float64)
            known = x[:, time][:, 1] == 0.0
            interval = np.minimum(x[:, time][:, 0] * question.bins, question.bins).astype(np.int64)[known]
            event = (labels[block][known] == 1) & (interval < question.bins)
            cells = interval + event * (question.bins + 1)
            summed += counts_of(cells[:, None], weights[block][known], question.length)
            phi = np.concatenate([_in_length(x[known, one], len(columns)) for one in columns], axis=1)
            own = bounded(second_part(question, phi, interval, event), question.longest)
            shares = np.trunc(own / of_person[block][known][:, None]).astype(np.int64).sum(axis=0)
            summed[2 * (question.bins + 1) :][: len(shares)] += shares
        return summed[None]


def _in_length(x: FloatArray, columns: int) -> FloatArray:
    """A column's numbers as whole numbers of a length of at most PHI_ONE/√columns: a number in [0, 1] as -1 to 1."""
    if x.shape[1] == 2:  # a number, and whether it is missing
        x = np.stack([np.where(x[:, 1] > 0.0, 0.0, 2.0 * x[:, 0] - 1.0), x[:, 1]], axis=1)
    return np.asarray(np.trunc(x * math.floor(PHI_ONE / math.sqrt(columns))))


def second_part(question: SumSurvival, phi: FloatArray, interval: IntArray, event: IntArray) -> FloatArray:
    """What records add to the second part, in whole numbers ``[n, entries]``, before it is `bounded`."""
    if question.weights is None:
        products = (phi[:, :, None] * phi[:, None, :]).reshape(len(phi), phi.shape[1] ** 2) / PHI_ONE
        return np.rint(np.concatenate([phi, products], axis=1) * UNIT / PHI_ONE)
    bins, numbers = np.arange(question.bins), question.weights.whole[:, 0].astype(np.float64)
    scores = (phi @ numbers[question.bins :])[:, None] + PHI_ONE * numbers[: question.bins]
    powers = powers_of(np.stack([scores.ravel(), np.zeros(scores.size)], axis=1), question.weights.unit)
    odds = (powers[:, 0] / powers.sum(axis=1)).reshape(scores.shape)
    # Who is censored within an interval was at risk for half of it.
    at_risk = (bins < interval[:, None]) + (bins == interval[:, None]) * np.where(event, 1.0, 0.5)[:, None]
    residuals = np.rint(((bins == interval[:, None]) & event[:, None]) * UNIT - at_risk * odds * UNIT)
    return np.concatenate([residuals, np.rint(phi * residuals.sum(axis=1, keepdims=True) / PHI_ONE)], axis=1)


def bounded(parts: FloatArray, longest: int) -> FloatArray:
    """Rows of whole numbers, those that are longer than ``longest`` shortened and cut off towards 0."""
    squared = np.square(parts.astype(np.int64)).sum(axis=1)  # whole: compared without rounding
    scale = longest / np.sqrt(np.maximum(squared, 1)) * (1.0 - 1e-9)
    return np.where((squared > longest * longest)[:, None], np.trunc(parts * scale[:, None]), parts)
