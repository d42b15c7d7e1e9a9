"""May this charge still be composed? Rényi filters for charges that are chosen as the answers come in.

At one order fixed beforehand, charges may be chosen adaptively as long as their sum stays within a budget
fixed beforehand (Feldman and Zrnic 2021, Theorem 4.3; Lécuyer 2021, Theorem 1). Which of several orders
ends up serving depends on the answers, so each gets its own share δ/|orders| and a union over orders
makes the total failure δ: with A_α the runs that ended within the budget of order α,
Pr[S] ≤ Σ_α Pr[S ∩ A_α] ≤ e^ε·Σ_α Pr′[S ∩ A_α] + δ, each run counted under one order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collegium.errors import BudgetExceeded
from collegium_accounting.renyi import Conversion, FloatArray, RenyiCurve, check_orders


class RenyiFilter:
    """Admits charges while the whole stays (ε, δ)-DP, however they were chosen.

    Parameters
    ----------
    epsilon, delta : the budget.
    orders : the orders to keep account at. One alone loses nothing: that at which the expected total converts best.
    conversion : from Rényi to (ε, δ).
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        orders: Sequence[float],
        conversion: Conversion = Conversion.IMPROVED,
    ) -> None:
        self._epsilon = epsilon
        self._delta = delta
        self._conversion = conversion
        self._spent = RenyiCurve.zero(check_orders(orders))

    @property
    def spent(self) -> RenyiCurve:
        """Everything admitted so far."""
        return self._spent

    def admits(self, charge: RenyiCurve) -> bool:
        """Whether ``charge``, on the filter's orders, still fits."""
        return bool((self._epsilons(self._spent + charge) <= self._epsilon).any())

    def charge(self, charge: RenyiCurve) -> None:
        """Compose ``charge``; raises BudgetExceeded, and changes nothing, if it does not fit."""
        if not self.admits(charge):
            spent = float(self._epsilons(self._spent).min())
            raise BudgetExceeded(
                f"{spent:.4g} of ε = {self._epsilon:g} is spent and the next charge does not fit; raise it or stop"
            )
        self._spent = self._spent + charge

    def _epsilons(self, curve: RenyiCurve) -> FloatArray:
        share = self._delta / len(curve.orders)
        return np.array(
            [
                RenyiCurve((order,), curve.values[k : k + 1], curve.delta / len(curve.orders))
                .to_epsilon(share, self._conversion)
                .epsilon
                for k, order in enumerate(curve.orders)
            ]
        )
