"""Asks what all records add up to, class by class, under a public kernel map and public weights."""

import math
from dataclasses import dataclass
from typing import ClassVar

from collegium import limits
from collegium.data.values import SHA256, require
from collegium.models.codes import Weights
from collegium.models.kernels import KernelSpec
from collegium.protocol.question import RecordsQuestion, register
from collegium_accounting.mechanisms.class_sums import bound_squared


@register
@dataclass(frozen=True)
class SumClasses(RecordsQuestion):
    """Ask for the class sums of the party's records (`mechanisms.class_sums`), ``[classes, dimensions]``, and a count.

    Parameters
    ----------
    terms : with the parameter ``classes``.
    kernel : the public map; its landmarks are inputs of the pool ``pool_sha256``. None asks for the sum of
        the inputs themselves (`models.input_sums`), which has the same bound and is the first of several.
    per_party : the party then sends one vector of the length of one contribution, in place of the sum of its records'
        contributions.
    number : which of the sums that the terms name (``rounds``) this is, from 1 on.
    weights : by how much these miss a record's class is summed; None where every class counts as likely as another.
    entries : how many numbers that has for each class but the constant one, where there is no map; else 0.
    """

    kind: ClassVar[str] = "class-sums"
    reads: ClassVar[tuple[str, ...]] = ("classes", "rounds")

    kernel: KernelSpec | None
    pool_sha256: str
    number: int = 1
    weights: Weights | None = None
    entries: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(SHA256.fullmatch(self.pool_sha256) is not None, "a pool is named by 64 hexadecimal digits")
        require(1 <= self.number <= self.terms.parameters.get("rounds", 1.0), "the terms name so many class sums")
        of_inputs = 1 <= self.entries <= limits.MAX_SUM_LENGTH
        require(of_inputs if self.kernel is None else self.entries == 0, "a sum is under a map, or of the inputs")
        if self.kernel is None or self.kernel.shares is not None:
            require(not self.per_party, "the one vector of a party is summed under a map of the pool")
        if self.kernel is None:
            require(self.number == 1 and self.weights is None, "the first sum alone is of the inputs")
        if self.weights is not None:
            require(not self.per_party, "the one vector of a party is summed without weights")
            fits = self.weights.whole.shape == (self.dimensions, self.classes)
            require(fits, "weights have a row for each dimension of the map and a column for each class")

    @property
    def classes(self) -> int:
        """The number of classes of the task, as the terms have it."""
        classes = self.terms.parameters.get("classes", 0.0)
        require(classes == int(classes) and 2 <= classes <= limits.MAX_CLASSES, "the terms name the number of classes")
        return int(classes)

    @property
    def dimensions(self) -> int:
        """Numbers that the sum has for each class."""
        return self.entries + 1 if self.kernel is None else self.kernel.dimensions

    @property
    def tells_classes_apart(self) -> bool:
        """Whether a party can tell by the sum if the others' records tell the classes apart as its own do.

        That is the first one under a map.
        """
        first = 1 if self.kernel is None or self.kernel.shares is None else 2
        return self.kernel is not None and self.number == first and not self.per_party

    @property
    def to_come(self) -> int:
        return int(self.terms.parameters.get("rounds", 1.0)) - self.number

    @property
    def of_one(self) -> int:
        return math.isqrt(bound_squared(self.classes))

    @property
    def length(self) -> int:
        return self.classes * self.dimensions + 1
