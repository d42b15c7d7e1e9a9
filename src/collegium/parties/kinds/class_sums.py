"""Answers questions for class sums: what all of the party's records add up to under a public kernel map.

`mechanisms.class_sums` proves by how much a record, a person or the party can move the sum. The proof needs
three things of this file: a record's part depends on that record (and on how many its person has) and on public facts
alone, no record is left out or counted twice, and no part is longer than the bound.
"""

import numpy as np

from collegium.data import Examples
from collegium.data.task import Task
from collegium.models.features import dimensions
from collegium.models.kernels import KERNEL_MAPS, KernelMap, of_length
from collegium.parties.kind import Asked, Institution, PartyKind, check_classes, register
from collegium.protocol.kinds.class_sums import SumClasses
from collegium_accounting.mechanisms.class_sums import bound_squared, count_of_one
from collegium_accounting.mechanisms.record_counts import records_of_person
from collegium_accounting.units import IntArray

_FINE = 2.0**40
"""The largest entry of a party's vector before it is brought to its length, so that rounding does not turn it."""


class RecordsOfClasses:
    """A party's records as they enter class sums.

    Parameters
    ----------
    device : where a network for features computes.
    """

    def __init__(self, examples: Examples, task: Task, device: str = "cpu") -> None:
        self._examples, self._classes, self.device = examples, len(task.classes), device

    def sums(self, kernel: KernelMap) -> IntArray:
        """The sum of all records' contributions, int64 ``[classes · dimensions + 1]``: class by class, then the count.

        Memory: 2,048 × landmarks numbers of 8 bytes, a few times over; on a GPU there 16 times as much.
        """
        classes, labels = self._classes, self._examples.labels()
        of_person = records_of_person(self._examples.groups, len(labels))
        per_class = kernel.totals(self._examples.x, labels, of_person, classes)
        codes = classes * per_class - per_class.sum(axis=0)  # every record times C·e_y − 1
        count = (count_of_one(classes) // of_person).sum()
        return np.concatenate([codes.reshape(-1), [count]])

    def direction(self, kernel: KernelMap) -> IntArray:
        """The party's one vector where it is protected as a whole, as long as one contribution; the count is 0.

        It points where the mean vectors of its classes do, each weighted by the root of its number of records, so
        that few records of a class are heard beside many of another. Without records it is 0.
        """
        classes, labels = self._classes, self._examples.labels()
        records = np.bincount(labels, minlength=classes)
        per_class = kernel.totals(self._examples.x, labels, np.ones_like(labels), classes)
        weighted = per_class / np.sqrt(np.maximum(records, 1))[:, None]
        codes = classes * weighted - weighted.sum(axis=0)
        fine = np.rint(codes * (_FINE / max(float(np.abs(codes).max()), 1.0))).astype(np.int64)
        return np.append(of_length(fine.reshape(1, -1), bound_squared(classes))[0], 0)


@register
class ClassSums(PartyKind[SumClasses]):
    """Sums the records under the kernel map that is asked for."""

    question = SumClasses

    def __init__(self, own: Institution) -> None:
        super().__init__(own)
        self._records = RecordsOfClasses(own.examples, own.task, own.device)

    def validate(self, question: SumClasses) -> None:
        check_classes(self.own.task, question.classes)
        dimensions(question.kernel.features, self.own.task.inputs)

    def compute(self, question: SumClasses, asked: Asked) -> IntArray:
        pool, inputs = self.own.pools.open(question.pool_sha256), self.own.task.inputs
        kernel = KERNEL_MAPS.of(question.kernel, question.pool_sha256, pool, inputs, self.own.device)
        vector = self._records.direction(kernel) if question.per_party else self._records.sums(kernel)
        return vector[None]
