"""Accuracy against ε of the default, class sums, beside what a user might pick instead, on the data sets at hand.

``python -m benchmarks.frontier --sets adult,hearts --epsilons 0.05,0.2,0.5,1,2 --json out.json`` prints a table and
writes the rows. Every method sees the same public pool, private records and test records, the same features (the
kernel map of the pool with ridge 1, which learned from no label) and the same δ = 1e-5, under add-remove of one record:

* ``class-sums``: the default, whose ridge follows from the noise, a seed being one draw of the noise and, where a set
  has no split of its own, one split.
  With ``--parties N`` there is a row too for the noise of sums that N parties add, which is more than what is charged.
* ``one sum`` and ``rounds``: the classifier of one sum with the whole ε, and that of eight rounds; the parts of the
  default, of which ``--parts`` makes a table of their own.
* ``no noise``: the sums' classifier without noise, of a pool; in every table, and kept unless more seeds are.
* ``alone``: the same classifier from each institution's own records without noise, on average; 25 equal institutions
  (hearts: the four hospitals' number).
* ``pooled forest``: of tables, a random forest of 300 trees on all records together without privacy.
* ``dp-ebm``: of tables with two classes, the differentially private Explainable Boosting Machine (Nori et al. 2021) of
  InterpretML (which must be installed) on the pooled records, with the schema's ranges, charged by our accountant for
  the noise that it adds. Of four settings the one that scores best on the test labels, to its advantage.
* ``noisy gradient``: multinomial logistic regression on the same features by full-batch gradient descent with clipped
  gradients and Gaussian noise, DP-SGD without sampling. Its steps and rate are those, of a small grid, that score best
  on the test labels, to its advantage.
* ``dp-sgd linear`` and ``dp-sgd network``: DP-SGD on the pooled records by Opacus (which must be installed), by its PRV
  accountant: multinomial logistic regression on the same features, and a network with one hidden layer of 64 on
  the inputs, scaled by the pool's means and deviations. 20 epochs, batches of 512 (a quarter of the records at most),
  clipping at 1, momentum 0.9; of two rates the one that scores best on the test labels, to its advantage.
* ``dp-fedavg``: federated averaging of the same regression on the same features, by Flower's simulation engine and its
  ``FedAvg``, which weights by numbers of records (`benchmarks.flower_rival`). Its clients are the institutions of
  ``alone``: 10 rounds, in each of which every institution takes 4 noisy full-batch steps on its own records, with noise
  that protects each of them from everybody, the server included. Of two rates the one that scores best on the test
  labels.
* ``private-knn``: the k nearest records, by the same features, of a fresh Poisson sample of a fifth of all records vote
  on each query; no screening. k, the noise and the number of queries are those, of a small grid within ε by the
  published accounting, that score best on the test labels, to its advantage; the student is that of ``gnmax``.
* ``gnmax``: 250 teachers (a tenth as many records at least), each the same classifier from its own share; the noise and
  the number of queries are those, of a small grid within ε by the published accounting, that score best on the test
  labels, to its advantage; the student is the same classifier from the labelled queries.

In a set called ``NAME-no-pool`` inputs are drawn from the schema in place of the pool of ``NAME``. In one called
``NAME-elsewhere`` the pool is from other institutions than records and test records: one of four hospitals, a third of
the schools, one class of work that is not the largest, a third of the countries but the largest, or digits with other
strokes (turned, ``thinned``). In ``NAME-elsewhere-others`` the test records are from institutions that have no part in
either: another hospital, third of the schools, class of work or third of the countries.

``python -m benchmarks.frontier_pictures`` draws the rows that are kept.

No constant of the default was chosen on these test labels.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import grey_erosion, rotate, zoom
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from benchmarks.flower_rival import LOCAL_STEPS, RATES, ROUNDS, Trial, averaged, best_of, gradient
from benchmarks.frontier_rivals import dp_ebm, opacus_scores
from collegium.coordinator.selection.kernel_choice import kernel_spec, ridge_for
from collegium.coordinator.settings.run_config import DRAWN_BANDWIDTH, SumsConfig, VotesConfig
from collegium.coordinator.students import LearningProblem
from collegium.coordinator.students.networks import fit_beside, networks_beside
from collegium.coordinator.students.without_torch import Kernel
from collegium.data import DataSource, Examples, data_root, default_task, load
from collegium.data.drawn_pool import drawn_by, drawn_pool
from collegium.data.loading.files import open_npz
from collegium.data.task import ImageInputs, TableInputs, Task, VectorInputs
from collegium.models.codes import Weights
from collegium.models.input_sums import shares_of
from collegium.models.kernel_student import KernelStudent
from collegium.models.kernels import KernelMap
from collegium.models.noisy_sums import NoisySums, Round
from collegium.models.pool_spectrum import PoolSpectrum
from collegium.parties.kinds.class_sums import RecordsOfClasses
from collegium.protocol.secure_sum.plan import plan_graph
from collegium_accounting.divergences.independent import sampled_gaussian_curve
from collegium_accounting.mechanisms import Unit
from collegium_accounting.mechanisms.class_sums import MOST_ROUNDS, ONE, ClassSums, bound_squared
from collegium_accounting.mechanisms.gnmax import GNMax
from collegium_accounting.renyi import WIDE_ORDERS, RenyiCurve

DELTA = 1e-5
STEPS = (10, 40)
SGD_RATES = (0.5, 4.0)
SAMPLING_RATE, NEAREST = 0.2, (0.003, 0.01, 0.03)  # the latter as parts of a sample
QUERIES, TEACHERS = (25, 50, 100, 200, 400), 250
INSTITUTIONS = {"hearts": 4, "hearts-elsewhere": 3, "hearts-elsewhere-others": 2}
METHODS = (
    "class-sums",
    "one sum",
    "rounds",
    "alone",
    "pooled forest",
    "noisy gradient",
    "dp-sgd linear",
    "dp-sgd network",
    "dp-ebm",
    "dp-fedavg",
    "gnmax",
    "private-knn",
)

PARTS = ("class-sums", "one sum", "rounds", "network")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """Public inputs, private records and test records of one task."""

    task: Task
    pool: NDArray[Any]
    private: Examples
    test: Examples
    drawn: bool = False


@dataclass(frozen=True)
class Row:
    """One method at one ε on one set; ``auroc`` where there are two classes."""

    set: str
    method: str
    epsilon: float | None
    seeds: int
    accuracy: float
    spread: float
    balanced: float
    auroc: float | None


def natural(source: str, pool: int, task_of: str | None = None) -> Callable[[int], Split]:
    """A set, or a file whose task is that ``task_of`` a set, with a test split.

    The pool is taken from the training records, shuffled once.
    """

    def split(seed: int) -> Split:
        task, root = default_task(task_of or source), data_root(None)
        train, test = (load(DataSource(source=source, split=part), task, data_root=root) for part in ("train", "test"))
        order = np.random.default_rng(0).permutation(len(train))
        return Split(task, train.x[order[:pool]], train.take(order[pool:]), test)

    return split


def shuffled(source: str, pool: int, test: int) -> Callable[[int], Split]:
    """A set without a test split: another split for every seed."""

    def split(seed: int) -> Split:
        task = default_task(source)
        whole = load(DataSource(source=source, split="all"), task, data_root=data_root(None))
        order = np.random.default_rng(seed).permutation(len(whole))
        rest = order[pool:]
        return Split(task, whole.x[order[:pool]], whole.take(rest[test:]), whole.take(rest[:test]))

    return split


def elsewhere(
    source: str, column: str, pool: int, test: int, parts: int, others: bool = False
) -> Callable[[int], Split]:
    """A set whose pool is from other institutions than its records.

    The values of ``column`` are dealt to so many ``parts``, another deal for every seed; one part is the pool's. A
    value of more than half of the rows, or of fewer than a thousandth, is in no part and always takes part.

    Parameters
    ----------
    column : what an institution is; one that is no input, or an input that is a category.
    others : whether the test records are those of a part that does not take part, in place of ones that were drawn from
        the records.
    """

    def split(seed: int) -> Split:
        task = default_task(source)
        whole = load(DataSource(source=source, split="all"), task, data_root=data_root(None))
        generator, of_row = np.random.default_rng(seed), _institutions(whole, task, column)
        names, rows = np.unique(of_row, return_counts=True)
        values = generator.permutation(names[(2 * rows <= len(whole)) & (1000 * rows >= len(whole))])
        part = max(1, len(values) // parts)
        public = np.isin(of_row, values[:part])
        left_out = np.isin(of_row, values[-part:]) if others else np.zeros(len(whole), dtype=bool)
        rest = generator.permutation(np.flatnonzero(~public & ~left_out))
        inputs = generator.permutation(np.flatnonzero(public))[:pool]
        if others:
            tested = generator.permutation(np.flatnonzero(left_out))[:test]
            return Split(task, whole.x[inputs], whole.take(rest), whole.take(tested))
        return Split(task, whole.x[inputs], whole.take(rest[test:]), whole.take(rest[:test]))

    return split


def _institutions(whole: Examples, task: Task, column: str) -> NDArray[Any]:
    """The institution of every row, ``[n]``."""
    if column in whole.columns:
        return whole.columns[column]
    assert isinstance(task.inputs, TableInputs)
    place = [own.name for own in task.inputs.columns].index(column)
    return np.asarray(whole.x[:, task.inputs.places[place]].argmax(axis=1))


def other_strokes(
    source: Callable[[int], Split], change: Callable[[NDArray[Any]], NDArray[Any]]
) -> Callable[[int], Split]:
    """A set of images whose pool is changed, as if other hands had drawn it; records and test records are not."""

    def split(seed: int) -> Split:
        own = source(seed)
        return replace(own, pool=np.ascontiguousarray(change(own.pool)))

    return split


def turned(images: NDArray[Any]) -> NDArray[Any]:
    """Images ``[n, height, width, channels]``, turned by 20 degrees."""
    return np.asarray(rotate(images, 20.0, axes=(1, 2), reshape=False, order=1))


def thinned(images: NDArray[Any]) -> NDArray[Any]:
    """Images ``[n, height, width, channels]`` whose light strokes lose half a pixel at either side."""
    twice = grey_erosion(zoom(images, (1, 2, 2, 1), order=1), size=(1, 3, 3, 1)).astype(np.int64)
    number, height, width, channels = images.shape
    summed = twice.reshape(number, height, 2, width, 2, channels).sum(axis=(2, 4))
    return np.asarray((summed // 4).astype(images.dtype))


def vectors(file: str, pool: int, test: int) -> Callable[[int], Split]:
    """Sentence embeddings; with a test split of their own, or another split for every seed."""

    def split(seed: int) -> Split:
        root = data_root(None)
        arrays = open_npz((root or Path()) / file)
        own = "x_test" in arrays
        x, y = (arrays[f"{part}_train" if own else part] for part in ("x", "y"))
        task = Task(classes=tuple(map(str, range(len(np.unique(y))))), inputs=VectorInputs(size=x.shape[1]))
        whole = Examples(x.astype(np.float32), y.astype(np.int64))
        order = np.random.default_rng(0 if own else seed).permutation(len(whole))
        if own:
            held = Examples(arrays["x_test"].astype(np.float32), arrays["y_test"].astype(np.int64))
            return Split(task, whole.x[order[:pool]], whole.take(order[pool:]), held)
        rest = order[pool:]
        return Split(task, whole.x[order[:pool]], whole.take(rest[test:]), whole.take(rest[:test]))

    return split


def without_pool(source: Callable[[int], Split]) -> Callable[[int], Split]:
    """A set in place of whose pool inputs are drawn from the schema; the pool's own are nobody's."""

    def split(seed: int) -> Split:
        own = source(seed)
        return replace(own, pool=drawn_pool(own.task.inputs), drawn=True)

    return split


SETS: dict[str, Callable[[int], Split]] = {
    "mnist": natural("mnist", 5000),
    "fashion-mnist": natural("fashion-mnist.npz", 5000, "mnist"),
    "cifar10": natural("cifar10", 5000),
    "adult": natural("adult", 5000),
    "diabetes": shuffled("diabetes", 5000, 20_000),
    "hearts": shuffled("heart", 200, 220),
    "schools": shuffled("school", 3000, 3000),
    "digits": shuffled("digits", 300, 297),
    "hearts-elsewhere": elsewhere("heart", "hospital", 300, 150, 4),
    "schools-elsewhere": elsewhere("school", "school", 3000, 3000, 3),
    "adult-elsewhere": elsewhere("adult", "workclass", 5000, 10_000, 6),
    "adult-countries-elsewhere": elsewhere("adult", "native-country", 5000, 10_000, 3),
    "digits-elsewhere": other_strokes(shuffled("digits", 300, 297), turned),
    "digits-thinned-elsewhere": other_strokes(shuffled("digits", 300, 297), thinned),
    "hearts-elsewhere-others": elsewhere("heart", "hospital", 300, 300, 4, others=True),
    "schools-elsewhere-others": elsewhere("school", "school", 3000, 3000, 3, others=True),
    "adult-elsewhere-others": elsewhere("adult", "workclass", 5000, 10_000, 6, others=True),
    "adult-countries-elsewhere-others": elsewhere("adult", "native-country", 5000, 10_000, 3, others=True),
    "banking77": vectors("banking77_minilm.npz", 2000, 0),
    "medical": vectors("medical_abstracts_minilm.npz", 800, 488),
}
SETS |= {
    f"{name}-no-pool": without_pool(SETS[name])
    for name in (
        *("adult", "diabetes", "hearts", "schools", "banking77", "medical"),
        *(name for name in SETS if "elsewhere" in name and "digits" not in name),
    )
}


def changed(name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Callable[[int], Split]:
    """A set of images, all of which were changed, ``[n, height, width, channels]``."""

    def split(seed: int) -> Split:
        own = SETS[name](seed)
        pool, private, test = (np.ascontiguousarray(change(x)) for x in (own.pool, own.private.x, own.test.x))
        height, width, channels = pool.shape[1:]
        task = own.task.model_copy(update={"inputs": ImageInputs(height=height, width=width, channels=channels)})
        return Split(task, pool, Examples(private, own.private.labels()), Examples(test, own.test.labels()))

    return split


UNSEEN: dict[str, Callable[[int], Split]] = {
    "digits-turned": changed("digits", lambda x: 255 - np.rot90(x, axes=(1, 2))),
    "cifar10-grey": changed("cifar10", lambda x: x[:, 2:30, 2:30].mean(axis=3, keepdims=True).astype(np.uint8)),
}
"""Sets of images on which nothing was chosen; they are not drawn."""


# More than 15 methods: one for each method that is compared, and what several of them share.
class Methods:
    """The methods on one split, which share the kernel map and the features of all records."""

    def __init__(
        self, split: Split, seed: int, landmarks: int = 1000, ridge: float = 1.0, shares: bytes | None = None
    ) -> None:
        self.split, self.seed, self.classes, self.excess = split, seed, len(split.task.classes), 1.0
        inputs = split.task.inputs
        among = split.pool if shares is None else drawn_by(shares, inputs)[0]
        self._by_ridge = {ridge: self}
        began = time.process_time()
        settings = SumsConfig(landmarks=landmarks)
        if split.drawn:  # as `RunConfig.kernel` has it
            unit = split.task.inputs.kind == "vector"
            settings = SumsConfig(landmarks=landmarks, bandwidth=DRAWN_BANDWIDTH, features="unit" if unit else None)
        spec = kernel_spec(settings, among, inputs, self.classes, 1.0, 0)
        self.spec = replace(spec, ridge=ridge, shares=shares)
        self.kernel = KernelMap.of_pool(self.spec, split.pool, split.task.inputs)
        chosen = time.process_time()
        self.records = RecordsOfClasses(split.private, split.task)
        self.sums = self.records.sums(self.kernel)
        summed = time.process_time()
        self.spectrum = PoolSpectrum.of_pool(self.kernel, among)
        self._student(self.sums).predict(split.pool)
        self.cost = (
            f"sums {summed - chosen:.1f} s, kernel, student and labels {_since(began) - (summed - chosen):.1f} s"
        )
        self.test_vectors = self.kernel(split.test.x) / ONE

    def under(self, sigma: float) -> "Methods":
        """The methods under the kernel that class sums with this noise have."""
        ridge = ridge_for(sigma, len(self.split.pool), self.classes)
        if ridge not in self._by_ridge:
            self._by_ridge[ridge] = Methods(self.split, self.seed, len(self.spec.landmarks), ridge, self.spec.shares)
        return self._by_ridge[ridge]

    def noised_by(self, parties: int) -> "Methods":
        """These methods, where so many parties add the noise of sums, each as much as the fewest honest ones need."""
        votes, made = VotesConfig(), copy(self)
        plan = plan_graph(parties, votes.dropout, votes.collusion, quorum=votes.quorum).of_all
        made.excess = (parties / plan.honest_survivors) ** 0.5
        return made

    def class_sums(self, epsilon: float) -> Floats:
        """Scores of the test records by the default's student."""
        if self.split.task.inputs.kind == "image":
            return self.with_networks(epsilon)
        return self.rounds(epsilon, MOST_ROUNDS)

    def with_networks(self, epsilon: float) -> Floats:
        """Scores of the test records by the student of two sums, the second under networks' features if these help."""
        split, sigma, seed = self.split, self._sigma(epsilon, 2), [self.seed, 1]
        own = self.under(sigma)
        sums = NoisySums(own.spec, (self._released(own.sums, sigma, [self.seed, 0]),))
        found = sums.of_pool(split.pool, split.task)
        network = networks_beside(self._problem(), found, Kernel().steps) if found.clear else None
        if network is None:
            weights = sums.next_weights(found.spectrum, self.classes, 2) if found.clear else None
            further = self._released(own.records.sums(own.kernel, weights), sigma, seed, weights)
            sums = replace(sums, rounds=(*sums.rounds, further))
        else:
            settings, inputs = SumsConfig(landmarks=len(own.spec.landmarks)), split.task.inputs
            spec = kernel_spec(settings, split.pool, inputs, self.classes, sigma, 0, network.to_bytes())
            exact = own.records.sums(KernelMap.of_pool(spec, split.pool, inputs))
            sums = NoisySums(spec, (self._released(exact, sigma, seed),))
        return Kernel().fit(replace(self._problem(), sums=sums)).probabilities(split.test.x)

    def network(self, epsilon: float) -> Floats:
        """Scores of the test images by networks that learned the labels of one sum with the whole budget."""
        sigma = self._sigma(epsilon, 1)
        own = self.under(sigma)
        sums = NoisySums(own.spec, (self._released(own.sums, sigma, [self.seed, 0]),))
        shares = sums.of_pool(self.split.pool, self.split.task).probabilities
        return fit_beside(self._problem(), shares, Kernel().steps).probabilities(self.split.test.x)

    def rounds(self, epsilon: float, rounds: int) -> Floats:
        """Scores of the test records by the classifier of so many rounds, without a pool after one of inputs."""
        split, sigma, inputs = self.split, self._sigma(epsilon, rounds), self.split.task.inputs
        base = self
        if split.drawn:
            rounds -= 1
            summed = self._released(self.records.of_inputs(), sigma, [self.seed, rounds])
            shares = shares_of(summed.values, summed.noise, self.classes, inputs)
            base = Methods(split, self.seed, len(self.spec.landmarks), shares=shares)
        own = base.under(sigma / rounds**0.5)
        sums, weights = NoisySums(own.spec, (), drawn=split.drawn), None
        for number in range(rounds):
            exact = own.records.sums(own.kernel, weights) if number else own.sums
            sums = replace(sums, rounds=(*sums.rounds, self._released(exact, sigma, [self.seed, number], weights)))
            weights = sums.next_weights(own.spectrum, self.classes, rounds)
        return own.test_vectors @ sums.classifier(split.pool, split.task, spectrum=own.spectrum).coefficients

    def _problem(self) -> LearningProblem:
        pool, nothing = self.split.pool, np.empty(0, dtype=np.int64)
        return LearningProblem(self.split.task, pool, nothing, nothing, self.seed, "cpu", lambda _done, _total: None)

    def _sigma(self, epsilon: float, rounds: int) -> float:
        """The noise of each of so many sums, in contributions."""
        given = {"classes": self.classes, "rounds": rounds}
        return float(ClassSums.within_budget(given, epsilon, DELTA)["sigma"])

    def _released(
        self, sums: NDArray[np.int64], sigma: float, seed: list[int], weights: Weights | None = None
    ) -> Round:
        noise = self.excess * sigma * float(np.sqrt(bound_squared(self.classes)))
        drawn = np.rint(np.random.default_rng(seed).normal(0.0, noise, len(sums))).astype(np.int64)
        return Round(sums + drawn, noise, weights)

    def _student(self, values: NDArray[np.int64], noise: float = 1.0) -> KernelStudent:
        return NoisySums(self.spec, (Round(values, noise),)).classifier(
            self.split.pool, self.split.task, spectrum=self.spectrum
        )

    def no_noise(self) -> Floats:
        """Scores by the sums' classifier without noise."""
        own = self.under(0.0)
        return own._scores(own.sums)

    def _scores(self, values: NDArray[np.int64], noise: float = 1.0) -> Floats:
        scores: Floats = self.test_vectors @ self._student(values, noise).coefficients
        return scores

    def _sums_of(self, records: Examples) -> NDArray[np.int64]:
        return RecordsOfClasses(records, self.split.task).sums(self.kernel)

    def alone(self, institutions: int) -> list[Floats]:
        """Scores by each institution's own records, without noise."""
        order = np.random.default_rng(self.seed).permutation(len(self.split.private))
        return [
            self._scores(self._sums_of(self.split.private.take(own))) for own in np.array_split(order, institutions)
        ]

    def pooled_forest(self) -> Floats:
        """Scores by a random forest of the pooled records, without privacy."""
        forest = RandomForestClassifier(300, min_samples_leaf=3, random_state=self.seed)
        forest.fit(self.split.private.x, self.split.private.labels())
        shares: Floats = forest.predict_proba(self.split.test.x)
        return shares

    @cached_property
    def features(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """φ of the private and of the test records."""
        private, test = ((self.kernel(x) / ONE).astype(np.float32) for x in (self.split.private.x, self.split.test.x))
        return private, test

    @cached_property
    def votes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs of the pool, and the votes of the teachers on them ``[queries, classes]``."""
        private, generator = self.split.private, np.random.default_rng(self.seed)
        order, asked = (generator.permutation(size) for size in (len(private), len(self.split.pool)))
        asked = asked[: max(QUERIES)]
        vectors, votes = self.kernel(self.split.pool[asked]), np.zeros((len(asked), self.classes), dtype=np.int64)
        for own in np.array_split(order, min(TEACHERS, len(private) // 10)):
            teacher = self._student(self._sums_of(private.take(own)))
            chosen = (vectors @ teacher.coefficients).argmax(axis=1)
            votes[np.arange(len(asked)), chosen] += 1
        return asked, votes

    def noisy_gradient(self, epsilon: float) -> Floats:
        """Logistic regression by noisy full-batch gradients, the best of a grid on the test labels."""
        x, test = self.features
        own, truth = (x, self.split.private.labels()), self.split.test.labels()
        best = (-1.0, np.zeros((0, self.classes)))
        sigma = ClassSums.within_budget({"classes": self.classes}, epsilon, DELTA)["sigma"]
        generator = np.random.default_rng(self.seed)
        for steps in STEPS:
            for rate in RATES:
                weights = np.zeros((x.shape[1], self.classes), dtype=np.float32)
                for _ in range(steps):
                    weights -= rate * gradient(own, weights, sigma * steps**0.5, generator)
                found = (test @ weights).astype(np.float64)
                best = max(best, (float((found.argmax(axis=1) == truth).mean()), found), key=lambda one: one[0])
        return best[1]

    def dp_fedavg(self, epsilons: list[float], institutions: int) -> list[Floats]:
        """Flower's averaging where every institution protects its own records, by ε; of two rates the better."""
        labels = self.split.private.labels()
        order = np.random.default_rng(self.seed).permutation(len(labels))
        parts = [(self.features[0][own], labels[own]) for own in np.array_split(order, institutions)]
        trials = []
        for epsilon in epsilons:
            sigma = ClassSums.within_budget({"classes": self.classes}, epsilon, DELTA)["sigma"]
            trials += [Trial(rate, sigma * (ROUNDS * LOCAL_STEPS) ** 0.5) for rate in RATES]
        found, truth, tried = averaged(parts, self.classes, trials, self.seed), self.split.test.labels(), len(RATES)
        return [best_of(found[at : at + tried], self.features[1], truth) for at in range(0, len(found), tried)]

    def dp_sgd(self, epsilon: float, hidden: int = 0) -> Floats:
        """DP-SGD by Opacus on the same features or, with a hidden layer, on the inputs; of two rates the better."""
        x, test = self.features if not hidden else self.inputs
        data = (x, self.split.private.labels(), test)
        tried = [opacus_scores(data, self.classes, hidden, rate, (epsilon, DELTA), self.seed) for rate in SGD_RATES]
        truth = self.split.test.labels()
        return max(tried, key=lambda found: float((found.argmax(axis=1) == truth).mean()))

    @cached_property
    def inputs(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Private and test inputs, each number scaled by the pool's mean and deviation."""
        split = self.split
        flat = [part.reshape(len(part), -1).astype(np.float32) for part in (split.pool, split.private.x, split.test.x)]
        mean, deviation = flat[0].mean(axis=0), flat[0].std(axis=0)
        deviation = np.maximum(deviation, 0.05 * deviation.mean()) * flat[0].shape[1] ** 0.5
        return (flat[1] - mean) / deviation, (flat[2] - mean) / deviation

    @cached_property
    def nearest_votes(self) -> list[NDArray[np.int64]]:
        """The votes of the nearest records of fresh samples on the queries of ``votes``, for each of ``NEAREST``."""
        generator, x = np.random.default_rng(self.seed), self.features[0]
        queries, codes = self.kernel(self.split.pool[self.votes[0]]) / ONE, np.eye(self.classes, dtype=np.int64)
        found = [np.zeros((len(queries), self.classes), dtype=np.int64) for _ in NEAREST]
        for number, query in enumerate(queries.astype(np.float32)):
            sample = np.flatnonzero(generator.random(len(x)) < SAMPLING_RATE)
            near = self.split.private.labels()[sample[np.argsort(-(x[sample] @ query))]]  # all x are of one length
            for votes, part in zip(found, NEAREST, strict=True):
                votes[number] = codes[near[: max(5, round(part * SAMPLING_RATE * len(x)))]].sum(axis=0)
        return found

    def private_knn(self, epsilon: float) -> Floats:
        """A student of Private-kNN's labels, the best of a grid of queries and k on the test labels."""
        tried = [self._of_queries(votes, epsilon, SAMPLING_RATE) for votes in self.nearest_votes]
        truth = self.split.test.labels()
        return max(tried, key=lambda found: float((found.argmax(axis=1) == truth).mean()))

    def gnmax(self, epsilon: float) -> Floats:
        """A student of GNMax's labels, the best of a grid of queries on the test labels."""
        return self._of_queries(self.votes[1], epsilon)

    def _of_queries(self, votes: NDArray[np.int64], epsilon: float, sampling_rate: float = 1.0) -> Floats:
        pool, asked = self.split.pool, self.votes[0]
        truth, best = self.split.test.labels(), (-1.0, np.zeros((0, self.classes)))
        for queries in [one for one in QUERIES if one <= len(asked)]:
            labels = GNMax(sigma_of(queries, epsilon, sampling_rate)).release(votes[:queries])
            found = self._scores(self._sums_of(Examples(pool[asked[:queries]], labels)))
            best = max(best, (float((found.argmax(axis=1) == truth).mean()), found), key=lambda one: one[0])
        return best[1]


def _since(began: float) -> float:
    return time.process_time() - began


@cache
def sigma_of(queries: int, epsilon: float, sampling_rate: float = 1.0) -> float:
    """The least noise of so many noisy winners within ε, by the published accounting."""

    def charge(sigma: float) -> RenyiCurve:
        if sampling_rate == 1.0:
            return GNMax(sigma).stages[0].charge(WIDE_ORDERS, Unit()) * queries
        return sampled_gaussian_curve(2.0**0.5, sigma, sampling_rate, WIDE_ORDERS) * queries

    low, high = 0.1, 1e5
    while high - low > 1e-3 * high:
        middle = float(np.sqrt(low * high))
        spent = charge(middle).to_epsilon(DELTA).epsilon
        low, high = (low, middle) if spent <= epsilon else (middle, high)
    return high


def rows_of(  # noqa: C901 -- one rival after the other
    name: str, epsilons: list[float], seeds: int, methods: list[str], landmarks: int, parties: int = 0
) -> Iterator[Row]:
    """Every row of one set, as it is done; of the default another one, where so many ``parties`` add the noise."""
    scores: dict[tuple[str, float | None], list[tuple[float, float, float | None]]] = {}
    for seed in range(seeds):
        split = (SETS | UNSEEN)[name](seed)
        made, truth = Methods(split, seed, landmarks), split.test.labels()
        print(f"{name}: {len(split.private)} records, CPU: {made.cost}", flush=True)

        def note(method: str, epsilon: float | None, found: Floats, truth: NDArray[np.int64] = truth) -> None:
            predicted = found.argmax(axis=1)
            area = float(roc_auc_score(truth, found[:, 1] - found[:, 0])) if found.shape[1] == 2 else None
            figures = float((predicted == truth).mean()), float(balanced_accuracy_score(truth, predicted)), area
            scores.setdefault((method, epsilon), []).append(figures)

        if not split.drawn:  # one sum needs a pool
            note("no noise", None, made.no_noise())
        if "alone" in methods:
            for found in made.alone(INSTITUTIONS.get(name, 25)):
                note("alone", None, found)
        if "pooled forest" in methods and split.task.inputs.kind == "table":
            note("pooled forest", None, made.pooled_forest())
        if "dp-fedavg" in methods:
            for epsilon, found in zip(epsilons, made.dp_fedavg(epsilons, INSTITUTIONS.get(name, 25)), strict=True):
                note("dp-fedavg", epsilon, found)
        for epsilon in epsilons:
            if "class-sums" in methods:
                note("class-sums", epsilon, made.class_sums(epsilon))
                if parties:
                    note(f"class-sums, {parties} parties", epsilon, made.noised_by(parties).class_sums(epsilon))
            if "one sum" in methods:
                note("one sum", epsilon, made.rounds(epsilon, 1))
            if "network" in methods and split.task.inputs.kind == "image":
                note("network", epsilon, made.network(epsilon))
            if "rounds" in methods:
                note("rounds", epsilon, made.rounds(epsilon, MOST_ROUNDS))
            if "noisy gradient" in methods:
                note("noisy gradient", epsilon, made.noisy_gradient(epsilon))
            if "dp-sgd linear" in methods:
                note("dp-sgd linear", epsilon, made.dp_sgd(epsilon))
            if "dp-sgd network" in methods:
                note("dp-sgd network", epsilon, made.dp_sgd(epsilon, hidden=64))
            if "gnmax" in methods:
                note("gnmax", epsilon, made.gnmax(epsilon))
            if "private-knn" in methods:
                note("private-knn", epsilon, made.private_knn(epsilon))
            if "dp-ebm" in methods and split.task.inputs.kind == "table" and made.classes == 2:
                note("dp-ebm", epsilon, dp_ebm(split.task, split.private, split.test, (epsilon, DELTA), seed))
    for (method, spent), figures in scores.items():
        accuracies = [figure[0] for figure in figures]
        areas = [figure[2] for figure in figures if figure[2] is not None]
        yield Row(
            name,
            method,
            spent,
            seeds,
            round(100.0 * float(np.mean(accuracies)), 2),
            round(100.0 * float(np.std(accuracies)), 2),
            round(100.0 * float(np.mean([figure[1] for figure in figures])), 2),
            round(100.0 * float(np.mean(areas)), 2) if areas else None,
        )


def table(rows: list[Row], epsilons: list[float]) -> str:
    """The rows as Markdown: accuracy, and balanced accuracy in brackets, by ε."""
    lines = [
        "| set | method | " + " | ".join(f"ε = {epsilon:g}" for epsilon in epsilons) + " |",
        "|" + "---|" * (len(epsilons) + 2),
    ]
    for name, method in dict.fromkeys((row.set, row.method) for row in rows):
        own = {row.epsilon: row for row in rows if (row.set, row.method) == (name, method)}
        cells = [own.get(epsilon, own.get(None)) for epsilon in epsilons]
        shown = ["" if cell is None else f"{cell.accuracy:.1f} ({cell.balanced:.1f})" for cell in cells]
        lines.append(f"| {name} | {method} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def keep(rows: list[Row], path: Path) -> None:
    """Write the rows into a file, in which others stay; so does one without noise of more seeds."""
    kept = [Row(**one) for one in json.loads(path.read_text("utf-8"))] if path.exists() else []
    merged = {(row.set, row.method, row.epsilon): row for row in kept}
    for row in rows:
        key, unasked = (row.set, row.method, row.epsilon), row.method == "no noise"
        if not (unasked and key in merged and merged[key].seeds > row.seeds):
            merged[key] = row
    path.write_text(json.dumps([vars(row) for row in merged.values()], indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Run the sets that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="adult,hearts,schools,digits,banking77,medical")
    parser.add_argument("--epsilons", default="0.05,0.2,0.5,1,2")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--parts", action="store_true", help="the default beside its own parts alone")
    parser.add_argument("--landmarks", type=int, default=1000)
    parser.add_argument("--parties", type=int, default=0, help="the default also with the noise that so many add")
    parser.add_argument("--json", type=Path, help="where the rows are kept; a file's other rows stay")
    asked = parser.parse_args()
    epsilons = [float(text) for text in asked.epsilons.split(",")]
    rows: list[Row] = []
    for name in asked.sets.split(","):
        methods = PARTS if asked.parts else asked.methods.split(",")
        rows += rows_of(name, epsilons, asked.seeds, list(methods), asked.landmarks, asked.parties)
        print(table([row for row in rows if row.set == name], epsilons), flush=True)
        if asked.json is not None:
            keep(rows, asked.json)


if __name__ == "__main__":
    main()
