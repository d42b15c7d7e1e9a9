"""Virtual adversarial training finds the change that matters, and leaves the network's memory of inputs alone."""

from __future__ import annotations

import math

import pytest
import torch
from collegium_reproduction.students.vat import Vat
from torch import Tensor, nn

from collegium.data import default_task
from collegium.models.networks import build_network


def draws() -> torch.Generator:
    return torch.Generator().manual_seed(0)


class Watched(nn.Module):
    """A linear network that notes what it is asked."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight
        self.asked: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.asked.append(x.detach().clone())
        return x @ self.weight.T


def test_the_change_has_the_length_that_was_asked_and_the_worst_direction() -> None:
    """Two classes of a linear network: the answers change fastest along the difference of the weights."""
    weight = torch.randn(2, 6, generator=draws())
    network = Watched(weight)
    x = torch.randn(5, 6, generator=draws())
    method = Vat(radius=0.2, power_iterations=3)
    method.smoothness(network, x, network(x), draws())
    change = network.asked[-1] - x
    lengths = change.norm(dim=1)
    assert torch.allclose(lengths, torch.full((5,), 0.2 * math.sqrt(6)), atol=1e-5)
    worst = weight[0] - weight[1]
    cosine = (change @ worst).abs() / (lengths * worst.norm())
    assert (cosine > 0.999).all()


def test_smoothness_is_the_divergence_at_that_change() -> None:
    network = Watched(torch.randn(3, 4, generator=draws()))
    x = torch.randn(6, 4, generator=draws())
    found = Vat(radius=0.5).smoothness(network, x, network(x), draws())
    before, after = network(x).softmax(dim=1), network(network.asked[-1 - 1]).softmax(dim=1)
    assert found.item() == pytest.approx((before * (before / after).log()).sum(dim=1).mean().item(), rel=1e-4)


def test_changed_inputs_are_not_remembered_by_batch_normalisation() -> None:
    network = build_network("small-cnn", default_task("digits")).train()
    x = torch.rand(8, 1, 8, 8, generator=draws())
    logits = network(x)
    kept = {name: value.clone() for name, value in network.state_dict().items() if "running" in name}
    Vat().smoothness(network, x, logits.detach(), draws()).backward()
    assert kept and all(torch.equal(network.state_dict()[name], value) for name, value in kept.items())
    network(x + 1)
    assert not all(torch.equal(network.state_dict()[name], value) for name, value in kept.items())
