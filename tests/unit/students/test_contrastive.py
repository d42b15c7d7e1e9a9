"""Contrast, spreading and the student made of both."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from collegium.coordinator.students import fit_student
from collegium.coordinator.students.contrastive import certainty, spread_labels
from collegium.protocol.errors import ConfigurationError
from collegium.protocol.inputs import DataSource, default_task, load
from collegium.protocol.task import NumberColumn, TableInputs, Task


def two_clusters(n: int = 40) -> np.ndarray:
    centres = np.array([[0.0, 0.0], [10.0, 0.0]])
    return (centres[np.arange(n) % 2] + np.random.default_rng(0).normal(0, 0.5, (n, 2))).astype(np.float32)


def test_one_label_in_each_cluster_reaches_all_of_it() -> None:
    shares = spread_labels(two_clusters(), np.array([0, 1]), np.array([2, 0]), 3, neighbours=5, alpha=0.99)
    assert np.allclose(shares.sum(axis=1), 1)
    assert (shares.argmax(axis=1) == np.where(np.arange(40) % 2 == 0, 2, 0)).all()


def test_spreading_solves_the_papers_system() -> None:
    features = np.random.default_rng(1).normal(size=(12, 3)).astype(np.float32)
    labels, alpha = np.array([0, 1, 1]), 0.9
    shares = spread_labels(features, np.array([0, 4, 7]), labels, 2, neighbours=3, alpha=alpha)
    distance = ((features[:, None] - features[None]) ** 2).sum(-1)
    np.fill_diagonal(distance, np.inf)
    graph = np.zeros((12, 12))
    for row in range(12):
        graph[row, distance[row].argsort()[:3]] = 1
    graph = np.maximum(graph, graph.T)
    root = 1 / np.sqrt(graph.sum(1))
    given = np.zeros((12, 2))
    given[[0, 4, 7], labels] = 1
    flow = np.linalg.solve(np.eye(12) - alpha * (root[:, None] * graph * root), given)
    flow = flow / (flow.sum(0) / given.sum(0))
    assert np.allclose(shares, flow / flow.sum(1, keepdims=True), atol=1e-4)


def test_an_input_that_no_label_reaches_is_left_undecided() -> None:
    shares = spread_labels(two_clusters(), np.array([0, 2]), np.array([0, 1]), 2, neighbours=5, alpha=0.9)
    assert np.allclose(shares[1::2], 0.5)
    assert torch.allclose(certainty(torch.tensor(shares[1::2])), torch.zeros(20, dtype=torch.float64), atol=1e-9)


def test_few_labels_teach_it_the_digits_and_the_same_seed_gives_the_same_student() -> None:
    task = default_task("digits")
    pool = load(DataSource(source="digits", split="all", shuffle_seed=0, stop=300), task, data_root=None)
    held = load(DataSource(source="digits", split="all", shuffle_seed=0, start=1500), task, data_root=None)
    assert pool.y is not None and held.y is not None
    options = {"contrast_steps": 60, "contrast_batch": 64, "learn_steps": 60, "consistency_steps": 60}
    steps: list[tuple[int, int]] = []

    def fit() -> np.ndarray:
        chosen = np.arange(40)
        student = fit_student(
            "contrastive", pool.x, chosen, pool.y[chosen], task, seed=0, device="cpu", options=options,
            progress=lambda done, total: steps.append((done, total)),
        )  # fmt: skip
        return student.predict(held.x)

    first = fit()
    assert steps == [(step, 180) for step in range(1, 181)]
    # Ten classes: chance is 0.1.
    assert (first == held.y).mean() > 0.6
    assert (fit() == first).all()


def test_tables_are_refused_by_name() -> None:
    task = Task(classes=("no", "yes"), inputs=TableInputs(columns=(NumberColumn(name="age", low=0, high=9),)))
    pool = np.random.default_rng(0).random((20, 2)).astype(np.float32)
    with pytest.raises(ConfigurationError, match="for images"):
        fit_student("contrastive", pool, [0, 1], [0, 1], task, seed=0, device="cpu")
