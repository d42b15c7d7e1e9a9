"""Contrast, spreading and the student made of both."""

from __future__ import annotations

import numpy as np
import pytest
from collegium_reproduction.students.contrastive import contradicted, flows, most_certain, spread_labels

from collegium.coordinator.students import fit_student
from collegium.data import DataSource, default_task, load
from collegium.data.task import NumberColumn, TableInputs, Task
from collegium.errors import ConfigurationError


def two_clusters(n: int = 40) -> np.ndarray:
    centres = np.array([[0.0, 0.0], [10.0, 0.0]])
    return (centres[np.arange(n) % 2] + np.random.default_rng(0).normal(0, 0.5, (n, 2))).astype(np.float32)


def test_one_label_in_each_cluster_reaches_all_of_it() -> None:
    shares = spread_labels(two_clusters(), np.array([0, 1]), np.array([2, 0]), 3, neighbours=5, alpha=0.9)
    assert np.allclose(shares.sum(axis=1), 1)
    assert (shares.argmax(axis=1) == np.where(np.arange(40) % 2 == 0, 2, 0)).all()


def test_spreading_solves_the_papers_system() -> None:
    features = np.random.default_rng(1).normal(size=(12, 3)).astype(np.float32)
    labels, alpha = np.array([0, 1, 1]), 0.9
    indices = np.array([0, 4, 7])
    distance = ((features[:, None] - features[None]) ** 2).sum(-1)
    np.fill_diagonal(distance, np.inf)
    graph = np.zeros((12, 12))
    for row in range(12):
        graph[row, distance[row].argsort()[:3]] = 1
    graph = np.maximum(graph, graph.T)
    root = 1 / np.sqrt(graph.sum(1))
    solved = np.linalg.solve(np.eye(12) - alpha * (root[:, None] * graph * root), np.eye(12)[:, indices])
    assert np.allclose(flows(features, indices, neighbours=3, alpha=alpha), solved, atol=2e-3)
    shares = spread_labels(features, indices, labels, 2, neighbours=3, alpha=alpha)
    summed = solved @ np.eye(2)[labels]
    assert np.allclose(shares, summed / summed.sum(1, keepdims=True), atol=1e-2)


def test_a_label_that_all_others_contradict_is_put_right_and_no_other_is_touched() -> None:
    indices = np.arange(10)
    right = np.where(indices % 2 == 0, 2, 0)
    wrong = right.copy()
    wrong[[4, 7]] = [0, 2]
    flow = flows(two_clusters(), indices, neighbours=5, alpha=0.9)
    assert (contradicted(flow, indices, wrong, 3) == right).all()
    assert (contradicted(flow, indices, right, 3) == right).all()


def test_a_label_alone_in_its_part_of_the_graph_is_believed() -> None:
    indices, labels = np.array([0, 1, 3]), np.array([2, 0, 0])
    flow = flows(two_clusters(), indices, neighbours=5, alpha=0.9)
    assert (contradicted(flow, indices, labels, 3) == labels).all()


def test_an_input_that_no_label_reaches_is_left_undecided_and_is_not_learned() -> None:
    shares = spread_labels(two_clusters(), np.array([0, 2]), np.array([0, 1]), 2, neighbours=5, alpha=0.9)
    assert np.allclose(shares[1::2], 0.5)
    assert (most_certain(shares, 1.0) % 2 == 0).all()


def test_the_most_certain_of_each_class_are_learned() -> None:
    answers = np.array([[0.9, 0.1], [0.6, 0.4], [0.8, 0.2], [0.7, 0.3], [0.4, 0.6], [0.45, 0.55]])
    assert most_certain(answers, 0.5).tolist() == [0, 2, 4]
    assert most_certain(answers, 1.0).tolist() == list(range(6))


@pytest.mark.slow
def test_few_labels_teach_it_the_digits_and_the_same_seed_gives_the_same_student() -> None:
    task = default_task("digits")
    pool = load(DataSource(source="digits", split="all", shuffle_seed=0, stop=300), task, data_root=None)
    held = load(DataSource(source="digits", split="all", shuffle_seed=0, start=1500), task, data_root=None)
    assert pool.y is not None and held.y is not None
    options = {"contrast_steps": 60, "contrast_batch": 64, "learn_steps": 120}
    steps: list[tuple[int, int]] = []

    def fit(options: dict[str, int]) -> np.ndarray:
        chosen = np.arange(40)
        student = fit_student(
            "contrastive", pool.x, chosen, pool.y[chosen], task, seed=0, device="cpu", options=options,
            progress=lambda done, total: steps.append((done, total)),
        )  # fmt: skip
        return student.probabilities(held.x)

    first = fit(options)
    assert steps == [(step, 180) for step in range(1, 181)]
    # Ten classes: chance is 0.1.
    assert (first.argmax(axis=1) == held.y).mean() > 0.6
    brief = options | {"contrast_steps": 6, "learn_steps": 12}
    assert (fit(brief) == fit(brief)).all()


def test_tables_are_refused_by_name() -> None:
    task = Task(classes=("no", "yes"), inputs=TableInputs(columns=(NumberColumn(name="age", low=0, high=9),)))
    pool = np.random.default_rng(0).random((20, 2)).astype(np.float32)
    with pytest.raises(ConfigurationError, match="for images"):
        fit_student("contrastive", pool, [0, 1], [0, 1], task, seed=0, device="cpu")
