"""Accuracy against ε where whole institutions are protected: class sums and GNMax over the same skewed parties.

``python -m benchmarks.party_unit --sets mnist,adult --alphas 0.1,1 --epsilons 0.5,1,2`` prints a table:
accuracy on the test records, balanced accuracy in brackets, the mean over seeds, at δ = 1e-5 for one party added or
removed. Records are divided among 250 parties by Dirichlet shares of each class. Pool, features and test records are
those of `benchmarks.frontier`.

* ``class-sums``: the default with ``budget.unit = "party"``, with as much noise as is charged.
* ``gnmax``: one teacher at each party, the same classifier from its own records; the noise and the number of queries
  are those, of a small grid within ε by the published accounting, that score best on the test labels, to its
  advantage.
* ``dp-fedavg``: federated averaging of multinomial logistic regression on the same features (McMahan et al. 2018), by
  Flower's simulation engine and its ``FedAvg`` in its wrapper ``DifferentialPrivacyServerSideFixedClipping``: 10
  rounds, in each of which every party takes 4 full-batch steps. The wrapper clips the updates, and its noise protects a
  whole party where each party counts alike: `benchmarks.flower_rival` says how that is seen to, and what is to the
  rival's advantage. Clipping length and rate are those, of four pairs, that score best on the test labels.

``--labels`` prints another table in its place: how many of 40 labels of representative inputs are right, of images, by

* ``one voter``: individual neighbours with ``budget.unit = "party"`` (20 votes a party at most, 0.8 % of the pool
  within the radius), by the exact accountant;
* ``gnmax``: every party votes on every input by its nearest record, by the published accounting.

There the pool is taken from the private records, as its labels must be known. Noise is drawn 20 times.
"""

import argparse
from dataclasses import replace
from functools import cache, cached_property, partial

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score

from benchmarks.flower_rival import RATES, ROUNDS, Records, Trial, averaged, best_of
from benchmarks.frontier import DELTA, QUERIES, SETS, Floats, Split, sigma_of
from collegium.coordinator.selection.kernel_choice import kernel_spec, ridge_for
from collegium.coordinator.selection.pool_geometry import fit_features, public_radii_squared
from collegium.coordinator.selection.queries import representatives
from collegium.coordinator.settings.run_config import SumsConfig
from collegium.coordinator.students import fit_student
from collegium.data import Examples
from collegium.models.features import distances_squared, extract
from collegium.models.kernels import KernelMap
from collegium.models.noisy_sums import PARTY_CONTRIBUTIONS, NoisySums, Round
from collegium.models.pool_spectrum import PoolSpectrum
from collegium.parties.kinds.class_sums import RecordsOfClasses
from collegium.simulations.partitions import PartitionConfig, partition
from collegium_accounting.game.laws import block_epsilon
from collegium_accounting.mechanisms import Adjacency, Unit
from collegium_accounting.mechanisms.class_sums import ONE, ClassSums, bound_squared
from collegium_accounting.mechanisms.gnmax import GNMax
from collegium_accounting.mechanisms.individual_knn import IndividualKNN

Sums = NDArray[np.int64]

METHODS = ("class-sums", "gnmax", "dp-fedavg")
CLIPPING = (1.0, 10.0)
ASKED, PARTICIPATIONS, SHARE = 40, 20, 0.008


class Consortium:
    """The parties of one seed, and what each sends."""

    def __init__(self, split: Split, parties: int, alpha: float, seed: int, ridge: float = 1.0) -> None:
        self.split, self.seed, self.classes = split, seed, len(split.task.classes)
        self._again = partial(Consortium, split, parties, alpha, seed)
        spec = kernel_spec(SumsConfig(), split.pool, split.task.inputs, self.classes, 1.0, 0)
        self.spec = replace(spec, ridge=ridge)
        self.kernel = KernelMap.of_pool(self.spec, split.pool, split.task.inputs)
        self.spectrum = PoolSpectrum.of_pool(self.kernel, split.pool)
        self.test = self.kernel(split.test.x) / ONE
        self.parts = partition(
            split.private, PartitionConfig(kind="dirichlet", parties=parties, alpha=alpha, seed=seed)
        )
        self.parties = [RecordsOfClasses(split.private.take(own), split.task) for own in self.parts]
        self.directions: Sums = np.sum([party.direction(self.kernel) for party in self.parties], axis=0)

    def coefficients(self, values: Sums, noise: float) -> Floats:
        """The classifier that the sums are filtered into."""
        sums = NoisySums(self.spec, (Round(values, noise),))
        return sums.classifier(self.split.pool, self.split.task, spectrum=self.spectrum).coefficients

    def class_sums(self, epsilon: float) -> Floats:
        """Scores of the test records by the default student."""
        sigma, split = ClassSums.within_budget({"classes": self.classes}, epsilon, DELTA)["sigma"], self.split
        noise, own = (
            sigma * np.sqrt(bound_squared(self.classes)),
            self._again(ridge_for(sigma, len(split.pool), self.classes)),
        )
        drawn = np.rint(np.random.default_rng(self.seed).normal(0.0, noise, len(own.directions))).astype(np.int64)
        sums = NoisySums(own.spec, (Round(own.directions + drawn, noise),), PARTY_CONTRIBUTIONS * len(self.parties))
        kernel = sums.classifier(split.pool, split.task, spectrum=own.spectrum)
        if split.task.inputs.kind != "image":
            return own.test @ kernel.coefficients
        labels, asked = kernel.predict(split.pool), np.arange(len(split.pool))
        student = fit_student("kernel", split.pool, asked, labels, split.task, seed=self.seed, sums=sums)
        return student.probabilities(split.test.x)

    def dp_fedavg(self, epsilons: list[float]) -> list[Floats]:
        """Scores by Flower's averaging, by ε; the best of a grid on the test labels."""
        trials = []
        for epsilon in epsilons:
            sigma = ClassSums.within_budget({"classes": self.classes}, epsilon, DELTA)["sigma"] * ROUNDS**0.5
            trials += [Trial(rate, sigma, length) for length in CLIPPING for rate in RATES]
        found = averaged(self.vectors, self.classes, trials, self.seed)
        truth, tried = self.split.test.labels(), len(CLIPPING) * len(RATES)
        return [best_of(found[at : at + tried], self.test, truth) for at in range(0, len(found), tried)]

    @cached_property
    def vectors(self) -> list[Records]:
        """φ and classes of the records of every party that has any."""
        held = [self.split.private.take(part) for part in self.parts if len(part)]
        return [((self.kernel(own.x) / ONE).astype(np.float32), own.labels()) for own in held]

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


