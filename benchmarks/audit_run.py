"""How close `collegium audit --run` comes to ε, and which planted bugs it refutes: ``python -m benchmarks.audit_run``.

Class sums of 3 classes over 5 parties in this process at ε = 1 and δ = 1e-5. The coordinator adds the noise, so that
the true ε is the stated one. Each row is of 10 rehearsals, without a bug of 40.
``--json`` prints the same as JSON. ``--labels`` prints what so many labels could tell at most.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from collegium.coordinator.noise import CoordinatorNoise
from collegium.data import load
from collegium.models import kernels
from collegium.simulations.cohort import RECORDS
from collegium.simulations.run_audit import audit_run
from collegium_accounting.mechanisms.class_sums import SumRelease

REPEATS, HONEST = 10, 40
CONFIG = """
name = "rehearsed"
pool = {{ source = "{pool}" }}
private = {{ source = "nobody-reads-it.npz" }}
partition = {{ parties = 5 }}
votes = {{ mode = "{mode}" }}
budget = {{ epsilon = {epsilon}, delta = 1e-5 }}
sums = {{ rounds = {rounds}, landmarks = 300 }}
{more}
[task]
classes = ["a", "b", "c"]
inputs = {{ kind = "vector", size = 8 }}
"""


def configured(folder: Path, *, epsilon: float = 1.0, mode: str = "clear", rounds: int = 1, more: str = "") -> Path:
    """Write a configuration over a pool of random vectors into ``folder``."""
    pool, path = folder / "pool.npz", folder / "run.toml"
    np.savez(pool, x=np.random.default_rng(0).normal(size=(1200, 8)).astype(np.float32))
    path.write_text(CONFIG.format(pool=pool, mode=mode, epsilon=epsilon, rounds=rounds, more=more), encoding="utf-8")
    return path


@contextmanager
def half_the_noise() -> Iterator[None]:
    """The coordinator draws noise, and adds half of it."""
    drawn = CoordinatorNoise.vector

    def half(self: CoordinatorNoise, stage: Any, values: Any, drawn_for: str) -> Any:
        return values + (drawn(self, stage, values, drawn_for) - values) // 2

    with patch.object(CoordinatorNoise, "vector", half):
        yield


@contextmanager
def a_draw_used_again() -> Iterator[None]:
    """Every round has the noise of the first."""
    drawn, kept = CoordinatorNoise.vector, dict[int, Any]()

    def again(self: CoordinatorNoise, stage: Any, values: Any, drawn_for: str) -> Any:
        return values + kept.setdefault(len(values), drawn(self, stage, values, drawn_for) - values)

    with patch.object(CoordinatorNoise, "vector", again):
        yield


@contextmanager
def every_record_twice() -> Iterator[None]:
    """Parties read each of their records twice."""

    def twice(*given: Any, **named: Any) -> Any:
        records, of_party = load(*given, **named), Path(given[0].source).name == RECORDS
        return records.take(np.repeat(np.arange(len(records)), 2)) if of_party else records

    with patch("collegium.simulations.cohort.load", twice):
        yield


@contextmanager
def vectors_too_long() -> Iterator[None]:
    """What is brought to a length is twice as long."""
    right = kernels.of_length
    with patch.object(kernels, "of_length", lambda vectors, most: right(vectors, 4 * most)):
        yield


@contextmanager
def an_understated_law() -> Iterator[None]:
    """A sum is charged half of its μ, so that the budget asks for half of the noise."""
    right = SumRelease.law

    def understated(self: SumRelease, *given: Any) -> Any:
        law: Any = right(self, *given)
        return replace(law, mu=law.mu / 2.0)

    with patch.object(SumRelease, "law", understated):
        yield


Bug = Callable[[], AbstractContextManager[None]]
PLANTED: dict[str, tuple[Bug, int]] = {
    "half the noise": (half_the_noise, 1),
    "half the noise, four rounds": (half_the_noise, 4),
    "every record twice": (every_record_twice, 1),
    "vectors twice as long": (vectors_too_long, 1),
    "an understated law": (an_understated_law, 1),
    "a draw used again, four rounds": (a_draw_used_again, 4),
}
"""Bugs by their names, each with the number of rounds in which it shows."""


def measured(canaries: int, rounds: int, bug: Bug | None = None) -> dict[str, float | int | str]:
    """What several audits say of a run with ``bug`` planted."""
    started, least, refuted, stated = time.monotonic(), [], 0, 0.0
    repeats = HONEST if bug is None else REPEATS
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder, nullcontext() if bug is None else bug():
            (sums,) = audit_run(configured(Path(folder), rounds=rounds), canaries=canaries).kinds
        least.append(sums.epsilon_lower_bound)
        refuted, stated = refuted + sums.refuted, sums.epsilon_stated
    return {
        "canaries": canaries,
        "stated": round(stated, 3),
        "mean": round(float(np.mean(least)), 3),
        "least": round(min(least), 3),
        "refuted": f"{refuted} of {repeats}",
        "seconds": round((time.monotonic() - started) / repeats, 1),
    }


def rows() -> Iterator[tuple[str, dict[str, float | int | str]]]:
    """Each row of the table, by its name."""
    for canaries in (3000, 9000):
        yield "no bug", measured(canaries, 1)
    yield "no bug, four rounds", measured(3000, 4)
    for name, (bug, rounds) in PLANTED.items():
        yield name, measured(3000, rounds, bug)


def of_labels(labels: int) -> tuple[float, float]:
    """What one run's labels of two classes tell whoever knows all counts, and chooses them as it likes.

    A label is right with probability Φ(a), where a is the gap of the counts in standard deviations of its noise, twice
    that with half the noise. How often labels are right bounds Φ(a) from below (Clopper and Pearson, 95 %), hence μ.

    Returns
    -------
    The bound's mean share of the true μ, and the probability that half the noise is refuted, each at the gap that is
    best for it.
    """
    from scipy.special import betaincinv, ndtr, ndtri  # take half a second to load
    from scipy.stats import binom

    right = np.arange(1, labels + 1)
    least = ndtri(betaincinv(right, labels - right + 1, 0.05))
    share, refuted = 0.0, 0.0
    for gap in np.linspace(0.3, 2.5, 111):
        share = max(share, float((binom.pmf(right, labels, ndtr(gap)) * np.maximum(least / gap, 0.0)).sum()))
        refuted = max(refuted, float(binom.pmf(right, labels, ndtr(2.0 * gap))[least > gap].sum()))
    return share, refuted


if __name__ == "__main__":
    if "--labels" in sys.argv:
        print("| labels | lower bound on μ, mean, in parts of μ | half the noise refuted |\n|---|---|---|")
        for labels in (20, 40, 100, 300, 1000):
            share, refuted = of_labels(labels)
            print(f"| {labels} | {share:.2f} | {refuted:.3f} |")
    elif "--json" in sys.argv:
        print(json.dumps(dict(enumerate({"run": name, **row} for name, row in rows())), indent=1))
    else:
        print("| run | canaries | ε stated | lower bound, mean | least | refuted | seconds each |")
        print("|---|---|---|---|---|---|---|")
        for name, row in rows():
            print(f"| {name} | " + " | ".join(map(str, row.values())) + " |", flush=True)
