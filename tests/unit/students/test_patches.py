"""Features of patches, and the student that is a regression on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from collegium_reproduction.students.patch_learning import ARCHITECTURE, learn_patches
from torch import nn

from collegium.coordinator.students import LearningProblem, fit_student
from collegium.coordinator.students.pretraining import Pretraining, pretrained
from collegium.data import DataSource, Examples, default_task, load
from collegium.errors import ConfigurationError, ProtocolViolation
from collegium.models.networks import build_network, encoder_of, network_inputs
from collegium.models.quantising import quantised
from collegium.models.students import Student, read_student
from collegium.models.whole_layers import ONE
from collegium.models.whole_networks import network_for

TASK = default_task("digits")
SMALL = {"filters": 16, "dimensions": 32}


@pytest.fixture(scope="module")
def network(digits: Examples) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = build_network(ARCHITECTURE, TASK, width=16, hidden=32).eval()
    learn_patches(made, digits.x, 0, whiten=True)
    return made


def student(digits: Examples, seed: int = 0) -> Student:
    labels = digits.labels()[:100]
    return fit_student("patches", digits.x[:300], np.arange(100), labels, TASK, seed=seed, device="cpu", options=SMALL)


def test_the_student_learns_and_comes_back_from_its_file(digits: Examples, tmp_path: Path) -> None:
    """Chance is 10 %: of 200 unseen digits, 100 right by chance has probability below 1e-30."""
    fitted, path = student(digits), tmp_path / "student.safetensors"
    predicted = fitted.predict(digits.x[300:])
    assert (predicted == digits.labels()[300:]).sum() > 100
    fitted.save(path)
    assert np.array_equal(read_student(path, device="cpu").probabilities(digits.x), fitted.probabilities(digits.x))
    assert np.array_equal(student(digits).probabilities(digits.x), fitted.probabilities(digits.x))
    assert not np.array_equal(student(digits, seed=1).probabilities(digits.x), fitted.probabilities(digits.x))


def test_features_have_variance_one_over_the_pool_and_none_that_repeats_another(
    digits: Examples, network: nn.Module
) -> None:
    with torch.no_grad():
        features = encoder_of(network)(network_inputs(digits.x)).numpy()
    covariance = np.cov(features.T)
    assert np.allclose(features.mean(axis=0), 0, atol=1e-3)
    assert np.allclose(covariance, np.eye(32), atol=0.05)


def test_a_brighter_image_has_the_same_features(digits: Examples, network: nn.Module) -> None:
    images = network_inputs(digits.x[:20]) / 2
    with torch.no_grad():
        assert torch.allclose(encoder_of(network)(images), encoder_of(network)(images + 0.4), atol=1e-3)


def test_whole_numbers_give_the_features_of_floating_point_and_a_records_own_alone(
    digits: Examples, network: nn.Module
) -> None:
    whole = quantised([network], TASK, network_inputs(digits.x))
    together = network_for(whole.to_bytes(), TASK.inputs).features(digits.x[:40])
    assert len(np.unique(together, axis=0)) > 20
    for row in range(40):
        assert np.array_equal(
            network_for(whole.to_bytes(), TASK.inputs).features(digits.x[row : row + 1])[0], together[row]
        )
    with torch.no_grad():
        features = F.normalize(encoder_of(network)(network_inputs(digits.x[:40])), dim=1).numpy()
    assert np.abs(together / ONE - features).max() < 0.03


@pytest.mark.parametrize(
    "change", [{"weight": np.zeros((16, 1, 5, 5), np.int8)}, {"bias": np.full(16, 2**20, np.int32)}]
)
def test_codes_that_could_leave_the_exact_range_are_refused(network: nn.Module, change: dict[str, np.ndarray]) -> None:
    whole = quantised([network], TASK, network_inputs(np.zeros((2, 8, 8, 1), np.uint8)))
    (codes, *others) = whole.members[0]
    with pytest.raises(ProtocolViolation):
        replace(whole, members=((replace(codes, **change), *others),))


def test_what_the_pool_teaches_needs_no_label_and_is_found_again(digits: Examples, tmp_path: Path) -> None:
    """A pool of 40 images has 39 components: the network's other 89 are 0."""

    def made(labels: list[int]) -> torch.Tensor:
        problem = LearningProblem(
            TASK, digits.x[:40], np.arange(2), np.array(labels), 0, "cpu", lambda done, total: None, tmp_path
        )
        with torch.no_grad():
            encoder = encoder_of(pretrained(problem, Pretraining(network=ARCHITECTURE)).network)
            features: torch.Tensor = encoder(network_inputs(digits.x))
        return features

    first, (file,) = made([0, 1]), tmp_path.iterdir()
    assert (first.abs().amax(dim=0) > 0).sum() == 39
    written_ns = file.stat().st_mtime_ns
    assert torch.equal(made([1, 0]), first)
    assert file.stat().st_mtime_ns == written_ns


def test_tables_are_refused() -> None:
    task = default_task("iris")
    rows = load(DataSource(source="iris", split="all"), task, data_root=None)
    with pytest.raises(ConfigurationError, match="'patches' is for images"):
        fit_student("patches", rows.x, np.arange(150), rows.labels(), task, seed=0, device="cpu")
