"""How records answer."""

import numpy as np

from collegium.errors import DataError
from collegium.parties.kind import Asked, PartyKind, check_classes, register
from collegium_accounting.mechanisms.record_counts import counts_of, weights_of
from collegium_accounting.units import IntArray
from table_one.question import TableOne, values_of


@register
class Counting(PartyKind[TableOne]):
    question = TableOne

    def validate(self, question: TableOne) -> None:
        check_classes(self.own.task, question.classes)
        if question.sizes != tuple(map(len, values_of(self.own.task, question.columns, question.bins))):
            raise DataError("table one is about other values than the schema has")

    def compute(self, question: TableOne, asked: Asked) -> IntArray:
        examples, table, before, cells = self.own.examples, self.own.task.inputs, 0, []
        for at, size in zip(question.columns, question.sizes, strict=True):
            x = np.asarray(examples.x[:, table.places[at]])
            value = x.argmax(axis=1)
            if table.columns[at].kind != "category":  # a number in [0, 1], and whether it is missing
                value = np.where(x[:, 1] > 0, question.bins, np.minimum(x[:, 0] * question.bins, question.bins - 1))
            cells.append((before + value.astype(np.int64)) * question.classes + examples.labels())
            before += size
        weights = weights_of(examples.groups, len(examples), per_party=question.per_party)
        return counts_of(np.stack(cells, axis=1), weights, question.length)[None]
