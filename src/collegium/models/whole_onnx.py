"""A network in whole numbers as nodes of an ONNX graph: the same numbers, but for exponentials and logarithms."""

from typing import Any, Protocol

import numpy as np

from collegium.data.task import ImageInputs, Task
from collegium.models.whole_layers import INPUT_REACH, LOGIT_ONE, ONE, Layer, Values

_FLOAT, _DOUBLE = 1, 11


class Network(Protocol):
    """What is taken of a `WholeNetwork`."""

    @property
    def task(self) -> Task: ...

    @property
    def members(self) -> tuple[tuple[Layer, ...], ...]: ...

    @property
    def input_shift(self) -> int: ...

    @property
    def bounds(self) -> list[list[Values]]: ...


def shares_of(graph: Any, x: str, network: Network) -> tuple[list[str], str]:
    """Add the network, fed with encoded inputs ``x``, to an `onnx_export.OnnxGraph`.

    Returns the names of what the last layer of each member takes in, and of the probabilities.
    """
    inside, shares = [], []
    x = _taken_in(graph, x, network)
    for member, bounds in zip(network.members, network.bounds, strict=True):
        values = x
        for place, (layer, given) in enumerate(zip(member, bounds, strict=False)):
            if place == len(member) - 2:
                inside.append(values)
            values = layer.nodes(given, graph, values)
        logits = graph.add("Div", values, graph.constant(np.float32(LOGIT_ONE)))
        kind: dict[str, Any] = {} if network.task.multilabel else {"axis": 1}
        shares.append(graph.add("Softmax" if kind else "Sigmoid", logits, **kind))
    return inside, shares[0] if len(shares) == 1 else str(graph.add("Mean", *shares))


def features_of(graph: Any, x: str, network: Network) -> str:
    """Add `WholeNetwork.features` of encoded inputs ``x``, in 64-bit floats; returns their name."""

    def do(operator: str, *inputs: Any, **attributes: Any) -> str:
        names = [given if isinstance(given, str) else graph.constant(given) for given in inputs]
        return str(graph.add(operator, *names, **attributes))

    inside, shares = shares_of(graph, x, network)
    parts = [(do("Cast", values, to=_DOUBLE), len(inside) ** -0.5) for values in inside]
    if len(inside) > 1:
        # The rounded logarithms of shares in parts of 2^16, as the table has them.
        shares = do("Floor", do("Add", do("Mul", do("Cast", shares, to=_DOUBLE), 2.0**16), 0.5))
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


def _taken_in(graph: Any, x: str, network: Network) -> str:
    if isinstance(network.task.inputs, ImageInputs):
        return str(graph.add("Transpose", graph.add("Cast", x, to=_FLOAT), perm=[0, 3, 1, 2]))
    scaled = graph.add("Mul", graph.add("Cast", x, to=_DOUBLE), graph.constant(2.0**network.input_shift))
    rounded = graph.add("Floor", graph.add("Add", scaled, graph.constant(0.5)))
    ends = (graph.constant(float(end)) for end in (-INPUT_REACH, INPUT_REACH))
    kept = graph.add("Clip", graph.add("Flatten", rounded, axis=1), *ends)
    return str(graph.add("Cast", kept, to=_FLOAT))
