"""What noisy counts of cells say about a classifier: its quality, with errors that include the noise.

`evaluation_cells` says what the cells are. Every figure but the calibration error is a ratio of sums of cells. If
f is such a ratio with gradient g, n the counts and s² the variance of the noise on each, its variance is
Σ (nᵢ + s²)·gᵢ² to first order (delta method): nᵢ is the variance of a count when records are drawn (Poisson), and since
f does not change when all counts are doubled, it does not matter that their total is fixed. So an interval is about
records like those that were counted, not about these records alone.
"""

import math

import numpy as np

from collegium.privacy.evaluation_cells import BINS, MIDDLES, Layout
from collegium.settings import Frozen
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import IntArray

NORMAL_95 = 1.959964
WEAK_CLASS = 0.5
"""A class of which a smaller share is right is named wherever the student is described."""
_SIGNAL = 3.0
"""A sum of counts below this many standard deviations of its noise says nothing."""
_DRAWS = 2_000


class Estimate(Frozen):
    """A figure, its standard error, and an interval that contains the true value in 95 % of all cases."""

    value: float
    error: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"


class Measures(Frozen):
    """The quality of one classifier on the parties' records; None where the noise is larger than the counts.

    Attributes
    ----------
    records : number of records (persons where records have groups; parties under the unit party).
    constant : the accuracy of always answering the most frequent class, which is ``constant_class``.
    recall : by class, the share of its records that are answered right.
    auroc : area under the ROC curve of the score in its bins; the mean over one class against the rest where there
        are more than two.
    calibration_error : mean distance between a bin's middle and the frequency in it, over bins and classes.
    confusion : estimated records by true class (rows) and predicted class (columns); may be below 0.
    """

    classes: tuple[str, ...]
    records: Estimate
    accuracy: Estimate | None
    constant_class: str
    constant: Estimate | None
    balanced: Estimate | None
    recall: tuple[Estimate | None, ...]
    auroc: Estimate | None
    calibration_error: Estimate | None
    confusion: tuple[tuple[float, ...], ...]

    @property
    def better_than_constant(self) -> bool | None:
        """Whether the accuracy is above the constant answer's beyond the errors of both; None where it is unknown."""
        if self.accuracy is None or self.constant is None:
            return None
        return self.accuracy.low > self.constant.high

    @property
    def verdict(self) -> str:
        """What a sentence about the classifier says of its quality, from "right for …" on."""
        if self.accuracy is None or self.constant is None:
            return "its quality drowned in the noise of the measurement: spend more ε on it"
        right = f"right for {self.accuracy} of the institutions' own records"
        always, value = f"always answering “{self.constant_class}”", f"({100 * self.constant.value:.1f} %)"
        if not self.better_than_constant:
            return f"{right}: not shown to be better than {always} {value}"
        weak = ", ".join(f"“{name}” {100 * recall.value:.1f} %" for name, recall in self.weak[:3])
        return f"{right}; {always} {value} is worse" + (f". Weak classes: {weak}" if weak else "")

    @property
    def weak(self) -> list[tuple[str, Estimate]]:
        """The classes of which too small a share is answered right, with that share."""
        told = zip(self.classes, self.recall, strict=True)
        return [(name, recall) for name, recall in told if recall is not None and recall.value < WEAK_CLASS]


def measures(cells: FloatArray, noise_variance: float, classes: tuple[str, ...]) -> Measures:
    """The quality that one candidate's cells show.

    Parameters
    ----------
    cells : noisy counts in records, shape ``[Layout.length]``.
    noise_variance : of the noise on each cell, in records².
    classes : the names of the task's classes.

    Returns
    -------
    Every figure with its error.
    """

    def of_class(number: int) -> FloatArray:
        return np.asarray(true == number, dtype=np.float64)

    layout, number = Layout(len(classes)), len(classes)
    true, given, positives, negatives = layout.views()
    counted = _Counted(cells, noise_variance)
    confusion = np.zeros((number, number))
    said = true >= 0
    np.add.at(confusion, (true[said], given[said]), cells[said])
    everything, right = said.astype(np.float64), (said & (true == given)).astype(np.float64)
    recall = tuple(counted.ratio(right * of_class(c), of_class(c)) for c in range(number))
    most = int(np.argmax(confusion.sum(axis=1)))
    total, spread = float(everything @ cells), counted.deviation(everything)
    return Measures(
        classes=classes,
        records=_estimate(total, spread, highest=np.inf),
        accuracy=counted.ratio(right, everything),
        constant_class=classes[most],
        constant=counted.ratio(of_class(most), everything),
        balanced=_mean(recall),
        recall=recall,
        auroc=counted.area(positives, negatives),
        calibration_error=counted.calibration(positives, negatives, layout),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
    )


def records_needed(classes: int, noise_variance: float, *, within: float = 0.05, accuracy: float = 0.8) -> int:
    """From how many records on the interval of this accuracy reaches at most ``within`` to both sides.

    ``noise_variance`` is that of `measures`, which states the same error.
    """
    true, given, *_ = Layout(classes).views()
    said = true >= 0
    squares = float((((true == given)[said] - accuracy) ** 2).sum())  # of the gradient, times the records
    drawn, error = accuracy * (1.0 - accuracy), within / NORMAL_95
    root = math.sqrt(drawn**2 + 4.0 * error**2 * noise_variance * squares)
    return math.ceil((drawn + root) / (2.0 * error**2))


