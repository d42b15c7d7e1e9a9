"""Whether released numbers can be what they are said to be; what no records give is refused. It costs no ε.

A masked sum hides who spoiled it. But parties answer several questions about the same records, and each answer has a
length and a count:

* Class sums. n contributions of length at most Δ add up to at most n·Δ; their codes add up to 0 over the classes, and
  the constant entry of φ counts the records of each class, which are between none and all. n is the sum's own last
  entry, and at most what the cap on a party's records allows (`Terms.most_records`).
* Counts of the same parties' records, in whichever question they were counted, are equal.

Each comparison allows for the noise and fails honest parties with probability at most `FAILURE`. The noise of a long
vector v of L entries, of which B is the squared length of what is under the noise, in units of the noise: |v|² is
above L + B + 2·√((L + 2B)·x) + 2x with probability at most e^−x (Birgé 2001, Lemma 8.1).

References
----------
Birgé, "An alternative point of view on Lepski's method", IMS Lecture Notes 36, 2001.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from collegium.coordinator.journal import Part, Released
from collegium.errors import Contradiction
from collegium.models.input_sums import code_of_one
from collegium.models.kernels import CONSTANT
from collegium.privacy.evaluation_cells import Layout
from collegium_accounting.mechanisms import record_counts
from collegium_accounting.mechanisms.class_sums import ONE, bound_squared, code_one, count_of_one
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import IntArray

FAILURE = 1e-6
"""With what probability one comparison fails although all parties are honest."""
_DEVIATIONS = 4.8917
"""A normal variable is further than so many standard deviations from its mean with that probability."""
_CAP_DEVIATIONS = 3.0903
"""And so many with a probability of 0.001."""
_EXPONENT = -math.log(FAILURE)
_SLACK = 0.02
"""What rounding takes from persons of many records, and what changes at institutions between two questions."""
_DO = (
    "an institution sent what no records give, and nothing of this run is published: ask each institution how many "
    "records it answered for, and begin a study without the one that cannot explain it"
)


@dataclass(frozen=True)
class Counted:
    """How many records a release counted.

    Parameters
    ----------
    where : the release, in words.
    parties : whose records they are, sorted.
    per_class : noisy numbers of records, ``[classes]``; None where only their total is known.
    error, class_error : standard deviation of the noise on the total, and on the number of one class.
    """

    where: str
    parties: tuple[str, ...]
    total: float
    error: float
    per_class: FloatArray | None = None
    class_error: float = 0.0


def counted_by_sums(sums: Part | Released, classes: int, *, of_inputs: bool = False) -> Counted:
    """The records that class sums count: in all by their last entry, by class by the constant entry of φ as well.

    Those ``of_inputs`` themselves (`models.input_sums`) have constant entries that count the records of one class.
    """
    one = count_of_one(classes)
    total, error = float(sums.values[-1]) / one, sums.noise / one
    unit = CONSTANT * (code_of_one(classes) if of_inputs else code_one(classes))
    constants = sums.values[:-1].reshape(classes, -1)[:, -1] / unit
    if of_inputs:
        return Counted("the class sums", sums.parties, total, error, constants, sums.noise / unit)
    per_class = (constants + total) / classes
    class_error = math.hypot(sums.noise / unit, error) / classes
    return Counted("the class sums", sums.parties, total, error, per_class, class_error)


def counted_by_evaluation(cells: FloatArray, noise: float, parties: tuple[str, ...], classes: int) -> Counted:
    """The records that the cells of an evaluation count; ``cells`` and ``noise`` in records."""
    true, *_ = Layout(classes).views()
    said = true >= 0
    per_class = np.bincount(true[said], weights=cells[said], minlength=classes).astype(np.float64)
    of_class = math.sqrt(int((true == 0).sum())) * noise
    total = float(cells[said].sum())
    return Counted("the evaluation", parties, total, math.sqrt(classes) * of_class, per_class, of_class)


def counted_in_cells(where: str, values: IntArray, noise: float, parties: tuple[str, ...]) -> Counted:
    """The records that cells count to one of which each record adds; ``values`` and ``noise`` as released."""
    one = record_counts.ONE
    return Counted(where, parties, float(values.sum()) / one, noise / one * math.sqrt(len(values)))


def check_sums(
    sums: Part, classes: int, *, most_records: int, per_party: bool, by_class: bool = True, of_inputs: bool = False
) -> None:
    """Raise Contradiction unless class sums can be those of records.

    Parameters
    ----------
    most_records : the cap on the records of one party.
    per_party : whether each party sent one vector of the length of one contribution.
    by_class : whether they count records by class, as those of a first round do; later ones ask for residuals.
    of_inputs : whether they are of the inputs themselves, where codes are those of one class alone.
    """
    noise, parties = max(sums.noise, 1e-9), len(sums.parties)
    counted = counted_by_sums(sums, classes, of_inputs=of_inputs)
    if per_party:
        most = float(parties)
        if abs(counted.total) > _DEVIATIONS * counted.error + _SLACK:
            raise _contradiction(f"the class sums of {parties} institutions count records, which none of them may send")
    else:
        most = (counted.total + _DEVIATIONS * counted.error) / (1.0 - _SLACK)
        least = counted.total - _DEVIATIONS * counted.error
        if most < 0.0 or least > most_records * parties:
            raise _contradiction(
                f"the class sums count {counted.total:,.0f} records of {parties} institutions, where each has 0 to "
                f"{most_records:,}"
            )
        assert counted.per_class is not None  # class sums count by class
        beyond = np.maximum(-counted.per_class, counted.per_class - counted.total / (1.0 - _SLACK))
        if by_class and float(beyond.max()) > _DEVIATIONS * math.hypot(counted.class_error, counted.error):
            number = int(beyond.argmax())
            raise _contradiction(
                f"the class sums count {counted.per_class[number]:,.0f} records of class {number + 1} among "
                f"{counted.total:,.0f} in all"
            )
    length = math.sqrt(bound_squared(classes))
    if _too_long(sums.values, noise, most * length):
        ratio = float(np.linalg.norm(sums.values / length)) / max(counted.total if not per_party else parties, 1.0)
        raise _contradiction(f"the class sums are {ratio:.3g} times as long as what they count can make them")
    if of_inputs:
        return
    codes = sums.values[:-1].reshape(classes, -1).sum(axis=0)
    # Shares of a person are whole numbers, and so are codes of later rounds: what they add up to is 0 but for one each.
    rounding = most * classes * (math.sqrt(len(codes)) + (0 if by_class else ONE))
    if _too_long(codes, noise * math.sqrt(classes), rounding):
        raise _contradiction("the class sums do not add up to nothing over the classes, as every record's part does")


def check_cap(rounds: Sequence[Counted], *, most_records: int) -> None:
    """Raise Contradiction where several counts of the same parties' records together pass the cap.

    It fails honest parties of which each has as many records as the cap with probability at most 0.001; each group is
    looked at once in a run. Together, counts tell a smaller lie than each by itself.
    """
    weights = np.array([max(one.error, 1e-9) ** -2.0 for one in rounds])
    if not len(weights):
        return
    parties, total = len(rounds[0].parties), float(weights @ [one.total for one in rounds] / weights.sum())
    if (total - _CAP_DEVIATIONS / math.sqrt(weights.sum())) * (1.0 - _SLACK) > most_records * parties:
        raise _contradiction(
            f"{rounds[0].where} of all rounds together count {total:,.0f} records of {parties} institutions, where "
            f"each has at most {most_records:,}"
        )


def check_counts(counted: Sequence[Counted]) -> None:
    """Raise Contradiction where the same parties' records were counted differently by several releases."""
    for first, second in combinations(counted, 2):
        if first.parties != second.parties:
            continue
        check_totals(first, second)
        if first.per_class is not None and second.per_class is not None:
            number = int(np.abs(first.per_class - second.per_class).argmax())
            one, other = (first.per_class[number], first.class_error), (second.per_class[number], second.class_error)
            _check_equal(first, second, one, other, f"of class {number + 1}, ")


