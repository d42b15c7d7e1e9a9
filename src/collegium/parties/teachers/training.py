"""How a network is trained on one teacher's records: a constant recipe, and every draw from the teacher's own seed.

A recipe is constant: no early stopping and no tuning, so that nothing learned on one split, let alone
on several, decides how another teacher is fitted. The number of steps is constant too, so that the time
a fit takes does not tell how many records there are.

Many teachers may be trained as one program: their networks stacked, every step taken by all of them at once. Each
keeps its own weights, records, batches, warps and dropout masks, all from its own seed, and its own running
statistics; the loss is a sum with one term per teacher, and the optimiser treats every number by itself. So no
teacher's result depends on who else is in the program, beyond the rounding of sums that the device takes in another
order.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from collegium.data.task import ImageInputs, Task
from collegium.errors import ConfigurationError
from collegium.models.augmentation import TEACHER, Warp, draw_warp, warp
from collegium.models.devices import mixed_precision
from collegium.models.networks import Option, tensor_inputs
from collegium.models.training import Learner, train

_MAX_STEPS = 1_000_000
_MAX_BATCH = 65_536


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: AdamW under a one-cycle learning rate."""

    steps: int
    batch: int
    learning_rate: float
    weight_decay: float
    label_smoothing: float
    augment: bool

    def options(self) -> dict[str, Option]:
        """What a run may choose, with its default."""
        return {
            "steps": self.steps,
            "batch": self.batch,
            "learning_rate": self.learning_rate,
            "augment": self.augment,
        }

    def changed(self, chosen: dict[str, Option], task: Task) -> "Recipe":
        """The recipe with all of `options` as ``chosen``, tables never augmented.

        Raises ConfigurationError where one is out of range.
        """
        changed = replace(
            self,
            steps=int(chosen["steps"]),
            batch=int(chosen["batch"]),
            learning_rate=float(chosen["learning_rate"]),
            augment=bool(chosen["augment"]) and isinstance(task.inputs, ImageInputs),
        )
        if not 1 <= changed.steps <= _MAX_STEPS or not 2 <= changed.batch <= _MAX_BATCH:
            raise ConfigurationError("a network teacher takes 1 to 1,000,000 steps of 2 to 65,536 records")
        if not 0 < changed.learning_rate <= 10:
            raise ConfigurationError("a learning rate is above 0 and at most 10")
        return changed

    def learner(self, parameters: Iterable[Tensor]) -> Learner:
        """The optimiser and the course of its learning rate; both treat every number by itself."""
        return Learner.one_cycle(parameters, self.steps, self.learning_rate, weight_decay=self.weight_decay)


class Draws:
    """The batches of one teacher, and how their images are warped: a function of its seed and number of records.

    Batches run on through one random order after another, so every batch has the same size.
    """

    def __init__(self, records: int, recipe: Recipe, seed: int) -> None:
        self._records = records
        self._recipe = recipe
        self._generator = torch.Generator().manual_seed(seed)
        self._order = torch.empty(0, dtype=torch.int64)

    def batch(self) -> tuple[Tensor, Warp | None]:
        """Positions of the next records, shape ``[batch]``, and their warp where images are augmented."""
        size = self._recipe.batch
        while len(self._order) < size:
            self._order = torch.cat([self._order, torch.randperm(self._records, generator=self._generator)])
        chosen, self._order = self._order[:size], self._order[size:]
        return chosen, draw_warp(size, TEACHER, self._generator) if self._recipe.augment else None


def train_teacher(network: nn.Module, x: Tensor, y: Tensor, recipe: Recipe, seed: int, device: str) -> None:
    """Train in place on inputs as `network_inputs` gives and class numbers ``[n]``, both on the device.

    Dropout draws from torch's own generator.
    """
    draws = Draws(len(x), recipe, seed)

    def loss(step: int) -> Tensor:
        records, warped = draws.batch()
        chosen = records.to(device)
        batch = x[chosen] if warped is None else warp(x[chosen], TEACHER, warped)
        with mixed_precision(device):
            logits = network(batch)
            return F.cross_entropy(logits, y[chosen], label_smoothing=recipe.label_smoothing)

    network.train()
    train(loss, recipe.learner(network.parameters()), recipe.steps)


@dataclass(frozen=True)
class TrainingJob:
    """One network to be trained, and what it alone is trained by.

    Attributes
    ----------
    network : freshly built, on the CPU; trained in place.
    x : its records as the task has them, shape ``[n, …]``, uint8 or float32.
    y : their class numbers, shape ``[n]``.
    seed : of its batches and warps.
    masks : the generator of its dropout masks.
    """

    network: nn.Module
    x: Tensor
    y: Tensor
    seed: int
    masks: torch.Generator


