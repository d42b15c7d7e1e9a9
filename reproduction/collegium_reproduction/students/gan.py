"""PATE-G's student: a semi-supervised GAN with feature matching (Salimans et al. 2016, sections 3.1 and 5).

The student is the discriminator. It gives K logits l; with Z = Σ exp(l) it holds an input for real with
probability Z / (Z + 1). It learns the labels, to hold the pool for real and to hold generated inputs for
fake, while the generator learns to match the mean of its last hidden layer on the pool. Both use weight
normalisation (Salimans and Kingma 2016), started so that every unit is of unit variance; the discriminator
sees Gaussian noise before every layer.
"""

from __future__ import annotations

import copy
import math
from contextlib import AbstractContextManager
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import cached, remove_parametrizations

from collegium.coordinator.students import LearningProblem, register
from collegium.coordinator.students.networks import generator_of, new_network, pool_tensor
from collegium.data.task import Task
from collegium.errors import ConfigurationError, TrainingDiverged
from collegium.models.augmentation import TEACHER, WEAK, augment
from collegium.models.devices import mixed_precision
from collegium.models.networks import Architecture, FittedNetwork
from collegium.models.training import Learner, move_average, train
from collegium.settings import Frozen
from collegium_reproduction.students.generators import is_flat, new_generator

_INPUT_NOISE, _HIDDEN_NOISE = 0.3, 0.5
_FIRST_BATCH = 500
_LOOK_EVERY = 50
_MEMORY = 0.999
"""The student is the average over about the last 1,000 steps, as in the paper's program."""
_COLLAPSED = 0.02
"""A generator whose outputs vary less than this fraction of the pool's variation makes one input only."""
_REMEDY = (
    "lower the learning rate (student.options.learning_rate), or use student.method 'vat' or 'consistency'; "
    "the labels and the ledger are as they were"
)


@register
class Gan(Frozen):
    """Semi-supervised GAN with feature matching, for images and tables."""

    name: ClassVar[str] = "gan"

    network: str = "default"
    """The discriminator: a network of layers in a row without batch normalisation, the last one linear."""
    steps: int = Field(default=27_000, gt=0)
    batch: int = Field(default=100, gt=1)
    labelled_batch: int = Field(default=50, gt=0)
    learning_rate: float = Field(default=3e-3, gt=0)
    augment: bool = True
    """Whether images are changed a little each time they are seen, which Salimans et al. do not do."""
    latent: int = Field(default=100, gt=0)
    """Random numbers that the generator makes an input of."""

    def fit(self, problem: LearningProblem) -> FittedNetwork:
        architecture = _discriminator(self.network, problem)
        pool = pool_tensor(problem)
        draws = generator_of(problem)
        network = new_network(problem, architecture)
        _check_layers(network, architecture)
        first = pool[torch.randperm(len(pool), generator=draws, device=problem.device)[:_FIRST_BATCH]]
        _normalise(network, first, draws)
        generator = new_generator(problem, self.latent)
        average = self._train(network, generator, pool, problem, draws)
        for layer in _weighted(average):
            remove_parametrizations(layer, "weight")
        return FittedNetwork(problem.task, average, problem.device)

    def _train(
        self, network: nn.Module, generator: nn.Module, pool: Tensor, problem: LearningProblem, draws: torch.Generator
    ) -> nn.Module:
        """The average of the discriminators of the last steps."""
        device = problem.device
        x = pool[torch.as_tensor(problem.indices, device=device)]
        y = torch.as_tensor(problem.labels, device=device)
        images = self.augment and pool.ndim == 4
        before = _labelled_loss(network, x, y)
        discriminating = self._learner([values for values in network.parameters() if values.requires_grad])
        generating = self._learner(list(generator.parameters()))
        average = copy.deepcopy(network)

        def loss(step: int) -> Tensor:
            chosen = torch.randint(len(y), (self.labelled_batch,), generator=draws, device=device)
            labelled, real = x[chosen], pool[torch.randint(len(pool), (self.batch,), generator=draws, device=device)]
            if images:
                labelled, real = augment(labelled, TEACHER, draws), augment(real, WEAK, draws)
            # Every weight is normalised once a step, not at each use.
            with cached(), reduced_precision(device):
                made = generator(self._latent(self.batch, draws, device)).float()
                shown = made.detach().requires_grad_()
                of_discriminator, unlike = _losses(network, labelled, y[chosen], real, shown, draws)
            # The generator's loss is ``unlike``, which must not move the discriminator.
            (slope,) = torch.autograd.grad(unlike, shown, retain_graph=True)
            made.backward(slope)
            if step % _LOOK_EVERY == 0 or step == self.steps - 1:
                self._check_finite(torch.stack([of_discriminator, unlike]), step)
            return of_discriminator

        network.train()
        generator.train()
        train(
            loss,
            [discriminating, generating],
            self.steps,
            progress=problem.progress,
            after=lambda step: move_average(average, network, step, longest=_MEMORY),
        )
        self._check_end(generator, pool, _labelled_loss(average, x, y), before, draws)
        return average

    def _learner(self, parameters: list[nn.Parameter]) -> Learner:
        """At full speed for two thirds of the steps, then down to nothing."""
        optimiser = torch.optim.Adam(parameters, lr=self.learning_rate, betas=(0.5, 0.999), fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1.0, 3 * (1 - step / self.steps)))
        return Learner(optimiser, schedule)

    def _latent(self, count: int, draws: torch.Generator, device: str) -> Tensor:
        return torch.rand((count, self.latent), generator=draws, device=device)

    def _check_finite(self, losses: Tensor, step: int) -> None:
        if not bool(torch.isfinite(losses).all()):
            raise TrainingDiverged(f"the GAN diverged by step {step + 1} of {self.steps}: {_REMEDY}")

    def _check_end(
        self, generator: nn.Module, pool: Tensor, after: float, before: float, draws: torch.Generator
    ) -> None:
        # Written so that a loss which is no number fails too.
        if not after < before:
            raise TrainingDiverged(
                f"the GAN's student knows its labels no better than before training (loss {before:.3g}, "
                f"then {after:.3g}): {_REMEDY}"
            )
        with torch.no_grad():
            made = generator(self._latent(_FIRST_BATCH, draws, str(pool.device)))
            spread, wanted = (values.flatten(1).std(dim=0).mean().item() for values in (made, pool))
        if not spread > _COLLAPSED * wanted:
            raise TrainingDiverged(
                f"the GAN's generator collapsed to one input (its values vary by {spread:.2g}, "
                f"the pool's by {wanted:.2g}): {_REMEDY}"
            )


