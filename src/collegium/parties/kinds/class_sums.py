"""Answers questions for class sums: what all of the party's records add up to under a public map and weights.

`mechanisms.class_sums` proves by how much a record, a person or the party can move the sum. The proof needs
three things of this file: a record's part depends on that record (and on how many its person has) and on public facts
alone, no record is left out or counted twice, and no part is longer than the bound.
"""

import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collegium.data import Examples
from collegium.data.drawn_pool import check_shares, input_entries
from collegium.data.task import Task
from collegium.errors import DataError
from collegium.logs import event
from collegium.models.codes import Codes, Weights
from collegium.models.devices import resolve_device
from collegium.models.features import dimensions
from collegium.models.input_sums import sums_of_inputs
from collegium.models.kernels import KernelMap, of_length, totals_of
from collegium.parties.agreement import compared, sampled
from collegium.parties.kind import Asked, Institution, PartyKind, check_classes, kept, register
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.requests import ShowReleased
from collegium_accounting.mechanisms.class_sums import bound_squared, count_of_one
from collegium_accounting.mechanisms.record_counts import records_of_person
from collegium_accounting.units import IntArray

_log = logging.getLogger(__name__)

_FINE = 2.0**40
"""The largest entry of a party's vector before it is brought to its length, so that rounding does not turn it."""
_AT_ONCE = 2048
_MOST_KEPT = 2**28
"""Bytes of the vectors that a party keeps in memory from one round to the next."""


