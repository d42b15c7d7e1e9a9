"""PATE-G's student: its losses are the paper's, and a training that came to nothing is noticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from collegium_reproduction.students import gan
from collegium_reproduction.students.generators import new_generator
from torch import Tensor, nn

from collegium.coordinator.students import LearningProblem, fit_student
from collegium.data import Examples, default_task
from collegium.data.task import ImageInputs, Task
from collegium.errors import ConfigurationError, TrainingDiverged
from collegium.models.networks import build_network, network_inputs
from collegium.models.whole_layers import Products
from collegium.models.whole_networks import WholeNetwork

TASK = default_task("digits")
SMALL = {"steps": 10, "network": "mlp", "batch": 20, "labelled_batch": 20}


@pytest.fixture(scope="module")
def digits(digits: Examples) -> Examples:
    return digits.take(np.arange(200))


def fit(digits: Examples, **options: Any) -> None:
    fit_student(
        "gan", digits.x, np.arange(50), digits.labels()[:50], TASK, seed=0, device="cpu", options=SMALL | options
    )


def test_real_and_fake_are_the_classes_against_one_more_whose_logit_is_0() -> None:
    logits = torch.randn(50, 10, generator=torch.Generator().manual_seed(0))
    with_fake = F.softmax(torch.cat([logits, torch.zeros(50, 1)], dim=1), dim=1)
    expected = -(1 - with_fake[:20, -1]).log().mean() - with_fake[20:, -1].log().mean()
    assert torch.allclose(gan.real_or_fake_loss(logits[:20], logits[20:]), expected, atol=1e-5)


def test_training_starts_with_units_of_unit_variance_and_small_logits(digits: Examples) -> None:
    draws = torch.Generator().manual_seed(0)
    network = build_network("deep-mlp", TASK)
    first = network_inputs(digits.x)
    gan._normalise(network, first, draws)
    seen: list[Tensor] = []
    for layer in network:
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(lambda _layer, _inputs, out: seen.append(out.detach()))
    gan._noisy(network, first, draws)
    for out, wanted in zip(seen, [1.0] * 5 + [0.1], strict=True):
        # Other noise than at the start: 200 inputs estimate the mean over the units' spread to a few per cent.
        assert out.std(dim=0).mean().item() == pytest.approx(wanted, rel=0.1)
        assert out.mean().item() == pytest.approx(0.0, abs=0.1)


def test_what_is_made_of_the_pool_itself_is_like_it_and_the_discriminator_sees_three_kinds_of_inputs(
    digits: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gan, "_INPUT_NOISE", 0.0)
    monkeypatch.setattr(gan, "_HIDDEN_NOISE", 0.0)
    network, draws = build_network("deep-mlp", TASK), torch.Generator().manual_seed(0)
    x, y = network_inputs(digits.x), torch.as_tensor(digits.labels())
    loss, unlike = gan._losses(network, x[:50], y[:50], x[50:90], x[50:90].flip(0), draws)
    assert unlike.item() == pytest.approx(0.0, abs=1e-9)
    expected = F.cross_entropy(network(x[:50]), y[:50]) + 0.5 * gan.real_or_fake_loss(
        network(x[50:90]), network(x[50:90])
    )
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    _, unlike = gan._losses(network, x[:50], y[:50], x[50:90], torch.zeros_like(x[50:90]), draws)
    features = network[:-1]  # type: ignore[index]
    apart = features(x[50:90]).mean(dim=0) - features(torch.zeros_like(x[:1]))[0]
    assert unlike.item() == pytest.approx(apart.square().mean().item(), rel=1e-4)


@pytest.mark.parametrize("inputs", [(28, 28, 1), (32, 32, 3), (33, 45, 3)])
def test_a_generator_makes_inputs_of_the_tasks_shape_between_0_and_1(inputs: tuple[int, int, int]) -> None:
    height, width, channels = inputs
    task = Task(classes=("a", "b"), inputs=ImageInputs(height=height, width=width, channels=channels))
    none = np.empty(0, dtype=np.int64)
    problem = LearningProblem(task, np.empty((0, *inputs), np.uint8), none, none, 0, "cpu", lambda done, total: None)
    made = new_generator(problem, 7)(torch.rand(3, 7))
    assert made.shape == (3, channels, height, width)
    assert made.min() >= 0 and made.max() <= 1


@pytest.mark.slow
def test_larger_images_go_through_convolutions() -> None:
    """That labels are known better than before training is checked by the method itself."""
    task = Task(classes=("dark", "light"), inputs=ImageInputs(height=33, width=33, channels=1))
    dark_or_light = np.arange(20) % 2
    x = np.random.default_rng(0).integers(0, 100, (20, 33, 33, 1)) + 120 * dark_or_light[:, None, None, None]
    student = fit_student(
        "gan", x.astype(np.uint8), np.arange(20), dark_or_light, task, seed=0, device="cpu",
        options={"steps": 4, "batch": 4, "labelled_batch": 8},
    )  # fmt: skip
    assert isinstance(student, WholeNetwork)
    first = student.members[0][0]
    assert isinstance(first, Products) and first.weight.shape[2:] == (5, 5), "as of paper-cnn"
    assert student.predict(x.astype(np.uint8)).shape == (20,)


@pytest.mark.slow
def test_a_loss_that_is_no_number_stops_the_training_at_once(digits: Examples) -> None:
    steps: list[int] = []
    with pytest.raises(TrainingDiverged, match=r"diverged by step \d+ of 1000: lower the learning rate") as error:
        fit_student(
            "gan", digits.x, np.arange(50), digits.labels()[:50], TASK, seed=0, device="cpu",
            options=SMALL | {"learning_rate": 1e30, "steps": 1000}, progress=lambda done, total: steps.append(done),
        )  # fmt: skip
    assert "\n" not in str(error.value) and len(steps) < 200


def test_a_student_that_learned_nothing_is_not_given_back(digits: Examples) -> None:
    with pytest.raises(TrainingDiverged, match="knows its labels no better"):
        fit(digits, learning_rate=1e-30)


def test_a_generator_that_makes_one_input_only_is_noticed(digits: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.made = nn.Parameter(torch.zeros(1, 8, 8))

        def forward(self, z: Tensor) -> Tensor:
            return self.made.sigmoid().expand(len(z), 1, 8, 8)

    monkeypatch.setattr(gan, "new_generator", lambda problem, latent: Stuck())
    with pytest.raises(TrainingDiverged, match="collapsed to one input"):
        fit(digits)


@pytest.mark.parametrize("network", ["student-cnn", "linear"])
def test_a_network_that_cannot_be_a_discriminator_is_refused_by_name(network: str, digits: Examples) -> None:
    with pytest.raises(ConfigurationError, match=f"{network} cannot be a GAN's discriminator; use deep-mlp"):
        fit(digits, network=network)
