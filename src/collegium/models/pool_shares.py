"""What the structure of a public pool says of classes beside noisy sums: shares of its inputs in each class.

References
----------
Deming and Stephan, "On a least squares adjustment of a sampled frequency table", Ann. Math. Statistics 1940.
Scudder, "Probability of error of some adaptive pattern-recognition machines", 1965 (learning from one's own labels).
James and Stein, "Estimation with quadratic loss", 1961.
"""

import math

import numpy as np
from numpy.typing import NDArray


def shares_in_classes(scores: NDArray[np.float64], prior: NDArray[np.float64], agreement: float) -> NDArray[np.float64]:
    """What share each input has in each class: softmax(scores/t) times the prior.

    t is such that the shares agree with the scores as well as the classes of the records do. So the shares are nearly
    0 or 1 where classes lie apart, and stay near the prior where scores tell little.

    Parameters
    ----------
    scores : ``[inputs, classes]``.
    prior : how frequent each class is, ``[classes]``.
    agreement : mean over records of the score of a record's own class, less the scores' mean under the prior.

    Returns
    -------
    float64 array
        ``[inputs, classes]``; rows add up to 1.
    """
    scores = scores - (scores @ prior)[:, None]
    spread = max(float(scores.std()), 1e-12)

    def shares(temperature: float) -> NDArray[np.float64]:
        raised = np.exp((scores - scores.max(axis=1, keepdims=True)) / temperature) * prior
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    low, high = 1e-2 * spread, 1e4 * spread
    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if float((shares(middle) * scores).sum(axis=1).mean()) > agreement else (low, middle)
    return shares(high)


def of_frequencies(shares: NDArray[np.float64], frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    """The shares of inputs in classes, each class scaled so that it is as frequent among the inputs as it should be.

    Classes and inputs are scaled in turn (Deming and Stephan 1940). So no class takes inputs from the others because
    noise made its scores large.

    Parameters
    ----------
    shares : ``[inputs, classes]``; rows add up to 1, as those of the result do.
    frequencies : what the mean of the result's rows nearly is, ``[classes]``, positive.
    """
    for _ in range(30):
        shares = shares * (frequencies / np.maximum(shares.mean(axis=0), 1e-12))
        shares /= shares.sum(axis=1, keepdims=True)
    return shares


def threshold(lead: NDArray[np.float64], frequency: float, variance: float) -> float:
    """Where to part two classes, so that the rarer one is not named too seldom: 0 or a little beside it.

    Least squares names a rare class less often than it occurs. The number of inputs that are named so is moved three
    quarters of the way to the class's frequency among the records, after what chance explains is taken off (James and
    Stein 1961). It is moved by at most a quarter of the inputs already named so: where scores tell little, a rare class
    is rightly named almost never.

    Parameters
    ----------
    lead : by how much the second class's score is above the first's, of the pool's inputs, ``[inputs]``.
    frequency : of the second class among the records.
    variance : of the noise on that frequency.
    """
    if (lead > 0).mean() > frequency:
        return -threshold(-lead, 1.0 - frequency, variance)
    named = float((lead > 0).mean())
    missing = frequency - named
    by_chance = variance + frequency * (1.0 - frequency) / len(lead)
    more = min(0.75 * (missing - by_chance / max(missing, 1e-12)), 0.25 * named)
    return float(np.quantile(lead, 1.0 - named - more)) if more > 0 and frequency < 0.5 else 0.0
