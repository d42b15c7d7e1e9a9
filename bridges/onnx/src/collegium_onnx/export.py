"""A student as an ONNX file that takes raw inputs, compared with the student by ONNX Runtime before it is written.

The file encodes the inputs itself, by the task's public schema: a table has one input for each column, under the
column's name.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
from numpy.typing import NDArray
from onnx import TensorProto, helper

from collegium.data.encoding import text_of, texts_of
from collegium.data.examples import encode
from collegium.data.invented import drawn_inputs
from collegium.data.numbers import read_numbers
from collegium.data.task import CategoryColumn, NumberColumn, TableInputs, Task
from collegium.errors import ConfigurationError, DataError
from collegium.models.students import Student
from collegium.whole_files import write_whole
from collegium_onnx.graph import TREES, OnnxGraph
from collegium_onnx.students import label_of, probabilities_of

TOLERANCE = 1e-4
"""The largest difference of a probability that rounding explains."""
_COMPARED = 200
"""Inputs that are drawn where none are given to compare on."""
_VERSIONS = {"": 20, TREES: 3}
_TYPES = {"float64": TensorProto.DOUBLE, "float32": TensorProto.FLOAT, "uint8": TensorProto.UINT8}


def export_onnx(student: Student, path: Path, raw: pd.DataFrame | NDArray[Any] | None = None) -> tuple[int, float]:
    """Write a student as an ONNX file, after ONNX Runtime gave the same probabilities as the student.

    The file's outputs are ``probabilities``, shape ``[n, classes]``, and where an input has one class ``label``, its
    name, shape ``[n]``.

    Parameters
    ----------
    student : Student
        A forest, a network, a kernel student, or one of your own with a method ``to_onnx``.
    path : Path
        The file to write.
    raw : frame or array, optional
        Raw inputs to compare on; inputs that the task allows are drawn where there are none.

    Returns
    -------
    How many inputs were compared, and the largest difference between two probabilities.

    Raises
    ------
    ConfigurationError
        If the student has no ONNX form, or the comparison fails; nothing is written then.
    DataError
        If the inputs to compare on do not fit the task.
    StorageError
        If the file cannot be written.
    """
    task = student.task
    drawn = drawn_inputs(task.inputs, _COMPARED, np.random.default_rng(0), strange=True) if raw is None else raw
    expected, model = student.probabilities(encode(drawn, task)), onnx_model(student)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(["probabilities"], onnx_inputs(drawn, task))
    difference = float(np.abs(found - expected).max())
    if not difference <= TOLERANCE:
        raise ConfigurationError(
            f"the ONNX file would give other probabilities than the student (by up to {difference:.2g}), so it was not "
            "written: use the student's own file, and report this"
        )
    write_whole(path, model.SerializeToString())
    return len(drawn), difference


def onnx_model(student: Student) -> onnx.ModelProto:
    """The student as a checked model; ConfigurationError if it has no ONNX form."""
    graph, task = OnnxGraph(), student.task
    inputs, x = _encoder(graph, task)
    graph.nodes.append(helper.make_node("Identity", [probabilities_of(student, graph, x)], ["probabilities"]))
    outputs = [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", len(task.classes)])]
    if not task.multilabel:
        best = label_of(student, graph, "probabilities")
        names = graph.constant(np.array(task.classes, dtype=object))
        graph.nodes.append(helper.make_node("Gather", [names, best], ["label"]))
        outputs.append(helper.make_tensor_value_info("label", TensorProto.STRING, ["n"]))
    model = helper.make_model(
        helper.make_graph(graph.nodes, "student", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in _VERSIONS.items()],
        ir_version=10,
        producer_name="collegium",
    )
    helper.set_model_props(model, {"collegium-task": task.model_dump_json()})
    onnx.checker.check_model(model)
    return model


def onnx_inputs(raw: pd.DataFrame | NDArray[Any], task: Task) -> dict[str, NDArray[Any]]:
    """Raw inputs as the file takes them, by the names of its inputs."""
    if not isinstance(task.inputs, TableInputs):
        return {"inputs": encode(raw, task)}
    names = [column.name for column in task.inputs.columns]
    if not isinstance(raw, pd.DataFrame) and raw.shape[1:] != (len(names),):
        raise DataError(f"to compare, give the {len(names)} raw columns of the task, not encoded inputs")
    frame = raw if isinstance(raw, pd.DataFrame) else pd.DataFrame(raw, columns=names)
    return {
        column.name: read_numbers(frame[column.name], dates=column.kind == "date")[0]
        if isinstance(column, NumberColumn)
        else texts_of(frame[column.name]).astype(object)
        for column in task.inputs.columns
    }


def _encoder(graph: OnnxGraph, task: Task) -> tuple[list[onnx.ValueInfoProto], str]:
    """The file's inputs, and the name of the encoded inputs that are made of them."""
    if not isinstance(task.inputs, TableInputs):
        whole = helper.make_tensor_value_info("inputs", _TYPES[task.inputs.dtype], ["n", *task.inputs.shape])
        return [whole], "inputs"
    inputs, parts = [], []
    for column in task.inputs.columns:
        number = isinstance(column, NumberColumn)
        kind = TensorProto.DOUBLE if number else TensorProto.STRING
        inputs.append(helper.make_tensor_value_info(column.name, kind, ["n"]))
        parts += _number(graph, column) if isinstance(column, NumberColumn) else [_category(graph, column)]
    return inputs, graph.add("Concat", *parts, axis=1)


def _number(graph: OnnxGraph, column: NumberColumn) -> list[str]:
    """The scaled number and the flag of a missing one, each of shape ``[n, 1]``."""
    low, high, axis = graph.constant(column.low), graph.constant(column.high), graph.constant([1])
    missing = graph.add("IsNaN", column.name)
    clipped = graph.add("Clip", graph.add("Where", missing, low, column.name), low, high)
    width = graph.constant(column.high - column.low)
    scaled = graph.add("Div", graph.add("Sub", clipped, low), width)
    floats = [graph.add("Cast", part, to=TensorProto.FLOAT) for part in (scaled, missing)]
    return [graph.add("Unsqueeze", part, axis) for part in floats]


def _category(graph: OnnxGraph, column: CategoryColumn) -> str:
    """The indicators of a category, shape ``[n, categories + 1]``."""
    places = {text_of(name): place for place, name in enumerate(column.categories)}
    numbers = graph.trees(
        column.name,
        operator="LabelEncoder",
        keys_strings=list(places),
        values_int64s=list(places.values()),
        default_int64=len(column.categories),
    )
    depth, values = graph.constant(np.int64(column.width)), graph.constant(np.array([0, 1], dtype=np.float32))
    return graph.add("OneHot", numbers, depth, values, axis=1)