def real_or_fake_loss(of_real: Tensor, of_made: Tensor) -> Tensor:
    """Mean −log Z / (Z + 1) over logits of real inputs, and mean −log 1 / (Z + 1) over those of made ones, added."""
    return F.softplus(-of_real.logsumexp(dim=1)).mean() + F.softplus(of_made.logsumexp(dim=1)).mean()


def _discriminator(name: str, problem: LearningProblem) -> str:
    """The architecture that ``default`` stands for, or ``name`` itself."""
    if name != "default":
        return name
    return "deep-mlp" if is_flat(problem) else "paper-cnn"


def _deep_mlp(task: Task) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = math.prod(task.inputs.shape)
    for hidden in (1000, 500, 250, 250, 250):
        layers += [nn.Linear(inputs, hidden), nn.ReLU()]
        inputs = hidden
    return nn.Sequential(*layers, nn.Linear(inputs, len(task.classes)))


DEEP_MLP = Architecture(_deep_mlp, "any", {})
"""Five hidden layers, the discriminator for MNIST of Salimans et al. 2016."""


def _check_layers(network: nn.Module, architecture: str) -> None:
    """Batch normalisation would tell the batches of real and generated inputs apart by their means."""
    layers = list(network.children())
    in_a_row = isinstance(network, nn.Sequential) and isinstance(layers[-1], nn.Linear) and len(_weighted(network)) > 1
    if not in_a_row or any(isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) for layer in network.modules()):
        raise ConfigurationError(
            f"student.options.network: {architecture} cannot be a GAN's discriminator; use deep-mlp, mlp or paper-cnn"
        )


def _weighted(network: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]


def _losses(
    network: nn.Module, labelled: Tensor, y: Tensor, real: Tensor, made: Tensor, draws: torch.Generator
) -> tuple[Tensor, Tensor]:
    """What the discriminator lessens, and what the generator does: how unlike the mean features of real and made are.

    Both come out of one look at each input: the two learn from it at the same time.
    """
    logits, features = _noisy(network, torch.cat([labelled, real]), draws)
    of_made, made_features = _noisy(network, made, draws)
    known = len(labelled)
    loss = F.cross_entropy(logits[:known], y) + 0.5 * real_or_fake_loss(logits[known:], of_made)
    return loss, F.mse_loss(made_features.mean(dim=0), features[known:].detach().mean(dim=0))


def _noisy(network: nn.Module, x: Tensor, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """The logits with noise before every layer that has weights, and what the last layer gets before its noise."""
    assert isinstance(network, nn.Sequential)
    features, noise = x, _INPUT_NOISE
    for layer in network:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            features = x
            # As x lies in memory, or adding it would first put it in another order.
            x = torch.add(x, torch.empty_like(x, dtype=torch.float32).normal_(generator=draws), alpha=noise)
            noise = _HIDDEN_NOISE
        x = layer(x)
    return x.float(), features.float()


@torch.no_grad()
def _normalise(network: nn.Module, first: Tensor, draws: torch.Generator) -> None:
    """Give every unit mean 0 and variance 1 over ``first`` (the logits a tenth of it), then weight normalisation."""
    assert isinstance(network, nn.Sequential)
    x, noise = first, _INPUT_NOISE
    weighted = _weighted(network)
    for layer in network:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            x = x + noise * torch.randn(x.shape, generator=draws, device=x.device)
            noise = _HIDDEN_NOISE
            out = layer(x)
            units = out.transpose(0, 1).flatten(1)
            scale = (0.1 if layer is weighted[-1] else 1.0) / units.std(dim=1).clamp_min(1e-6)
            assert layer.bias is not None
            layer.bias.copy_((layer.bias - units.mean(dim=1)) * scale)
            layer.weight.mul_(scale.view(-1, *[1] * (layer.weight.ndim - 1)))
        x = layer(x)
    for layer in weighted:
        weight_norm(layer)
        # As in the paper's program: the hidden units' lengths stay as they were normalised.
        layer.parametrizations.weight.original0.requires_grad_(layer is weighted[-1])  # type: ignore[union-attr]


@torch.no_grad()
def _labelled_loss(network: nn.Module, x: Tensor, y: Tensor) -> float:
    network.eval()
    return float(F.cross_entropy(network(x), y).item())


def reduced_precision(device: str) -> AbstractContextManager[None]:
    """A context that computes in bfloat16 on CUDA, and on a CPU that multiplies such numbers by itself."""
    if device.startswith("cuda") or not _multiplies_bfloat16():
        return mixed_precision(device)
    context: AbstractContextManager[None] = torch.autocast("cpu", dtype=torch.bfloat16)
    return context


def _multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions for it: without them bfloat16 is slower than single precision, not quicker."""
    # An older torch does not tell; then none is taken to be there.
    can: dict[str, bool] = dict(getattr(torch.cpu, "get_capabilities", dict)())
    return can.get("avx512_bf16", False) or can.get("amx_bf16", False)
