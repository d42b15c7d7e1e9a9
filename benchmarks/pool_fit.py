"""How often the check of the pool flags one without a class, a foreign one, and one that fits, on the sets at hand.

``python -m benchmarks.pool_fit --sets mnist,adult --epsilon 0.05 --trials 20`` prints a line for each set and kind of
pool. A trial divides the training records anew into a pool and private records, and draws the noise of δ = 1e-5 anew,
as much as the coordinator adds (``masked``). Where the parties add it (``masked+noised``), ``--excess`` multiplies it.

* ``fits``: the pool is drawn at random; every flag is a false alarm.
* ``no class``: all inputs of one class are left out of the pool, another class in every trial.
* ``foreign``: the pool is another population: grey CIFAR-10 pictures for MNIST, sentences of medical abstracts for
  banking questions and the other way round, the youngest 30 % for Adult, and for other sets inputs whose numbers come
  from different records each.
* ``elsewhere``, alone, of a set that is called so in ``benchmarks.frontier``: the pool is another institution's.
"""

import argparse
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.frontier import DELTA, SETS, Split
from collegium.coordinator.selection.kernel_choice import pool_cover
from collegium.coordinator.settings.run_config import SumsConfig
from collegium.privacy.analysis.pool_fit import PoolFit, pool_fit
from collegium_accounting.game.laws import block_epsilon
from collegium_accounting.mechanisms import Unit
from collegium_accounting.mechanisms.record_counts import RecordCounts

Pools = tuple[NDArray[Any], NDArray[Any]]
"""A pool and private records."""


def noise_of(epsilon: float) -> float:
    """The smallest noise, in records, whose ε is ``epsilon``."""
    low, high = 0.1, 1e5
    while high - low > 1e-4 * high:
        middle = float(np.sqrt(low * high))
        law = RecordCounts(middle, 1, 20).stages[0].law(Unit(1, RecordCounts.adjacencies[0]))
        low, high = (low, middle) if block_epsilon({law: 1}, DELTA) <= epsilon else (middle, high)
    return high


def fits(split: Split, trial: int) -> Pools:
    """A pool of the split's own records."""
    order, size = np.random.default_rng(trial).permutation(len(split.private)), len(split.pool)
    return split.private.x[order[:size]], split.private.x[order[size:]]


def no_class(split: Split, trial: int) -> Pools:
    """The same without one class in the pool."""
    order, size = np.random.default_rng(trial).permutation(len(split.private)), len(split.pool)
    kept = split.private.labels()[order[:size]] != trial % len(split.task.classes)
    return split.private.x[order[:size][kept]], split.private.x[order[size:]]


@cache
def _other(name: str) -> NDArray[Any]:
    """The inputs of another set, in the form of the set that it is foreign to."""
    if name == "mnist":
        pictures = SETS["cifar10"](0).pool[:, 2:30, 2:30].astype(np.int64)
        return np.asarray(pictures.sum(axis=3, keepdims=True) // 3, dtype=np.uint8)
    sentences: NDArray[Any] = SETS["medical" if name == "banking77" else "banking77"](0).private.x
    return sentences


def foreign(name: str, split: Split, trial: int) -> Pools:
    """A pool of another population."""
    generator, size = np.random.default_rng(trial), len(split.pool)
    pool, private = fits(split, trial)
    if name in ("mnist", "banking77", "medical"):
        other = _other(name)
        return other[generator.permutation(len(other))[:size]], private
    if name == "adult":
        names = [column.name for column in split.task.inputs.columns]  # type: ignore[union-attr]
        age = split.private.x[:, names.index("age")]
        young = generator.permutation(np.flatnonzero(age < np.quantile(age, 0.3)))[:size]
        return split.private.x[young], np.delete(split.private.x, young, axis=0)
    flat = pool.reshape(len(pool), -1)
    mixed: NDArray[Any] = np.stack([generator.permutation(column) for column in flat.T], axis=1)
    return mixed.reshape(pool.shape), private


def elsewhere(name: str, trial: int) -> Pools:
    """A pool of other institutions than the records, another deal in every trial."""
    split = SETS[name](trial)
    return split.pool, split.private.x


def checked(split: Split, pools: Pools, noise: float, trial: int) -> PoolFit:
    """What the check says of one pool."""
    pool, private = pools
    spec, reference = pool_cover(SumsConfig(), pool, split.task.inputs, trial)
    counts = np.bincount(spec.cells_of(private, pool, split.task.inputs), minlength=spec.cells).astype(np.float64)
    counts += np.random.default_rng([trial, 1]).normal(0.0, noise, spec.cells)
    return pool_fit(reference, counts, noise**2, spec.intervals_from)


def main() -> None:
    """Run the sets that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="mnist,adult,banking77,schools,medical,digits,hearts")
    parser.add_argument("--epsilon", type=float, default=0.05)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--excess", type=float, default=1.0)
    parser.add_argument("--records", type=int, default=10**9, help="private records of a trial, at most")
    asked = parser.parse_args()
    noise = noise_of(asked.epsilon) * asked.excess
    print(f"ε = {asked.epsilon:g}: noise of {noise:.1f} records on each count", flush=True)
    print(
        "| set | private records | pool | flagged | could not be told | median estimate of the gap |\n"
        + "|---" * 6
        + "|"
    )
    for name in asked.sets.split(","):
        split = SETS[name](0)
        kinds: dict[str, Callable[[int], Pools]] = {
            "fits": lambda trial, split=split: fits(split, trial),  # type: ignore[misc]
            "no class": lambda trial, split=split: no_class(split, trial),  # type: ignore[misc]
            "foreign": lambda trial, split=split, name=name: foreign(name, split, trial),  # type: ignore[misc]
        }
        if "elsewhere" in name:
            kinds = {"elsewhere": lambda trial, name=name: elsewhere(name, trial)}  # type: ignore[misc]
        for kind, pools in kinds.items():
            drawn = ((trial, pools(trial)) for trial in range(asked.trials))
            kept = ((trial, (pool, private[: asked.records])) for trial, (pool, private) in drawn)
            found = [checked(split, one, noise, trial) for trial, one in kept]
            flagged, untold = sum(one.flagged for one in found), sum(one.p_value is None for one in found)
            gap = 100.0 * float(np.median([one.missing for one in found]))
            records = min(len(split.private) - (0 if kind == "elsewhere" else len(split.pool)), asked.records)
            print(f"| {name} | {records} | {kind} | {flagged}/{asked.trials} | {untold} | {gap:.0f} % |", flush=True)


if __name__ == "__main__":
    main()
