"""What ε becomes with more colluding parties than planned: ``python -m benchmarks.colluders`` prints docs' table.

Class sums of 10 classes, one round, ε = 1 at δ = 1e-5 for one record as planned: a tenth of the parties collude, a
quorum of 0.8 of them must stay.
"""

from collegium.coordinator.run.colluders import beyond_plan
from collegium.protocol.secure_sum.plan import plan_graph
from collegium_accounting.mechanisms import create, mechanism_named

EPSILON, DELTA, CLASSES, ROSTERS = 1.0, 1e-5, 10, (5, 20, 250)


def rows() -> list[str]:
    """One row of a table for each roster and number of colluding parties."""
    kind = mechanism_named("class-sums")
    mechanism = create(kind.name, **kind.within_budget({"classes": CLASSES}, EPSILON, DELTA))
    found = []
    for parties in ROSTERS:
        plan = plan_graph(parties, dropout_fraction=0.3, collusion_fraction=0.1, quorum=0.8)
        for one in beyond_plan(mechanism, plan, mechanism.unit(), DELTA, 1, plan.of_all.honest_survivors):
            planned = ", planned" if one.colluding == plan.colluding else ""
            found.append(f"| {parties} | {one.colluding}{planned} | {one.noise_of} | {one.epsilon:.2f} |")
    return found


if __name__ == "__main__":
    print("| parties | colluding | honest parties' noise left | ε |\n|---|---|---|---|")
    print("\n".join(rows()))
