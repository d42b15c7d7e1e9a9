"""Students that are networks: what their methods share, and how the plain one learns the issued labels alone."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from collegium.coordinator.students import LearningProblem
from collegium.data.several_labels import held_in
from collegium.models.augmentation import STRONG, TEACHER, WEAK, Strength, augment, mirrored
from collegium.models.devices import mixed_precision, one_thread, seeded_draws, set_threads
from collegium.models.networks import FittedNetwork, build_network, network_inputs
from collegium.models.noisy_sums import OfPool
from collegium.models.quantising import quantised
from collegium.models.training import Learner, train
from collegium.models.whole_networks import WholeNetwork

_AT_ONCE = 500
_BATCH = 128
_SEEN = 128
"""How often a network beside class sums sees each image, at most."""
_SHARED = 50_000
"""Numbers in a batch from which on threads save more than they cost: at 8 × 8 two take twice as long as one."""
_MANY = 1000
_SURE = 0.6
_COMPARED = 1000
"""Images that are compared with each other."""


def generator_of(problem: LearningProblem) -> torch.Generator:
    """A fresh generator on the problem's device, the same for the same seed."""
    return torch.Generator(device=problem.device).manual_seed(problem.seed)


def new_network(problem: LearningProblem, architecture: str) -> nn.Module:
    """A freshly initialised network on the problem's device; the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(problem.seed)
        network = build_network(architecture, problem.task)
    # Channels last is a third faster on a CPU, and what a GPU's tensor cores want.
    return network.to(device=problem.device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def pool_tensor(problem: LearningProblem) -> Tensor:
    """The whole pool as a network's input, on the device."""
    return network_inputs(problem.pool).to(problem.device)


def student_network(name: str, problem: LearningProblem) -> str:
    """The architecture that ``default`` stands for, or ``name`` itself."""
    if name != "default":
        return name
    return "student-cnn" if problem.task.inputs.kind == "image" else "mlp"


def fit_supervised(
    problem: LearningProblem, network: str, steps: int, batch: int, learning_rate: float, label_smoothing: float
) -> FittedNetwork:
    """The student of the plain method, whose settings the others are."""
    if problem.task.multilabel:
        held = held_in(problem.labels, len(problem.task.classes)) * (1.0 - label_smoothing)
        targets = torch.as_tensor(held + label_smoothing / 2.0, dtype=torch.float32, device=problem.device)
    else:
        y = torch.as_tensor(problem.labels, device=problem.device)

    def loss(logits: Tensor, chosen: Tensor) -> Tensor:
        if problem.task.multilabel:
            return F.binary_cross_entropy_with_logits(logits.float(), targets[chosen])
        return F.cross_entropy(logits, y[chosen], label_smoothing=label_smoothing)

    return fit_labelled(problem, network, steps, batch, learning_rate, loss)


def fit_labelled(  # noqa: PLR0913 -- what a training is given, by name
    problem: LearningProblem,
    network: str,
    steps: int,
    batch: int,
    learning_rate: float,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    strength: Strength = STRONG,
    mirror: bool = False,
) -> FittedNetwork:
    """A student of the labelled inputs alone.

    ``loss_of`` gets logits ``[batch, classes]`` and the rows of ``problem.indices`` that they answer. Whenever
    images are seen, they are changed as far as ``strength`` says and, if they may be, mirrored.
    """
    architecture = student_network(network, problem)
    student = new_network(problem, architecture)
    x = pool_tensor(problem)[torch.as_tensor(problem.indices, device=problem.device)]
    draws = generator_of(problem)

    def loss(step: int) -> Tensor:
        chosen = torch.randint(len(x), (batch,), generator=draws, device=problem.device)
        inputs = mirrored(x[chosen], draws) if mirror else x[chosen]
        inputs = augment(inputs, strength, draws) if x.ndim == 4 else inputs
        with mixed_precision(problem.device):
            return loss_of(student(inputs), chosen)

    student.train()
    learner = Learner.one_cycle(student.parameters(), steps, learning_rate)
    if problem.threads is not None:
        set_threads(problem.threads)
    small = batch * math.prod(x.shape[1:]) < _SHARED
    with one_thread() if small else nullcontext(), seeded_draws(problem.seed, problem.device):
        train(loss, learner, steps, progress=problem.progress)
    return FittedNetwork(problem.task, student, problem.device)


