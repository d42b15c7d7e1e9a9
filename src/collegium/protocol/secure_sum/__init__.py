"""The secure sum: the coordinator learns the total of the parties' integer vectors and nothing else.

Bonawitz et al. 2017 against a lying coordinator, on the sparse graph of Bell et al. 2020. Both
sides are state machines that know no transport; docs/research/secure-sum.md describes phases and keys.
"""

from collegium.protocol.secure_sum.coordinator import CoordinatorSum, SumResult
from collegium.protocol.secure_sum.messages import Phase
from collegium.protocol.secure_sum.party import PartySum
from collegium.protocol.secure_sum.plan import GraphPlan, plan_graph
from collegium.protocol.secure_sum.setup import SumSetup, accept_parameters, choose_ring

__all__ = [
    "CoordinatorSum",
    "GraphPlan",
    "PartySum",
    "Phase",
    "SumResult",
    "SumSetup",
    "accept_parameters",
    "choose_ring",
    "plan_graph",
]
