"""Networks learn without torch's compiler, and as torch's own optimiser would have it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, torch
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR
from collegium.models.training import Learner, train

def fitted(make):
    torch.manual_seed(0)
    network, x = torch.nn.Linear(8, 3), torch.randn(64, 8)
    train(lambda step: network(x).square().mean(), make(network.parameters()), 20)
    return network.weight

def by_torch(parameters):
    optimiser = AdamW(parameters, lr=0.01, weight_decay=0.02, fused=True)
    return Learner(optimiser, OneCycleLR(optimiser, 0.01, total_steps=20, pct_start=0.3))

ours = fitted(lambda parameters: Learner.one_cycle(parameters, 20, 0.01))
assert "torch._dynamo" not in sys.modules, "the compiler was imported"
assert torch.equal(ours, fitted(by_torch)), "other weights than by torch's optimiser"
"""


@pytest.mark.slow
def test_a_fit_imports_no_compiler_and_gives_the_weights_of_torchs_optimiser() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