def networks_beside(problem: LearningProblem, found: OfPool, steps: int) -> WholeNetwork | None:
    """The networks of `fit_beside`, or None where class sums say that they are worse than the sums' own classifier.

    They are only asked where the nearest other image mostly has the same class (`OfPool.worse`). Elsewhere the sums'
    map sees too little of what tells classes apart, and networks learn what it does not see.
    """
    networks = fit_beside(problem, found.probabilities, steps)
    alike, _ = _pool_agrees(problem, torch.as_tensor(found.probabilities, device=problem.device))
    return None if alike and found.worse(networks.probabilities(problem.pool)) else networks


def fit_beside(problem: LearningProblem, shares: NDArray[np.float64], steps: int) -> WholeNetwork:
    """Two networks that learned what class sums say of all images of a pool; errors without a pattern are not learned.

    Where the nearest other image mostly has the same class, the first learns the most probable class of each image,
    from images that are changed strongly. The second learns the classes that the first gives, of those images of which
    the first is sure, if these are at least half. If there are a thousand or more, it sees them changed moderately.
    Where the nearest image has another class, many labels are wrong: both learn probabilities, from images that are
    changed weakly. Either sees each image 128 times at most.

    Parameters
    ----------
    shares : the images' probabilities by the sums' classifier, ``[images, classes]``.
    """
    pool, likely = pool_tensor(problem), torch.as_tensor(shares, dtype=torch.float32, device=problem.device)
    alike, mirror = _pool_agrees(problem, likely)
    steps, pair = min(steps, -(-_SEEN * len(pool) // _BATCH)), list[nn.Module]()
    rows = torch.arange(len(pool), device=problem.device)
    targets = F.one_hot(likely.argmax(dim=1), likely.shape[1]).float() if alike else likely

    def loss(logits: Tensor, chosen: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets[rows[chosen]], label_smoothing=0.1)

    def tell(before: int, done: int, total: int) -> None:
        problem.progress(before * total + done, 2 * total)

    second = TEACHER if len(pool) >= _MANY else STRONG
    for number, strength in enumerate((STRONG, second) if alike else (WEAK, WEAK)):
        own = replace(problem, indices=rows.cpu().numpy(), seed=problem.seed + number, progress=partial(tell, number))
        student = fit_labelled(own, "default", steps, _BATCH, 4e-3, loss, strength, mirror)
        normalise_by(student.network, pool)
        pair.append(student.network)
        found = torch.as_tensor(student.probabilities(problem.pool), dtype=torch.float32, device=problem.device)
        sure = (found.amax(dim=1) > _SURE).nonzero().flatten()
        if alike and 2 * len(sure) >= len(pool):
            rows, targets = sure, F.one_hot(found.argmax(dim=1), found.shape[1]).float()
    return quantised(pair, problem.task, pool).on(problem.device)


def normalise_by(network: nn.Module, images: Tensor) -> None:
    """Let batch normalisation subtract and divide by what it finds on ``images``, in place.

    Training leaves it the means and variances of changed images, but those that a student scores are not changed. Li et
    al. 2017, "Revisiting batch normalization for practical domain adaptation".
    """
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None  # the mean over all blocks
    network.train()
    with torch.no_grad():
        for block in images.tensor_split(-(-len(images) // _AT_ONCE)):
            network(block)
    network.eval()


def _pool_agrees(problem: LearningProblem, shares: Tensor) -> tuple[bool, bool]:
    """What `neighbours_agree` says of the pool's first images, by their most probable classes."""
    return neighbours_agree(pool_tensor(problem)[:_COMPARED], shares[:_COMPARED].argmax(dim=1))


def neighbours_agree(images: Tensor, labels: Tensor) -> tuple[bool, bool]:
    """Whether the nearest other image mostly has an image's label, and whether a mirror seems to keep the label.

    Of images ``[n, channels, height, width]`` and labels ``[n]``. The first holds where at least half of the nearest
    other images have the same label. The second holds where those nearest to an image's mirror image have it at least
    three quarters as often as those nearest to the image: of photographs, but not of digits and arrows.
    """

    def agreement(seen: Tensor) -> float:
        apart = torch.cdist(seen.flatten(1), images.flatten(1)).fill_diagonal_(torch.inf)
        return float((labels[apart.argmin(dim=1)] == labels).float().mean())

    own = agreement(images)
    return own >= 0.5, agreement(images.flip(3)) >= 0.75 * own