def within(records: int, accuracy: float = 0.8) -> float:
    """How far to both sides the interval of this accuracy reaches on so many labelled records, without noise."""
    return NORMAL_95 * math.sqrt(accuracy * (1.0 - accuracy) / records)


def share_right(share: float, records: int) -> Estimate:
    """The share of so many records that was answered right, with Wilson's interval for records like these."""
    square = NORMAL_95**2 / records
    middle = (share + square / 2.0) / (1.0 + square)
    reach = math.sqrt(square * (share * (1.0 - share) + square / 4.0)) / (1.0 + square)
    error = math.sqrt(share * (1.0 - share) / records)
    return Estimate(value=share, error=error, low=max(0.0, middle - reach), high=min(1.0, middle + reach))


class _Counted:
    """Noisy counts, of which figures are computed."""

    def __init__(self, cells: FloatArray, noise_variance: float) -> None:
        self._cells, self._noise = np.asarray(cells, dtype=np.float64), noise_variance
        self._variances = np.maximum(self._cells, 0.0) + noise_variance

    def deviation(self, weights: FloatArray) -> float:
        """The standard deviation of the noise of a weighted sum of the cells."""
        return float(np.sqrt(self._noise * (weights**2).sum()))

    def drowned(self, weights: FloatArray) -> bool:
        """Whether such a sum is not clearly above 0."""
        return float(weights @ self._cells) <= _SIGNAL * max(self.deviation(weights), 1e-12)

    def ratio(self, top: FloatArray, bottom: FloatArray) -> Estimate | None:
        """A ratio of two weighted sums."""
        if self.drowned(bottom):
            return None
        below = float(bottom @ self._cells)
        value = float(top @ self._cells) / below
        gradient = (top - value * bottom) / below
        return _estimate(value, float(np.sqrt(self._variances @ gradient**2)))

    def area(self, positives: IntArray, negatives: IntArray) -> Estimate | None:
        """The share of pairs of a positive and a negative whose positive lies in the higher bin; ties count half.

        Both arrays, shape ``[questions, bins]``, name the cells that count the positives and negatives of a bin; the
        figure is the mean over the questions. With several of them a record is in one cell of each kind, which at most
        doubles the variance that drawing records brings.
        """
        values, gradient = [], np.zeros(len(self._cells))
        for up, down in zip(positives, negatives, strict=True):
            if self.drowned(self._ones(up)) or self.drowned(self._ones(down)):
                return None
            positive, negative = self._cells[up], self._cells[down]
            below, above = np.cumsum(negative) - negative / 2.0, np.cumsum(positive[::-1])[::-1] - positive / 2.0
            pairs = positive.sum() * negative.sum()
            values.append(float(positive @ below / pairs))
            gradient[up] += below / pairs - values[-1] / positive.sum()
            gradient[down] += above / pairs - values[-1] / negative.sum()
        variances = np.maximum(self._cells, 0.0) * min(2, len(values)) + self._noise
        return _estimate(float(np.mean(values)), float(np.sqrt(variances @ gradient**2)) / len(values))

    def _ones(self, cells: IntArray) -> FloatArray:
        """Weights that add up these cells."""
        weights = np.zeros(len(self._cells))
        weights[cells] = 1.0
        return weights

    def calibration(self, positives: IntArray, negatives: IntArray, layout: Layout) -> Estimate | None:
        """The mean over bins and classes of |frequency − middle of the bin|, weighted by the records in them.

        With e_b the error of a bin's difference, the figure is off by at most Σ|e_b|, whose 95 % quantile is drawn; so
        the interval holds although absolute values of noise add up.
        """
        ups, downs = positives.ravel(), negatives.ravel()
        middles = np.tile(MIDDLES, len(ups) // BINS)
        up_weights, down_weights = 1.0 - middles, -layout.rest * middles
        everything = self._ones(ups) + layout.rest * self._ones(downs)
        if self.drowned(everything):
            return None
        records = float(everything @ self._cells)
        variances = self._variances[ups] * up_weights**2 + self._variances[downs] * down_weights**2
        deviations = np.sqrt(variances) / records
        differences = self._cells[ups] * up_weights + self._cells[downs] * down_weights
        value = float(np.abs(differences).sum() / records)
        drawn = np.abs(np.random.default_rng(0).standard_normal((_DRAWS, len(deviations)))) @ deviations
        reach = float(np.quantile(drawn, 0.95))
        if reach >= 0.25:
            return None  # half of everything from 0 to 100 % may lie within
        return Estimate(
            value=value,
            error=float(np.sqrt((deviations**2).sum())),
            low=max(0.0, value - reach),
            high=min(1.0, value + reach),
        )


def _estimate(value: float, error: float, highest: float = 1.0) -> Estimate:
    low, high = max(0.0, value - NORMAL_95 * error), min(highest, value + NORMAL_95 * error)
    # Noise may carry a share out of its range.
    return Estimate(value=min(max(value, 0.0), highest), error=error, low=min(low, highest), high=max(high, 0.0))


def _mean(parts: tuple[Estimate | None, ...]) -> Estimate | None:
    """The mean of figures from different cells, whose errors are independent; None where one is not known."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    error = np.sqrt(sum(part.error**2 for part in known)) / len(known)
    return _estimate(float(np.mean([part.value for part in known])), float(error))
