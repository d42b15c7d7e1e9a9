"""What a label by sampled neighbours costs one record, by the party's own reckoning.

A record in or out moves two counts by 1 (docs/private-knn.md): L2 √2 for a release, 1 for the largest count; and
clipped votes of several labels by `multilabel.swap_l2`. It is in the sample with probability γ, by the party's own
coins, so the cost is that of the sampled Gaussian mechanism (Mironov, Talwar, Zhang 2019), here by the closed form
for whole orders, which holds for the discrete Gaussian on whole counts too: E[e^{j·loss}] of a whole shift is the
same for whole j. Other orders cost what the next whole one costs. The threshold test is charged as if its noisy
count were shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, logsumexp

from collegium.privacy.multilabel import swap_l2
from collegium.privacy.renyi import RenyiCurve, check_orders
from collegium.protocol.messages import CountNearest


def sampled_cost(body: CountNearest, orders: Sequence[float]) -> RenyiCurve:
    """Rényi cost to one record of one query's answer by class; its terms were checked by `terms.check_sampled`."""
    parameters = body.terms.parameters
    if body.tau is not None:
        noise = parameters["sigma"] / swap_l2(body.tau, int(parameters["labels"]))
    else:
        noise = parameters["sigma1"] if body.purpose == "threshold" else parameters["sigma2"] / math.sqrt(2.0)
    grid = check_orders(orders)
    whole = {math.ceil(order) for order in grid}
    costs = {order: _whole_order(parameters["sampling_rate"], noise, order) for order in whole}
    return RenyiCurve(grid, np.array([costs[math.ceil(order)] for order in grid]))


def _whole_order(rate: float, noise: float, alpha: int) -> float:
    """1/(α − 1)·log Σ_j C(α, j)·(1 − γ)^{α−j}·γ^j·e^{j(j−1)/2σ²}, and no more than without sampling."""
    flat = alpha / (2.0 * noise**2)
    if rate >= 1.0:
        return flat
    j = np.arange(alpha + 1.0)
    log_chosen = gammaln(alpha + 1.0) - gammaln(j + 1.0) - gammaln(alpha - j + 1.0)
    log_terms = log_chosen + (alpha - j) * math.log1p(-rate) + j * math.log(rate) + j * (j - 1.0) / (2.0 * noise**2)
    return min(flat, max(0.0, float(logsumexp(log_terms))) / (alpha - 1.0))
