"""Accuracy against ε where whole institutions are protected: class sums and GNMax over the same skewed parties.

``python -m benchmarks.party_unit --sets mnist,adult --alphas 0.1,1 --epsilons 0.5,1,2`` prints a table:
accuracy on the test records, balanced accuracy in brackets, the mean over seeds, at δ = 1e-5 for one party added or
removed. Records are divided among 250 parties by Dirichlet shares of each class. Pool, features and test records are
those of `benchmarks.frontier`.

* ``class-sums``: the default with ``budget.unit = "party"``, with as much noise as is charged (``masked``).
* ``gnmax``: one teacher at each party, the same classifier from its own records; the noise and the number of queries
  are those, of a small grid within ε by the published accounting, that score best on the test labels, to its
  advantage.
"""

import argparse

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score

from benchmarks.frontier import DELTA, QUERIES, SETS, Floats, Split, sigma_of
from collegium.coordinator.selection.kernel_choice import kernel_spec
from collegium.coordinator.settings.run_config import SumsConfig
from collegium.data import Examples
from collegium.data.kernels import KernelMap
from collegium.models.kernel_student import PARTY_CONTRIBUTIONS, NoisySums, PoolSpectrum
from collegium.parties.class_sums import RecordsOfClasses
from collegium.privacy.mechanisms.class_sums import ONE, ClassSums, bound_squared
from collegium.privacy.mechanisms.gnmax import GNMax
from collegium.simulations.partitions import PartitionConfig, partition

Sums = NDArray[np.int64]


class Consortium:
    """The parties of one seed, and what each sends."""

    def __init__(self, split: Split, parties: int, alpha: float, seed: int) -> None:
        self.split, self.seed, self.classes = split, seed, len(split.task.classes)
        self.spec = kernel_spec(SumsConfig(), split.pool, split.task.inputs, self.classes, 0)
        self.kernel = KernelMap.of_pool(self.spec, split.pool, split.task.inputs)
        self.spectrum = PoolSpectrum.of_pool(self.kernel, split.pool)
        self.test = self.kernel(split.test.x) / ONE
        parts = partition(split.private, PartitionConfig(kind="dirichlet", parties=parties, alpha=alpha, seed=seed))
        self.parties = [RecordsOfClasses(split.private.take(own), split.task) for own in parts]
        self.directions: Sums = np.sum([party.direction(self.kernel) for party in self.parties], axis=0)

    def coefficients(self, values: Sums, noise: float, contributions: float | None = None) -> Floats:
        """The classifier that the sums are filtered into."""
        sums = NoisySums(self.spec, values, noise, contributions)
        return sums.classifier(self.split.pool, self.split.task, spectrum=self.spectrum).coefficients

    def class_sums(self, epsilon: float) -> Floats:
        """Scores of the test records."""
        chosen = ClassSums.within_budget({"classes": self.classes}, epsilon, DELTA, "party")
        noise = chosen["sigma"] * np.sqrt(bound_squared(self.classes))
        drawn = np.rint(np.random.default_rng(self.seed).normal(0.0, noise, len(self.directions))).astype(np.int64)
        count = PARTY_CONTRIBUTIONS * len(self.parties)
        return self.test @ self.coefficients(self.directions + drawn, noise, count)

    def votes(self) -> tuple[Sums, Sums]:
        """Inputs of the pool, and the votes of the parties' teachers on them ``[queries, classes]``."""
        asked = np.random.default_rng(self.seed).permutation(len(self.split.pool))[: max(QUERIES)]
        vectors, votes = self.kernel(self.split.pool[asked]), np.zeros((len(asked), self.classes), dtype=np.int64)
        for party in self.parties:
            chosen = (vectors @ self.coefficients(party.sums(self.kernel), 1.0)).argmax(axis=1)
            votes[np.arange(len(asked)), chosen] += 1
        return asked, votes

    def gnmax(self, epsilon: float, asked: Sums, votes: Sums) -> Floats:
        """Scores by a student of GNMax's labels, the best of a grid of queries on the test labels."""
        truth, best = self.split.test.labels(), (-1.0, self.test)
        for queries in [one for one in QUERIES if one <= len(asked)]:
            labels = GNMax(sigma_of(queries, epsilon)).release(votes[:queries])
            taught = RecordsOfClasses(Examples(self.split.pool[asked[:queries]], labels), self.split.task)
            found = self.test @ self.coefficients(taught.sums(self.kernel), 1.0)
            best = max(best, (float((found.argmax(axis=1) == truth).mean()), found), key=lambda one: one[0])
        return best[1]


def main() -> None:
    """Run the sets that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="mnist,adult")
    parser.add_argument("--alphas", default="0.1,1")
    parser.add_argument("--epsilons", default="0.5,1,2")
    parser.add_argument("--parties", type=int, default=250)
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    epsilons = [float(text) for text in asked.epsilons.split(",")]
    print("| set | Dirichlet | method | " + " | ".join(f"ε = {one:g}" for one in epsilons) + " |", flush=True)
    print("|" + "---|" * (len(epsilons) + 3))
    for name in asked.sets.split(","):
        for alpha in map(float, asked.alphas.split(",")):
            figures: dict[tuple[str, float], list[tuple[float, float]]] = {}
            for seed in range(asked.seeds):
                split = SETS[name](seed)
                consortium, truth = Consortium(split, asked.parties, alpha, seed), split.test.labels()
                queries, votes = consortium.votes()
                for epsilon in epsilons:
                    scores = consortium.class_sums(epsilon), consortium.gnmax(epsilon, queries, votes)
                    for method, found in zip(("class-sums", "gnmax"), scores, strict=True):
                        given = found.argmax(axis=1)
                        both = float((given == truth).mean()), float(balanced_accuracy_score(truth, given))
                        figures.setdefault((method, epsilon), []).append(both)
            for method in ("class-sums", "gnmax"):
                means = [100.0 * np.mean(figures[method, epsilon], axis=0) for epsilon in epsilons]
                cells = " | ".join(f"{mean[0]:.1f} ({mean[1]:.1f})" for mean in means)
                print(f"| {name} | {alpha:g} | {method} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
