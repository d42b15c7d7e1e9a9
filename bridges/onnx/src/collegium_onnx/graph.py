"""The ONNX graph that is being built: every part of a student adds its nodes to it."""

import itertools
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, DOUBLE = TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE
TREES = "ai.onnx.ml"
"""The domain of ONNX's operators for classic machine learning."""


class OnnxGraph:
    """The nodes of an ONNX graph that is being built; every value has a name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._numbers = itertools.count()

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; returns the name of its first output."""
        name = f"{operator.lower()}-{next(self._numbers)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def trees(self, *inputs: str, operator: str = "TreeEnsembleRegressor", **attributes: Any) -> str:
        """Add a node of ONNX's operators for classic machine learning."""
        return self.add(operator, *inputs, domain=TREES, **attributes)

    def constant(self, values: Any) -> str:
        """Add an array; returns its name."""
        name = f"constant-{next(self._numbers)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def flat(self, x: str) -> str:
        """Inputs as rows of 32-bit floats ``[n, values]``."""
        return self.add("Flatten", self.add("Cast", x, to=FLOAT), axis=1)