def labels_right(split: Split, parties: int, alpha: float, epsilons: list[float], seed: int) -> list[Floats]:
    """The shares of 40 labels that are right, ``[epsilons]``: of parties as one voter each, and of GNMax."""
    task, order = split.task, np.random.default_rng(seed).permutation(len(split.private))
    pool, private = split.private.take(order[: len(split.pool)]), split.private.take(order[len(split.pool) :])
    features = fit_features("hog", 64, pool.x, task.inputs)
    of_pool = extract(features, pool.x, task.inputs)
    asked = representatives(of_pool, ASKED, seed=seed)
    radii = public_radii_squared(of_pool, asked, SHARE)
    apart = distances_squared(extract(features, private.x, task.inputs), of_pool[asked])
    near, all_vote = (np.zeros((ASKED, len(task.classes)), dtype=np.int64) for _ in range(2))
    config = PartitionConfig(kind="dirichlet", parties=parties, alpha=alpha, seed=seed)
    for own in [part for part in partition(private, config) if len(part)]:
        classes = private.labels()[own[apart[own].argmin(axis=0)]]
        voted = np.flatnonzero(apart[own].min(axis=0) <= radii)[:PARTICIPATIONS]
        near[voted, classes[voted]] += 1
        all_vote[np.arange(ASKED), classes] += 1
    truth, shares = pool.labels()[asked], np.zeros((2, len(epsilons)))
    for column, epsilon in enumerate(epsilons):
        one_voter, gnmax = IndividualKNN(_sigma_as_one(epsilon), PARTICIPATIONS), GNMax(sigma_of(ASKED, epsilon))
        for row, (mechanism, votes) in enumerate(((one_voter, near), (gnmax, all_vote))):
            shares[row, column] = np.mean([(mechanism.release(votes) == truth).mean() for _ in range(20)])
    return list(shares)


@cache
def _sigma_as_one(epsilon: float) -> float:
    """The least noise of so many participations of a whole party within ε."""
    low, high = 0.3, 400.0
    while high - low > 5e-3 * high:
        middle = float(np.sqrt(low * high))
        law = IndividualKNN(middle, PARTICIPATIONS).stages[0].law(Unit(1, Adjacency.ADD_REMOVE))
        low, high = (low, middle) if block_epsilon({law: PARTICIPATIONS}, DELTA) <= epsilon else (middle, high)
    return high


def main() -> None:
    """Run the sets that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="mnist,adult")
    parser.add_argument("--alphas", default="0.1,1")
    parser.add_argument("--epsilons", default="0.5,1,2")
    parser.add_argument("--parties", type=int, default=250)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--labels", action="store_true", help="how many of 40 labels are right")
    asked = parser.parse_args()
    epsilons, methods = [float(text) for text in asked.epsilons.split(",")], asked.methods.split(",")
    print("| set | Dirichlet | method | " + " | ".join(f"ε = {one:g}" for one in epsilons) + " |", flush=True)
    print("|" + "---|" * (len(epsilons) + 3))
    for name in asked.sets.split(","):
        for alpha in map(float, asked.alphas.split(",")):
            if asked.labels:
                split = SETS[name](0)
                seeds = [labels_right(split, asked.parties, alpha, epsilons, seed) for seed in range(asked.seeds)]
                for method, shares in zip(("one voter", "gnmax"), 100.0 * np.mean(seeds, axis=0), strict=True):
                    print(f"| {name} | {alpha:g} | {method} | " + " | ".join(f"{one:.1f}" for one in shares) + " |")
                continue
            figures: dict[tuple[str, float], list[tuple[float, float]]] = {}
            for seed in range(asked.seeds):
                split = SETS[name](seed)
                consortium, truth = Consortium(split, asked.parties, alpha, seed), split.test.labels()
                scores: dict[str, list[Floats]] = {}
                if "class-sums" in methods:
                    scores["class-sums"] = [consortium.class_sums(epsilon) for epsilon in epsilons]
                if "gnmax" in methods:
                    queries, votes = consortium.votes()
                    scores["gnmax"] = [consortium.gnmax(epsilon, queries, votes) for epsilon in epsilons]
                if "dp-fedavg" in methods:
                    scores["dp-fedavg"] = consortium.dp_fedavg(epsilons)
                for method, by_epsilon in scores.items():
                    for epsilon, found in zip(epsilons, by_epsilon, strict=True):
                        given = found.argmax(axis=1)
                        both = float((given == truth).mean()), float(balanced_accuracy_score(truth, given))
                        figures.setdefault((method, epsilon), []).append(both)
            for method in methods:
                means = [100.0 * np.mean(figures[method, epsilon], axis=0) for epsilon in epsilons]
                cells = " | ".join(f"{mean[0]:.1f} ({mean[1]:.1f})" for mean in means)
                print(f"| {name} | {alpha:g} | {method} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