def check_shares(counted: Counted) -> None:
    """Raise Contradiction unless counts of the shares of whole parties add up to about one a party."""
    parties, error = len(counted.parties), _DEVIATIONS * counted.error
    if not 0.5 * parties - error <= counted.total <= (1.0 + _SLACK) * parties + error:
        raise _contradiction(f"{counted.where} counts {counted.total:,.1f} institutions, and {parties} answered")


def check_totals(first: Counted, second: Counted) -> None:
    """Raise Contradiction where two releases counted another number of the same parties' records."""
    _check_equal(first, second, (first.total, first.error), (second.total, second.error))


def _check_equal(
    first: Counted, second: Counted, one: tuple[float, float], other: tuple[float, float], whose: str = ""
) -> None:
    """Raise Contradiction unless both releases counted about the same number; each is given with its error."""
    slack = _SLACK * max(first.total, second.total, 0.0)
    if abs(one[0] - other[0]) > _DEVIATIONS * math.hypot(one[1], other[1]) + slack:
        raise _contradiction(
            f"{whose}{first.where} count{'' if first.where.endswith('s') else 's'} {one[0]:,.0f} records, and "
            f"{second.where} {other[0]:,.0f} of the same institutions"
        )


def _too_long(values: IntArray, noise: float, longest: float) -> bool:
    """Whether a noisy vector is longer than one of length ``longest`` with that noise on every entry becomes."""
    under, entries = (longest / noise) ** 2, len(values)
    squared = float(((values / noise) ** 2).sum())
    return squared > entries + under + 2.0 * math.sqrt((entries + 2.0 * under) * _EXPONENT) + 2.0 * _EXPONENT


def _contradiction(why: str) -> Contradiction:
    return Contradiction(f"{why}: {_DO}")
