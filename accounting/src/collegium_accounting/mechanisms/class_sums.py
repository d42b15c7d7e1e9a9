"""Class sums: one noisy vector that sums what every record contributes; all labels follow from it.

A record x of class y contributes φ(x) ⊗ c and the number `COUNT`. φ is a public map into whole-number vectors
(`models.kernels`) of Euclidean length at most `ONE`. The code c says in whole numbers by how much the record's class is
missed: in the first round c = F·(C·e_y − 1), where C is the number of classes and F is `code_one`; in a later one
c = F·C·(e_y − p), where p are the shares in classes that public weights give the record, rounded, and shortened where
it would be longer than √(C(C − 1))·F. A first sum may be in the cells of a table's columns: φ then has an entry for
each cell, and c is √(C(C − 1))·F, rounded down, for the record's class and 0 for the others. So a contribution depends
on its record and on public facts alone, consists of whole numbers, and its length is the product of the two lengths:
its square is at most
Δ² = F²·(ONE²·C(C − 1)) + COUNT² = `bound_squared`. From that follow, with whole numbers and no rounding left to argue
about:

* add-remove: the sum changes by one contribution, hence by at most Δ;
* replace: it changes by the difference of two contributions, hence by at most 2Δ. This is attained: with two classes
  a record whose label is turned contributes −φ(x) ⊗ c in the first round;
* a person with g records: each contributes trunc(φ(x)/g) ⊗ c and ⌊COUNT/g⌋. Truncation shortens, and the g vectors
  add up to one of length at most Δ by the triangle inequality;
* the unit party: a party sends one vector, whichever follows from its records, that is brought to a length of at most
  Δ. So adding or removing the party, with all of its records, moves the sum by at most Δ.

``sigma`` is the noise on every number in units of Δ, so the whole release is one Gaussian mechanism of sensitivity 1
and noise σ. Labels, scores and students are computed from it and cost nothing more.

Later rounds ask for sums under weights, or a map, that follow from what the earlier ones released. Whatever that was,
the question is fixed before a record is summed, so the bound holds again. T rounds with noise σ, each adaptive on those
before, are one Gaussian mechanism with noise σ/√T: for every outcome of the earlier rounds, the privacy loss of the
next is at most that of two normal distributions 1/σ apart, and independent losses of this kind add up to one of √T/σ
(Dong, Roth and Su 2022, Corollary 2).

References
----------
Hall, Rinaldo and Wasserman, "Differential privacy for functions and functional data", JMLR 2013.
Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, Theorem 8.
Dong, Roth and Su, "Gaussian differential privacy", Journal of the Royal Statistical Society B 2022.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from collegium_accounting.errors import ConfigurationError
from collegium_accounting.game.laws import block_epsilon
from collegium_accounting.limits import MAX_CLASSES, MAX_SUM_LENGTH
from collegium_accounting.mechanisms.base import Stage
from collegium_accounting.mechanisms.gaussian_stage import GaussianStage
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.mechanisms.whole_vector import VectorMechanism
from collegium_accounting.noise.distributed import COORDINATOR, AddedBy
from collegium_accounting.units import Adjacency, Unit

ONE = 2**16
"""The whole number that stands for length 1 of φ."""

MOST_ROUNDS = 8

FEW_CLASSES = 3
"""Up to so many count records more exactly; see `count_of_one`."""


def code_one(classes: int) -> int:
    """F: what a code's entries are multiplied by, so that C·F is about 512; 1 for many classes."""
    return 1 << max(0, 9 - (classes - 1).bit_length())


def count_of_one(classes: int) -> int:
    """`COUNT`: the number that stands for one record in the sum's last entry.

    It is an eighth of the other entries' Δ, which adds .8 % to the noise's variance. With up to `FEW_CLASSES` it is a
    quarter, which adds 6 %: noise costs these least, and the count tells who counts more records than its cap.
    """
    share = 4 if classes <= FEW_CLASSES else 8
    return code_one(classes) * (ONE * math.isqrt(classes * (classes - 1) * 2**20) // (share * 2**10))


def longest_code_squared(classes: int) -> int:
    """The largest squared length of a code."""
    return code_one(classes) ** 2 * classes * (classes - 1)


def bound_squared(classes: int) -> int:
    """Δ²: the largest squared length of one record's contribution, in the units of the sum's entries."""
    return ONE * ONE * longest_code_squared(classes) + count_of_one(classes) ** 2


@register
@dataclass(frozen=True)
class ClassSums(VectorMechanism):
    """The sum of all records' contributions + Gaussian noise of σ·Δ on every entry.

    Examples
    --------
    >>> import collegium_accounting as ca
    >>> from collegium_accounting.mechanisms.class_sums import ClassSums
    >>> print(f"{ca.account(ClassSums(sigma=7.0, classes=3), delta=1e-5).epsilon:.4f}")
    0.5025
    """

    name: ClassVar[str] = "class-sums"
    source: ClassVar[str] = "Hall, Rinaldo and Wasserman, JMLR 2013; Balle and Wang, ICML 2018, Theorem 8"
    charged_once: ClassVar[bool] = True

    sigma: Annotated[float, Parameter("standard deviation of the noise on each entry", "largest contributions")]
    classes: Annotated[int, Parameter("classes of the task", at_most=MAX_CLASSES)]
    rounds: Annotated[int, Parameter("sums that are released, each with this noise", at_most=MOST_ROUNDS)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes < 2:
            raise ConfigurationError(f"class sums need at least 2 classes; got {self.classes}")

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (SumRelease("sums", self.sigma, math.sqrt(bound_squared(self.classes))),)

    @classmethod
    def within_budget(cls, given: Mapping[str, Any], epsilon: float, delta: float) -> dict[str, Any]:
        """With the smallest noise whose ε fits the budget where ``given`` names no sigma; 4 digits, rounded up."""
        if "sigma" in given:
            return dict(given)
        low, high = 2.0**-6, 2.0**24
        while high - low > 1e-5 * high:
            middle = math.sqrt(low * high)
            tried = cls(**{**given, "sigma": middle})
            law = tried.stages[0].law(Unit(1, cls.adjacencies[0]))
            fits = block_epsilon({law: tried.rounds}, delta) <= epsilon * (1.0 - 1e-6)
            low, high = (low, middle) if fits else (middle, high)
        step = 10.0 ** (math.floor(math.log10(high)) - 3)
        return {**given, "sigma": float(f"{math.ceil(high / step) * step:.4g}")}

    def charged_queries(self, queries: int, added: AddedBy = COORDINATOR) -> int:
        """The number of sums, however many inputs are labelled from them."""
        return self.rounds if queries else 0


@dataclass(frozen=True)
class SumRelease(GaussianStage):
    """One noisy vector. The noise ``sigma`` of every entry is in units of Δ, which is ``bound`` in entries."""

    bound: float

    def moved(self, unit: Unit) -> float:
        """1 for each contribution, 2 where one replaces another."""
        return unit.votes * (1.0 if unit.adjacency is Adjacency.ADD_REMOVE else 2.0)

    def entries(self, unit: Unit) -> int:
        """Any entry of the longest vector that is summed may change."""
        return MAX_SUM_LENGTH

    @property
    def parts_of_a_vote(self) -> float:
        return self.bound
