"""A kernel student as nodes of an ONNX graph: the same whole numbers as `models.features` and `models.kernels` compute.

Values are 64-bit floats or integers, in which all of these operations are exact, but for exponentials and logarithms.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.task import ImageInputs, Inputs
from collegium.models import features as plain
from collegium.models.features import PROJECTION_ONE, Features
from collegium.models.kernels import CONSTANT, FINER, KERNEL_ONE, REST, STEPS, TABLE, KernelMap
from collegium.models.whole_networks import network_for
from collegium_accounting.mechanisms.class_sums import ONE
from collegium_onnx import networks
from collegium_onnx.graph import DOUBLE, FLOAT, INT64, OnnxGraph

_LARGEST = 2.0**15 - 1


def scores_of(graph: OnnxGraph, x: str, kernel: KernelMap, coefficients: NDArray[np.float64]) -> str:
    """Add the scores φ(x)ᵀ·coefficients of encoded inputs ``x``; returns their name.

    Parameters
    ----------
    kernel : of the inputs and the landmarks.
    coefficients : ``[dimensions, classes]``, for φ of length 1.
    """
    steps = _Steps(graph)
    own, other = steps.features(kernel.features, kernel.inputs, x), kernel.landmarks.astype(np.float64)
    squares = steps.sum(steps.do("Mul", own, own), 1)
    apart = steps.do("Sub", steps.do("Add", squares, (other**2).sum(axis=1)), steps.product(own, 2.0 * other.T))
    values = steps.powers(steps.do("Mul", apart, STEPS / (2.0 * kernel.bandwidth_squared)))
    centred = steps.product(steps.do("Sub", values, kernel.centre), kernel.whitening * FINER)
    centred = steps.cut_off(centred)
    squared = steps.do("Max", steps.sum(steps.do("Mul", centred, centred), 1), 1.0)
    scale = steps.do("Mul", steps.do("Sqrt", steps.do("Div", float(REST), squared)), 1.0 - 1e-9)
    vectors = steps.cut_off(steps.do("Mul", centred, scale))
    return steps.do("Add", steps.product(vectors, coefficients[:-1] / ONE), coefficients[-1] * (CONSTANT / ONE))


def raised_scores(graph: OnnxGraph, scores: str, classes: int, smallest: float) -> str:
    """Add scores + 1/C, at least ``smallest``/C; returns their name."""
    steps, share = _Steps(graph), 1.0 / classes
    return steps.do("Max", steps.do("Add", scores, share), smallest * share)


def powers_of_scores(graph: OnnxGraph, scores: str) -> str:
    """Add numbers in proportion to exp(score), as `codes.powers_of` has them; returns their name."""
    steps = _Steps(graph)
    return steps.powers(steps.do("Mul", steps.do("Sub", steps.largest(scores), scores), float(STEPS)))


def shares_of(graph: OnnxGraph, raised: str) -> str:
    """Add the probabilities, rows of ``raised`` that are made to add up to 1; returns their name."""
    steps = _Steps(graph)
    return steps.do("Cast", steps.do("Div", raised, steps.sum(raised, 1)), to=FLOAT)


# More than 15 methods: the operators of a graph, each a line or two, and the features that are made of them.
class _Steps:
    """Nodes of the graph; a number or an array in place of a name becomes a constant."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph

    def do(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        names = [given if isinstance(given, str) else self._graph.constant(given) for given in inputs]
        return self._graph.add(operator, *names, **attributes)

    def sum(self, values: str, *axes: int, keep: int = 1) -> str:
        return self.do("ReduceSum", values, np.array(axes), keepdims=keep)

    def product(self, values: str, matrix: Any) -> str:
        return self.do("MatMul", values, matrix.astype(np.float64))

    def cut_off(self, values: str) -> str:
        """Towards 0."""
        return self.do("Mul", self.do("Sign", values), self.do("Floor", self.do("Abs", values)))

    def largest(self, values: str) -> str:
        """Of each row."""
        return self.do("ReduceMax", values, np.array([1]), keepdims=1)

    def powers(self, exponents: str) -> str:
        """What `exponential.TABLE` holds for exponents in its steps."""
        last = float(len(TABLE) - 1)
        at = self.do("Floor", self.do("Min", exponents, last))
        values = self.do("Round", self.do("Mul", self.do("Exp", self.do("Div", at, -float(STEPS))), float(KERNEL_ONE)))
        return self.do("Mul", values, self.do("Cast", self.do("Less", at, last), to=DOUBLE))

    def slice(self, values: str, axis: int, start: int, stop: int) -> str:
        return self.do("Slice", values, np.array([start]), np.array([stop]), np.array([axis]))

    def pad(self, values: str, before: tuple[int, int], after: tuple[int, int], mode: str) -> str:
        """Of values ``[n, rows, columns, …]``: rows and columns more."""
        return self.do("Pad", values, np.array([0, *before, 0, *after]), mode=mode)

    def features(self, features: Features, inputs: Inputs, x: str) -> str:
        """What `features.extract` gives, in 64-bit floats."""
        values = self._values(features, inputs, x)
        if features.projection is None:
            return values
        reduced = self.do("Floor", self.do("Div", self.product(values, features.projection), float(PROJECTION_ONE)))
        return self.do("Clip", reduced, -_LARGEST, _LARGEST)

    def _by_network(self, network: bytes, inputs: Inputs, x: str) -> str:
        """`WholeNetwork.features`; a logarithm of a share may differ by its last digit."""
        return networks.features_of(self._graph, x, network_for(network, inputs))

    def _values(self, features: Features, inputs: Inputs, x: str) -> str:
        if features.network is not None:
            return self._by_network(features.network, inputs, x)
        flat = self.do("Cast", self.do("Flatten", self.do("Cast", x, to=FLOAT), axis=1), to=DOUBLE)
        one = float(plain.ONE)
        if features.scaling is not None and features.name == "standard":
            centre, factor = features.scaling.astype(np.float64)
            flat = self.do("Mul", self.do("Sub", flat, centre), factor)
            return self._rounded(self.do("Mul", flat, one))
        if features.scaling is not None:
            knots = features.scaling.astype(np.float64)[None]
            each = self.do("Unsqueeze", flat, np.array([1]))
            below = [self.do("Cast", self.do(sign, each, knots), to=DOUBLE) for sign in ("Greater", "GreaterOrEqual")]
            counted = self.sum(self.do("Add", *below), 1, keep=0)
            return self.do("Floor", self.do("Div", self.do("Mul", counted, one), 2.0 * knots.shape[1]))
        if features.name == "unit":
            length = self.do("Max", self.do("Sqrt", self.sum(self.do("Mul", flat, flat), 1)), plain.SHORTEST)
            factor = self.do("Div", plain.unit_one(int(np.prod(inputs.shape))), length)
            return self._rounded(self.do("Mul", flat, factor))
        if not isinstance(inputs, ImageInputs):
            return self._rounded(self.do("Mul", flat, one))
        if features.name not in ("hog", "pyramid"):
            return flat
        whole = self.do("Cast", x, to=INT64)
        if features.name == "hog":
            return self._histograms(whole, inputs, plain.cell_of(inputs.height, inputs.width))
        scales = [self._histograms(whole, inputs, cell) for cell in plain.pyramid_cells(inputs)]
        return self.do("Concat", *scales, self._thumbnail(whole, inputs), axis=1)

    def _rounded(self, values: str) -> str:
        return self.do("Clip", self.do("Floor", self.do("Add", values, 0.5)), -_LARGEST, _LARGEST)

    def _thumbnail(self, whole: str, inputs: ImageInputs) -> str:
        step, channels = plain.thumbnail_step(inputs), inputs.channels
        rows, columns = (-(-side // step) for side in inputs.shape[:2])
        # ONNX pads the last dimensions too, by nothing.
        more = np.array([0, 0, 0, 0, 0, -inputs.height % step, -inputs.width % step, 0])
        padded = self.do("Pad", whole, more, mode="edge")
        squares = self.do("Reshape", padded, np.array([-1, rows, step, columns, step, channels]))
        mean = self.do("Div", self.sum(squares, 2, 4, keep=0), np.int64(step**2))
        return self.do("Cast", self.do("Flatten", mean, axis=1), to=DOUBLE)

    def _histograms(self, whole: str, inputs: ImageInputs, cell: int) -> str:
        """`features.hog`, step by step."""
        height, width = inputs.height, inputs.width
        grey = self.do("Div", self.sum(whole, 3, keep=0), np.int64(inputs.channels))
        padded = self.pad(grey, (1, 1), (1, 1), "edge")
        inner_rows, inner_columns = self.slice(padded, 1, 1, height + 1), self.slice(padded, 2, 1, width + 1)
        right = self.do("Sub", self.slice(inner_rows, 2, 2, width + 2), self.slice(inner_rows, 2, 0, width))
        below = self.do("Sub", self.slice(inner_columns, 1, 2, height + 2), self.slice(inner_columns, 1, 0, height))
        place = self.do("Add", self.do("Mul", right, np.int64(511)), self.do("Add", below, np.int64(255 * 512)))
        rows, columns = -(-height // cell), -(-width // cell)
        cells = []
        for votes in plain.orientation_votes():
            voted = self.do("Gather", votes.reshape(-1).astype(np.int32), place)
            voted = self.do("Cast", voted, to=DOUBLE)
            voted = self.pad(voted, (0, 0), (rows * cell - height, columns * cell - width), "constant")
            parted = self.do("Reshape", voted, np.array([-1, rows, cell, columns, cell]))
            cells.append(self.do("Unsqueeze", self.sum(parted, 2, 4, keep=0), np.array([3])))
        of_cells, block = self.do("Concat", *cells, axis=3), plain.BLOCK
        down, across = rows - block + 1, columns - block + 1
        parts = [
            self.slice(self.slice(of_cells, 1, i, i + down), 2, j, j + across)
            for i in range(block)
            for j in range(block)
        ]
        once = self.do("Min", self._normalised(self.do("Concat", *parts, axis=3)), float(plain.CLIP))
        return self.do("Flatten", self._normalised(once), axis=1)

    def _normalised(self, blocks: str) -> str:
        squares = self.do("Add", self.sum(self.do("Mul", blocks, blocks), 3), 1.0)
        return self.do("Floor", self.do("Div", self.do("Mul", blocks, float(plain.ONE)), self.do("Sqrt", squares)))
