"""How records answer: each by itself, in whole numbers, by operations that every processor rounds alike."""

import math

import numpy as np

from collegium.errors import DataError
from collegium.parties.kind import Asked, PartyKind, register
from collegium_accounting.mechanisms.record_counts import records_of_person
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import IntArray
from regression.question import SumSquares, parts_of

BLOCK = 2048
"""Records at a time."""


@register
class Squares(PartyKind[SumSquares]):
    question = SumSquares

    def validate(self, question: SumSquares) -> None:
        _, *columns = parts_of(self.own.task, question.target, question.columns)
        if question.width != sum(part.stop - part.start for part in columns):
            raise DataError("a regression is about other numbers than the schema has")

    def compute(self, question: SumSquares, asked: Asked) -> IntArray:
        examples, summed = self.own.examples, np.zeros(question.length, dtype=np.int64)
        target, *columns = parts_of(self.own.task, question.target, question.columns)
        count = len(examples)
        of_person = np.full(count, count) if question.per_party else records_of_person(examples.groups, count)
        for block in [slice(start, start + BLOCK) for start in range(0, count, BLOCK)]:
            x = np.asarray(examples.x[block], dtype=np.float64)
            x, shared = x[known := x[:, target][:, 1] == 0.0], of_person[block][known]
            phi = [signed(x[:, one]) / math.sqrt(len(columns)) for one in columns]
            z = np.concatenate([np.ones((len(x), 1)), *phi, signed(x[:, target])[:, :1]], axis=1) / math.sqrt(3.0)
            summed += np.trunc(triangle(z) * question.longest / shared[:, None]).astype(np.int64).sum(axis=0)
        return summed[None]


def signed(x: FloatArray) -> FloatArray:
    """A column's encoded numbers, at most 1 long: of a number, from -1 to 1, and whether it is missing."""
    if x.shape[1] != 2:  # a category: one of its numbers is 1, the others are 0
        return x
    return np.stack([np.where(x[:, 1] > 0.0, 0.0, np.clip(2.0 * x[:, 0] - 1.0, -1.0, 1.0)), x[:, 1]], axis=1)


def triangle(z: FloatArray) -> FloatArray:
    """The upper triangle of each row's z·zᵀ, no longer than 1 however its numbers are rounded."""
    rows, columns = np.triu_indices(z.shape[1])
    return z[:, rows] * z[:, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0)) * (1.0 - 1e-9)