def train_together(
    jobs: Sequence[TrainingJob], recipe: Recipe, device: str, precision: torch.dtype | None = None
) -> None:
    """Train the network of every job as `train_teacher` would train it alone; each network ends on the CPU.

    Parameters
    ----------
    jobs : networks of one architecture.
    precision : what forward and backward passes are computed in: bfloat16 on CUDA and float32 elsewhere by
        default. Weights, optimiser and running statistics are float32 always.
    """
    precision = precision or (torch.bfloat16 if device.startswith("cuda") else torch.float32)
    teachers, size = len(jobs), recipe.batch
    x = torch.cat([job.x for job in jobs]).to(device)
    y = torch.cat([job.y for job in jobs]).to(device)
    ends = torch.cumsum(torch.tensor([0, *(len(job.x) for job in jobs)]), dim=0)  # of each teacher's records among all
    draws = [Draws(len(job.x), recipe, job.seed) for job in jobs]

    base, dropouts, exact = _prepared(jobs[0].network, tensor_inputs(x[:1].expand(size, *x.shape[1:])), precision)
    weights, statistics = stack_module_state([job.network for job in jobs])
    weights = {name: value.detach().to(device).requires_grad_(True) for name, value in weights.items()}
    statistics = {name: value.to(device) for name, value in statistics.items()}

    def forward(state: dict[str, Tensor], batch: Tensor) -> Tensor:
        logits: Tensor = functional_call(base, state, (batch,))
        return logits

    # Autocast does not reach into vmap, so what it would do is said here.
    stacked = vmap(forward, randomness="error")

    def loss(step: int) -> Tensor:
        drawn = [draw.batch() for draw in draws]
        chosen = (torch.stack([records for records, _ in drawn]) + ends[:-1, None]).flatten().to(device)
        batch = tensor_inputs(x[chosen])
        if recipe.augment:
            warps = [warped for _, warped in drawn if warped is not None]
            fields = [warped.field for warped in warps if warped.field is not None]
            batch = warp(batch, TEACHER, Warp(torch.cat([each.uniform for each in warps], dim=1), torch.cat(fields)))
        state = {name: value if name in exact else value.to(precision) for name, value in weights.items()}
        masks = {
            name: torch.stack([dropout.drawn(job.masks) for job in jobs]).to(device, precision)
            for name, dropout in dropouts.items()
        }
        logits = stacked(state | statistics | masks, batch.to(precision).reshape(teachers, size, *batch.shape[1:]))
        losses = F.cross_entropy(
            logits.flatten(0, 1).float(), y[chosen], label_smoothing=recipe.label_smoothing, reduction="none"
        )
        return losses.view(teachers, size).mean(dim=1).sum()

    train(loss, recipe.learner(weights.values()), recipe.steps)
    trained = {name: value.detach().cpu() for name, value in (weights | statistics).items()}
    for number, job in enumerate(jobs):
        job.network.load_state_dict({name: value[number] for name, value in trained.items()})


class _GivenMask(nn.Module):
    """Dropout whose mask is given, so that it can come from the generator of the teacher that it belongs to."""

    mask: Tensor

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.shape = torch.Size()
        self.register_buffer("mask", torch.ones(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        return x * self.mask

    def drawn(self, generator: torch.Generator) -> Tensor:
        """The next mask, as `torch.nn.functional.dropout` draws it."""
        return torch.empty(self.shape).bernoulli_(1 - self.rate, generator=generator).div_(1 - self.rate)


def _prepared(
    network: nn.Module, batch: Tensor, precision: torch.dtype
) -> tuple[nn.Module, dict[str, _GivenMask], set[str]]:
    """The network in training mode, without weights of its own, for batches like ``batch``.

    Returns it, its dropout by the names of the masks, in order of use, and the weights that stay float32: those of
    the normalisations, which compute in float32 whatever comes in.
    """
    base = copy.deepcopy(network).train()
    dropouts: dict[str, _GivenMask] = {}
    exact: set[str] = set()
    for name, module in list(base.named_modules()):
        if isinstance(module, nn.Dropout) and module.p > 0:
            parent, _, child = name.rpartition(".")
            dropouts[f"{name}.mask"] = _GivenMask(module.p)
            setattr(base.get_submodule(parent), child, dropouts[f"{name}.mask"])
        elif isinstance(module, nn.BatchNorm2d):
            exact |= {f"{name}.{weight}" for weight, _ in module.named_parameters()}
            module.register_forward_pre_hook(lambda module, inputs: inputs[0].float())
            module.register_forward_hook(lambda module, inputs, output: output.to(precision))
    base.to("meta")(batch.to("meta"))
    return base, dropouts, exact
