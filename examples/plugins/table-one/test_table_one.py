import numpy as np

import collegium as cg


def test_counts_are_right_within_their_noise_and_charged() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 100, (2000, 2)), rng.choice(["ill", "well"], 2000)
    policy = cg.PolicyConfig(questions=("class-sums", "table-one"), minimum_noise_sums=0.5, queries=9)
    records = {f"clinic-{n}": (x[n::5], y[n::5]) for n in range(5)}
    parties = cg.LocalParties(records, cg.Task.from_array(x, ["ill", "well"]), policy=policy)
    coordinator = cg.Coordinator(parties, x, epsilon=2, counts={"table-one": {"columns": ["column-1"], "bins": 4}})
    coordinator.label()
    found, cells = (
        coordinator.record.counts["table-one"],
        np.digitize(x[:, 1], np.linspace(x.min(0), x.max(0), 5)[1:4, 1]),
    )
    true = [[np.sum((cells == cell) & (y == name)) for name in ("ill", "well")] for cell in range(4)]
    error = float(found.found.columns[2].split("± ")[1].rstrip(")")) + 0.1
    assert np.abs(np.array([row[2:] for row in found.found.rows[:4]]) - true).max() < 5.5 * error  # fails in 4e-7
    assert found.paid and found.sigma <= error and 1.8 < coordinator.record.privacy.units["record"] <= 2.0
