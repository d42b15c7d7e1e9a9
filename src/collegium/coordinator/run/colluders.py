"""What ε becomes where more parties collude with the coordinator than a secure sum was planned for.

The noise of a colluding party is known, and does not count. With c colluders, a coordinator that leaves out as many
honest parties as the quorum lets it opens a sum with the noise of Q − s* − c of them (`GraphPlan`). From t colluders
on, who hold the shares that open a secret, or from 2Q − n on, who can sign two lists of survivors, it sees vectors of
single parties, each with its own share of the noise alone.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace

from collegium.protocol.secure_sum.plan import GraphPlan
from collegium_accounting.game.laws import Law, block_epsilon
from collegium_accounting.mechanisms import AddedBy, Mechanism, Unit
from collegium_accounting.mechanisms.gaussian_stage import GaussianStage


@dataclass(frozen=True)
class Colluders:
    """What is left of the promise with so many parties colluding with the coordinator, or more.

    Parameters
    ----------
    colluding : so many.
    noise_of : of how many honest parties the noise is left, at worst.
    epsilon : of everything that the run releases, at its δ.
    """

    colluding: int
    noise_of: int
    epsilon: float


def breaking(plan: GraphPlan) -> int:
    """The number of colluders from which single vectors may be seen; of a sparse graph, the expected one."""
    opens = math.ceil(plan.threshold * (plan.parties - 1) / plan.neighbours)
    return max(plan.colluding + 1, min(opens, 2 * plan.quorum - plan.parties))


def beyond_plan(  # one parameter for each symbol of the computation
    mechanism: Mechanism, plan: GraphPlan, unit: Unit, delta: float, queries: int, most: int = 0
) -> list[Colluders]:
    """ε with the planned number of colluders, one more, half-way to those that open single vectors, and with these.

    Parameters
    ----------
    mechanism : whose noise the parties add.
    queries : that go through all of its steps.
    most : honest parties that the smallest share of noise counts on; those of the plan if 0.
    """
    worst, planned = min(breaking(plan), plan.parties - 1), AddedBy(plan.honest_survivors)

    def beside(colluding: int) -> Colluders:
        alone = colluding >= worst  # single vectors are seen, each with one of so many shares
        shares = max(most, plan.honest_survivors) if alone else plan.honest_survivors
        honest, rounds = 1 if alone else max(1, plan.honest_survivors - (colluding - plan.colluding)), Counter[Law]()
        for stage in mechanism.summed(planned):
            assert isinstance(stage, GaussianStage)  # parties share no other noise
            # The share of a party stays the same.
            left = replace(stage, sigma=stage.sigma * math.sqrt(honest / shares), added=AddedBy(honest))
            rounds[left.law(unit)] += mechanism.charged_queries(queries, planned)
        return Colluders(colluding, honest, block_epsilon(rounds, delta))

    return [beside(one) for one in sorted({plan.colluding, plan.colluding + 1, (plan.colluding + worst) // 2, worst})]
