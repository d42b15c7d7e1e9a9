"""A network in whole numbers as nodes of an ONNX graph: the same numbers, but for exponentials and logarithms."""

from functools import singledispatch
from typing import Any

import numpy as np

from collegium.data.task import ImageInputs
from collegium.models.whole_layers import (
    INPUT_REACH,
    LOGIT_ONE,
    ONE,
    Flat,
    Largest,
    Parted,
    Products,
    Rescaled,
    Values,
)
from collegium.models.whole_networks import WholeNetwork
from collegium_onnx.graph import DOUBLE, FLOAT, OnnxGraph


def shares_of(graph: OnnxGraph, x: str, network: WholeNetwork) -> tuple[list[str], str]:
    """Add the network, fed with encoded inputs ``x``, to a graph.

    Returns the names of what the last layer of each member takes in, and of the probabilities.
    """
    inside, shares = [], []
    x = _taken_in(graph, x, network)
    for member, bounds in zip(network.members, network.bounds, strict=True):
        values = x
        for place, (layer, given) in enumerate(zip(member, bounds, strict=False)):
            if place == len(member) - 2:
                inside.append(values)
            values = nodes_of(layer, given, graph, values)
        logits = graph.add("Div", values, graph.constant(np.float32(LOGIT_ONE)))
        kind: dict[str, Any] = {} if network.task.multilabel else {"axis": 1}
        shares.append(graph.add("Softmax" if kind else "Sigmoid", logits, **kind))
    return inside, shares[0] if len(shares) == 1 else graph.add("Mean", *shares)


def features_of(graph: OnnxGraph, x: str, network: WholeNetwork) -> str:
    """Add `WholeNetwork.features` of encoded inputs ``x``, in 64-bit floats; returns their name."""

    def do(operator: str, *inputs: Any, **attributes: Any) -> str:
        names = [given if isinstance(given, str) else graph.constant(given) for given in inputs]
        return graph.add(operator, *names, **attributes)

    inside, shares = shares_of(graph, x, network)
    parts = [(do("Cast", values, to=DOUBLE), len(inside) ** -0.5) for values in inside]
    if len(inside) > 1:
        # The rounded logarithms of shares in parts of 2^16, as the table has them.
        shares = do("Floor", do("Add", do("Mul", do("Cast", shares, to=DOUBLE), 2.0**16), 0.5))
        logarithms = do("Round", do("Mul", do("Log", do("Div", do("Max", shares, 7.0), 2.0**16)), 256.0))
        mean = do("ReduceMean", logarithms, np.array([1]), keepdims=1)
        parts.append((do("Sub", logarithms, mean), 0.5))
    scale = ONE / np.sqrt(sum(length**2 for _, length in parts))
    units = []
    for values, length in parts:
        own = do("Sqrt", do("ReduceSum", do("Mul", values, values), np.array([1]), keepdims=1))
        unit = do("Mul", do("Div", values, do("Max", own, 1e-9)), float(length * scale))
        units.append(do("Floor", do("Add", unit, 0.5)))
    return do("Concat", *units, axis=1) if len(units) > 1 else units[0]


def _taken_in(graph: OnnxGraph, x: str, network: WholeNetwork) -> str:
    if isinstance(network.task.inputs, ImageInputs):
        return graph.add("Transpose", graph.add("Cast", x, to=FLOAT), perm=[0, 3, 1, 2])
    scaled = graph.add("Mul", graph.add("Cast", x, to=DOUBLE), graph.constant(2.0**network.input_shift))
    rounded = graph.add("Floor", graph.add("Add", scaled, graph.constant(0.5)))
    ends = (graph.constant(float(end)) for end in (-INPUT_REACH, INPUT_REACH))
    kept = graph.add("Clip", graph.add("Flatten", rounded, axis=1), *ends)
    return graph.add("Cast", kept, to=FLOAT)


@singledispatch
def nodes_of(layer: Any, given: Values, graph: OnnxGraph, x: str) -> str:
    """Add what a layer gives of ``x``, which is within the bounds ``given``; one of another package has ``nodes``."""
    return str(layer.nodes(given, graph, x))


@nodes_of.register
def _(layer: Products, given: Values, graph: OnnxGraph, x: str) -> str:
    dtype = np.float32 if layer.in_32_bits(given) else np.float64
    weight, bias = layer.weight.astype(dtype), layer.bias.astype(dtype)
    if weight.ndim == 2:
        x = graph.add("Cast", x, to=FLOAT if dtype is np.float32 else DOUBLE)
        return graph.add("Add", graph.add("MatMul", x, graph.constant(weight.T)), graph.constant(bias))
    # ONNX Runtime convolves in 32 bits alone: where these are too few, a number may differ by rounding.
    factors = (graph.constant(values.astype(np.float32)) for values in (weight, bias))
    return graph.add("Conv", x, *factors, strides=[layer.stride] * 2, pads=[layer.padding] * 4)


@nodes_of.register
def _(layer: Rescaled, given: Values, graph: OnnxGraph, x: str) -> str:
    factor = (layer.multiplier * 0.5**layer.shift).reshape(-1, *[1] * (len(given.shape) - 1))
    scaled = graph.add("Mul", graph.add("Cast", x, to=DOUBLE), graph.constant(factor))
    ends = (graph.constant(float(end)) for end in (layer.low, layer.most))
    return graph.add("Cast", graph.add("Clip", graph.add("Round", scaled), *ends), to=FLOAT)


@nodes_of.register
def _(layer: Largest, given: Values, graph: OnnxGraph, x: str) -> str:
    sides: dict[str, Any] = {
        "kernel_shape": [layer.window] * 2,
        "strides": [layer.stride] * 2,
        "pads": [layer.padding] * 4,
    }
    return graph.add("MaxPool", x, **sides)


@nodes_of.register
def _(layer: Parted, given: Values, graph: OnnxGraph, x: str) -> str:
    parts, axes = [], graph.constant(np.array([2, 3]))
    operator = "ReduceSum" if layer.sums else "ReduceMax"
    for a, b in layer.parts(given.shape[1]):
        for c, d in layer.parts(given.shape[2]):
            ends = (graph.constant(np.array(at)) for at in ([a, c], [b, d]))
            parts.append(graph.add(operator, graph.add("Slice", x, *ends, axes), axes, keepdims=1))
    side_by_side = graph.add("Concat", *parts, axis=3) if len(parts) > 1 else parts[0]
    shape = graph.constant(np.array([0, given.shape[0], layer.side, layer.side]))
    return graph.add("Reshape", side_by_side, shape)


@nodes_of.register
def _(layer: Flat, given: Values, graph: OnnxGraph, x: str) -> str:
    return graph.add("Flatten", x, axis=1)
