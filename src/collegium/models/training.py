"""The one loop that trains networks: students, teachers, and networks that learn from the pool without labels.

A method gives a function that computes the loss of one step; the loop minimises it. What differs between methods
(which inputs a step sees, how they are augmented, what the loss is) is in that function.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

StepLoss = Callable[[int], Tensor]
"""The loss of step 0, 1, … to be minimised."""

StepCallback = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""


def _undecorated(method: Any) -> Any:
    """The method without torch's decorator, which imports torch's compiler: a second and 70 MB in every process."""
    return getattr(method, "__wrapped__", method)


class _AdamW(torch.optim.AdamW):
    """AdamW for networks that are not compiled; its numbers are torch's own."""

    add_param_group = _undecorated(torch.optim.AdamW.add_param_group)
    zero_grad = _undecorated(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(_undecorated(torch.optim.AdamW.step))


@dataclass(frozen=True, eq=False)
class Learner:
    """An optimiser and the schedule of its learning rate."""

    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler

    @classmethod
    def one_cycle(
        cls,
        parameters: Iterable[Tensor],
        steps: int,
        learning_rate: float,
        *,
        weight_decay: float = 0.02,
        warm_up: float = 0.3,
    ) -> "Learner":
        """AdamW (Loshchilov and Hutter 2019) with one cycle of the learning rate (Smith and Topin 2018).

        Parameters
        ----------
        learning_rate : float
            The largest one, reached after the fraction ``warm_up`` of the steps.
        """
        optimiser = _AdamW(list(parameters), lr=learning_rate, weight_decay=weight_decay, fused=True)
        return cls(
            optimiser,
            torch.optim.lr_scheduler.OneCycleLR(optimiser, learning_rate, total_steps=steps, pct_start=warm_up),
        )

    def parameters(self) -> list[Tensor]:
        """The parameters that it changes."""
        return [parameter for group in self.optimiser.param_groups for parameter in group["params"]]


def train(
    loss_of: StepLoss,
    learners: Learner | list[Learner],
    steps: int,
    *,
    progress: StepCallback | None = None,
    after: Callable[[int], None] | None = None,
) -> None:
    """Minimise ``loss_of`` over the parameters of ``learners``, in place.

    Parameters
    ----------
    loss_of : StepLoss
        Called once a step, after the gradients were cleared. Gradients that it adds itself stay.
    steps : int
        How many steps are made.
    progress : callable or None
        Called after each step.
    after : callable or None
        Called with the number of the step after each change of the parameters, as for a moving average.
    """
    together = [learners] if isinstance(learners, Learner) else learners
    parameters = [parameter for learner in together for parameter in learner.parameters()]
    for step in range(steps):
        for learner in together:
            learner.optimiser.zero_grad(set_to_none=True)
        loss_of(step).backward(inputs=parameters)  # type: ignore[no-untyped-call]
        for learner in together:
            learner.optimiser.step()
            learner.schedule.step()
        if after is not None:
            after(step)
        if progress is not None:
            progress(step + 1, steps)


def move_average(average: nn.Module, network: nn.Module, step: int, *, longest: float = 0.99) -> None:
    """Move the weights of ``average`` towards those of ``network``.

    The average remembers few steps at first, then as many as the memory ``longest`` allows: 1 / (1 − ``longest``).
    """
    memory = min(longest, (step + 1) / (step + 10))
    with torch.no_grad():
        for kept, new in zip(average.state_dict().values(), network.state_dict().values(), strict=True):
            if kept.dtype.is_floating_point:
                kept.lerp_(new, 1 - memory)
            else:
                kept.copy_(new)