class RecordsOfClasses:
    """A party's records as they enter class sums.

    Parameters
    ----------
    device : where a network for features computes.
    disk_bytes : what the records' vectors may take in a file without a name between the rounds, in the folder for
        temporary files; it ends with the process.
    """

    def __init__(self, examples: Examples, task: Task, device: str = "cpu", disk_bytes: int = 0) -> None:
        self._examples, self._task, self.device, self._disk_bytes = examples, task, device, disk_bytes
        self._classes = len(task.classes)
        self._kept: tuple[KernelMap, NDArray[np.int32]] | None = None

    def sums(self, kernel: KernelMap, weights: Weights | None = None) -> IntArray:
        """The sum of all records' contributions, int64 ``[classes · dimensions + 1]``: class by class, then the count.

        Memory: 2,048 × landmarks numbers of 8 bytes, a few times over; on a GPU there 16 times as much. The records'
        vectors are kept for the rounds to come where they take at most 256 MiB, or what the disk may hold of them; else
        every round computes them again.

        Parameters
        ----------
        weights : those of the round; None in the first.
        """
        classes, labels = self._classes, self._examples.labels()
        of_person, codes = records_of_person(self._examples.groups, len(labels)), Codes(classes, weights)
        vectors = self._vectors(kernel)
        if vectors is None:
            summed = kernel.totals(self._examples.x, labels, of_person, codes)
        else:
            blocks = [slice(start, start + _AT_ONCE) for start in range(0, len(labels), _AT_ONCE)]
            summed = sum(
                (totals_of(vectors[part], labels[part], of_person[part], codes) for part in blocks),
                start=np.zeros((classes, kernel.dimensions), dtype=np.int64),
            )
        return self._counted(summed, of_person)

    def of_inputs(self) -> IntArray:
        """The sum of the inputs themselves, int64 ``[classes · (entries + 1) + 1]``: class by class, then the count."""
        labels = self._examples.labels()
        of_person = records_of_person(self._examples.groups, len(labels))
        summed = sums_of_inputs(self._examples.x, labels, of_person, self._task.inputs, self._classes)
        return self._counted(summed, of_person)

    def _counted(self, summed: IntArray, of_person: IntArray) -> IntArray:
        """What is summed, class by class, and then how many records it is about."""
        return np.append(summed.reshape(-1), (count_of_one(self._classes) // of_person).sum())

    def _vectors(self, kernel: KernelMap) -> NDArray[np.int32] | None:
        """φ of all records, ``[n, dimensions]``; None where they take too much room, or are computed elsewhere."""
        x, shape = self._examples.x, (len(self._examples), kernel.dimensions)
        needed = 4 * math.prod(shape)
        if resolve_device(self.device) != "cpu" or needed > max(_MOST_KEPT, self._disk_bytes):
            return None
        if self._kept is None or self._kept[0] is not kernel:
            self._kept = None  # those under another map make room
            blocks = (kernel(x[start : start + _AT_ONCE]).astype(np.int32) for start in range(0, len(x), _AT_ONCE))
            try:
                self._kept = kernel, (_in_memory if needed <= _MOST_KEPT else _on_disk)(blocks, shape)
            except OSError as error:
                _log.warning("%s: features are computed again in every round", error, extra=event("features-not-kept"))
                self._disk_bytes = 0
                return None
        return self._kept[1]

    def direction(self, kernel: KernelMap) -> IntArray:
        """The party's one vector where it is protected as a whole, as long as one contribution; the count is 0.

        It points where the mean vectors of its classes do, each weighted by the root of its number of records, so
        that few records of a class are heard beside many of another. Without records it is 0.
        """
        classes, labels = self._classes, self._examples.labels()
        codes = np.zeros((classes, kernel.dimensions))
        for label in np.unique(labels).tolist():
            own = labels == label
            summed = kernel.totals(self._examples.x[own], labels[own], np.ones_like(labels[own]), Codes(classes))
            codes += summed / math.sqrt(own.sum())
        fine = np.rint(codes * (_FINE / max(float(np.abs(codes).max()), 1.0))).astype(np.int64)
        return np.append(of_length(fine.reshape(1, -1), bound_squared(classes))[0], 0)


def _in_memory(blocks: Iterator[NDArray[np.int32]], shape: tuple[int, int]) -> NDArray[np.int32]:
    """The blocks one after the other."""
    vectors = np.empty(shape, dtype=np.int32)
    for number, block in enumerate(blocks):
        vectors[number * _AT_ONCE :][: len(block)] = block
    return vectors


def _on_disk(blocks: Iterator[NDArray[np.int32]], shape: tuple[int, int]) -> NDArray[np.int32]:
    """The same, from a file without a name that ends with them; OSError where the disk does not take them."""
    with TemporaryFile() as file:
        for block in blocks:
            file.write(block.data)
        file.flush()
        return np.memmap(file, np.int32, "r", shape=shape)


KEPT_AS = "agreement.json"
"""The file in the party's folder that holds what the first sum said of the own records; private."""


class _First(NamedTuple):
    """The party's answer in the first round under a map: which it was, under which, and what was summed."""

    round_id: str
    kernel: KernelMap
    own: NDArray[np.float32]


@register
class PartyClassSums(PartyKind[SumClasses]):
    """Sums the records under the kernel map that is asked for, and holds the others' first sum against them."""

    question = SumClasses

    def __init__(self, own: Institution) -> None:
        super().__init__(own)
        self._records = RecordsOfClasses(own.examples, own.task, own.device, own.disk_bytes)
        self._first: _First | None = None

    def validate(self, question: SumClasses) -> None:
        check_classes(self.own.task, question.classes)
        inputs, kernel = self.own.task.inputs, question.kernel
        if kernel is None:
            if question.entries != (entries := input_entries(inputs)):
                raise DataError(f"the question is about {question.entries} entries of inputs, this task has {entries}")
            return
        dimensions(kernel.features, inputs)
        if kernel.shares is not None:
            check_shares(kernel.shares, inputs, question.classes)

    def compute(self, question: SumClasses, asked: Asked) -> IntArray:
        if question.kernel is None:
            return self._records.of_inputs()[None]
        pool, inputs = self.own.pools.open(question.pool_sha256), self.own.task.inputs
        kernel = KernelMap.shared(question.kernel, question.pool_sha256, pool, inputs, self.own.device)
        vector = self._records.direction(kernel) if question.per_party else self._records.sums(kernel, question.weights)
        if question.tells_classes_apart:
            self._first = _First(asked.round_id.partition(".")[0], kernel, vector.astype(np.float32))
        return vector[None]

    def shown(self, released: ShowReleased) -> None:
        """Compare the own records with the others', by the first sum of all."""
        first, self._first = self._first, None
        if first is None or (released.round_id, len(released.counts)) != (first.round_id, len(first.own)):
            return
        rows, classes = sampled(self.own.examples), self.own.task.classes
        vectors, labels = first.kernel(self.own.examples.x[rows]).astype(np.float64), self.own.examples.labels()[rows]
        others = np.array(released.counts) - first.own.astype(np.float64)
        found = compared(vectors, labels, others, math.sqrt(released.noise_variance))
        warning = None if found is None or not found.broken else _warning([classes[one] for one in found.classes])
        self.own.note(KEPT_AS, {"warning": warning}, "classes-differ", "the others' records do not contradict the own")

    @classmethod
    def noted(cls, folder: Path) -> Mapping[str, Any]:
        return {"warning": kept(folder / KEPT_AS).get("warning")}


def _warning(classes: list[str]) -> str:
    named = f", most clearly {', '.join(map(repr, classes[:5]))}" if classes else ""
    return (
        f"by the first sum of all, the other institutions' records tell the classes apart otherwise than these{named}: "
        "check the classes, units and columns of these records before more is asked of them; where they are right, "
        "another institution's are wrong, or it counts more than all others: tell the consortium"
    )
