"""How each kind of student looks as nodes of a graph; a student of another package says it in methods of its own.

Such a student has a method ``to_onnx(graph, x)``, which adds its nodes and returns the name of the probabilities.
"""

from functools import singledispatch

import numpy as np

from collegium.errors import ConfigurationError
from collegium.models import calibrated, kernel_student
from collegium.models.calibrated import CalibratedStudent
from collegium.models.forests import Forest
from collegium.models.kernel_student import KernelStudent
from collegium.models.students import Student
from collegium.models.whole_networks import WholeNetwork
from collegium_onnx import kernels, networks
from collegium_onnx.graph import DOUBLE, FLOAT, OnnxGraph


@singledispatch
def probabilities_of(student: Student, graph: OnnxGraph, x: str) -> str:
    """Add a student, fed with encoded inputs ``x``; returns the name of the probabilities.

    ConfigurationError where it has no ONNX form.
    """
    build = getattr(student, "to_onnx", None)
    if build is None:
        raise ConfigurationError(f"a {type(student).__name__} has no ONNX form: give it a method to_onnx")
    return str(build(graph, x))


@probabilities_of.register
def _(forest: Forest, graph: OnnxGraph, x: str) -> str:
    nodes = np.arange(len(forest.threshold))
    tree = np.searchsorted(forest.roots, nodes, side="right") - 1
    own = nodes - forest.roots[tree]  # a node's number within its tree
    inner = forest.children[:, 0] != nodes
    # An input is a 32-bit float: it is at most the threshold if it is at most the threshold rounded down to one.
    near = forest.threshold.astype(np.float32)
    below = np.where(near > forest.threshold, np.nextafter(near, np.float32(-np.inf)), near)
    leaves, classes = np.nonzero((forest.share > 0) & ~inner[:, None])
    return graph.trees(
        graph.flat(x),
        aggregate_function="AVERAGE",
        n_targets=forest.share.shape[1],
        nodes_treeids=tree.tolist(),
        nodes_nodeids=own.tolist(),
        nodes_featureids=forest.feature.tolist(),
        nodes_modes=np.where(inner, "BRANCH_LEQ", "LEAF").tolist(),
        nodes_values=below.tolist(),
        nodes_truenodeids=np.where(inner, forest.children[:, 0] - forest.roots[tree], 0).tolist(),
        nodes_falsenodeids=np.where(inner, forest.children[:, 1] - forest.roots[tree], 0).tolist(),
        target_treeids=tree[leaves].tolist(),
        target_nodeids=own[leaves].tolist(),
        target_ids=classes.tolist(),
        target_weights=forest.share[leaves, classes].tolist(),
    )


@probabilities_of.register
def _(student: WholeNetwork, graph: OnnxGraph, x: str) -> str:
    return networks.shares_of(graph, x, student)[1]


@probabilities_of.register
def _(student: KernelStudent, graph: OnnxGraph, x: str) -> str:
    scores = kernels.scores_of(graph, x, student.kernel, student.coefficients)
    if student.logistic:
        own = kernels.shares_of(graph, kernels.powers_of_scores(graph, scores))
    else:
        own = kernels.shares_of(
            graph, kernels.raised_scores(graph, scores, len(student.task.classes), kernel_student.SMALLEST)
        )
    if student.network is None:
        return own
    parts = ((own, 1 - kernel_student.NETWORK), (probabilities_of(student.network, graph, x), kernel_student.NETWORK))
    return graph.add("Add", *(graph.add("Mul", part, graph.constant(np.float32(w))) for part, w in parts))


@probabilities_of.register
def _(student: CalibratedStudent, graph: OnnxGraph, x: str) -> str:
    shares = graph.add("Cast", probabilities_of(student.student, graph, x), to=DOUBLE)
    logarithms = graph.add("Log", graph.add("Max", shares, graph.constant(calibrated.SMALLEST)))
    scores = graph.add("Mul", logarithms, graph.constant(student.slope))
    probabilities = graph.add("Softmax", graph.add("Add", scores, graph.constant(student.offsets)), axis=1)
    return graph.add("Cast", probabilities, to=FLOAT)


@singledispatch
def label_of(student: Student, graph: OnnxGraph, probabilities: str) -> str:
    """Add what decides the class; returns the name of its numbers, ``[n]``."""
    return graph.add("ArgMax", probabilities, axis=1, keepdims=0)


@label_of.register
def _(student: CalibratedStudent, graph: OnnxGraph, probabilities: str) -> str:
    if student.cut is not None:
        number, least = student.cut
        own = np.arange(len(student.task.classes)) == number
        named = graph.add("GreaterOrEqual", probabilities, graph.constant(np.float32(least)))
        decided = graph.add("Where", named, graph.constant(np.float32(2)), graph.constant(np.float32(-1)))
        probabilities = graph.add("Where", graph.constant(own), decided, probabilities)
    return graph.add("ArgMax", probabilities, axis=1, keepdims=0)
