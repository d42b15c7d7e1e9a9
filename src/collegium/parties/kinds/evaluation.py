"""Counts what a classifier makes of the party's own records.

What enters the sum is counted as `privacy.evaluation_cells` says, so that it does not matter which classifier is
asked about. The party's own figure never leaves it: it is written to the log and to a file that `party show` reads,
beside the consortium's, with a warning where they are far apart.
"""

import math
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.errors import DataError, StorageError
from collegium.models.devices import each_alone
from collegium.models.forests import Forest
from collegium.models.kernel_student import KernelStudent
from collegium.models.students import Student, read_student
from collegium.models.whole_networks import WholeNetwork
from collegium.parties.kind import Asked, Institution, PartyKind, check_classes, kept, register
from collegium.privacy.analysis.evaluation import Measures, measures, share_right
from collegium.privacy.evaluation_cells import Layout, other_classes
from collegium.protocol.kinds.evaluation import Evaluate
from collegium.protocol.requests import ShowReleased
from collegium_accounting.mechanisms.record_counts import counts_of, weights_of
from collegium_accounting.units import IntArray

KEPT_AS = "evaluation.json"
"""The file in the party's folder that holds the latest own figure; private."""
_FAR = 0.1
_ERRORS = 4.0


@register
class Evaluation(PartyKind[Evaluate]):
    """Answers `Evaluate`, and keeps the own figure."""

    question = Evaluate

    def __init__(self, own: Institution) -> None:
        super().__init__(own)
        self._confusion: tuple[str, IntArray] | None = None

    def validate(self, question: Evaluate) -> None:
        check_classes(self.own.task, question.classes)

    def compute(self, question: Evaluate, asked: Asked) -> IntArray:
        """The party's counts; DataError, of constant text, for a file that holds no classifier of this task."""
        examples, classes = self.own.examples, question.classes
        labels = examples.labels()
        layout, others = Layout(classes), other_classes(examples.x, labels, classes)
        weights = weights_of(examples.groups, len(labels), per_party=question.per_party)
        shares = self._probabilities(question.student, classes)
        confusion = np.zeros((classes, classes), dtype=np.int64)
        np.add.at(confusion, (labels, shares.argmax(axis=1)), 1)
        self._confusion = asked.round_id.partition(".")[0], confusion
        return counts_of(layout.cells(labels, shares, others), weights, layout.length)[None]

    def shown(self, released: ShowReleased) -> None:
        """Compare the own figure with what an evaluation came to."""
        found = self._confusion
        whole = len(released.counts) == Layout(len(self.own.task.classes)).length
        if whole and found is not None and found[0] == released.round_id:
            self._keep(released, found[1])

    @classmethod
    def noted(cls, folder: Path) -> Mapping[str, Any]:
        said, rounded = kept(folder / KEPT_AS), dict[str, float | list[float] | None]()
        for own, name in (("own", "here"), ("consortium", "overall")):
            right, ends = said.get(own), said.get(f"{own}_interval")
            rounded[f"student_right_{name}"] = None if right is None else round(right, 4)
            rounded[f"student_right_{name}_interval"] = None if ends is None else [round(end, 4) for end in ends]
        return {**rounded, "warning": said.get("warning")}

    def _keep(self, shown: ShowReleased, confusion: IntArray) -> None:
        """Keep the own figure beside the consortium's, and warn in the log where they are far apart."""
        classes = self.own.task.classes
        whole = measures(np.array(shown.counts), shown.noise_variance, classes)
        own = float(np.trace(confusion) / confusion.sum())
        said: dict[str, Any] = {"warning": _warning(own, confusion, whole, classes)}
        for name, figure in (("own", share_right(own, int(confusion.sum()))), ("consortium", whole.accuracy)):
            said[name] = None if figure is None else figure.value
            said[f"{name}_interval"] = None if figure is None else (figure.low, figure.high)
        right = f"the student is right for {100 * own:.1f} % of the own records"
        self.own.note(KEPT_AS, said, "evaluation-differs", right)

    def _probabilities(self, file: bytes, classes: int) -> NDArray[np.float64]:
        """What the student in ``file`` gives to the own records, shape ``[records, classes]``, in [0, 1].

        A record's row depends on that record and on the file alone, and no record raises an error.
        """
        student = _read(file, self.own.device)
        if student.task != self.own.task:
            raise DataError("the classifier to evaluate is for another task")
        if isinstance(student, Forest | KernelStudent | WholeNetwork):
            # Their answers are exact: a record's is the same beside whichever others.
            with np.errstate(all="ignore"):
                found = student.probabilities(self.own.examples.x)
        else:
            found = each_alone(student.probabilities, self.own.examples.x, classes)
        return np.clip(np.nan_to_num(found, nan=0.0), 0.0, 1.0)


@lru_cache(maxsize=1)
def _read(file: bytes, device: str) -> Student:
    """The student in ``file``; parties that share a process read it once. DataError, of constant text, without one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "student.safetensors"
        path.write_bytes(file)
        try:
            return read_student(path, device=device)
        except StorageError:
            raise DataError("the classifier cannot be read: it is damaged, or of a method not installed here") from None


def _warning(own: float, confusion: IntArray, whole: Measures, classes: tuple[str, ...]) -> str | None:
    """What is told where the own accuracy is below the consortium's by more than ten points and four errors.

    All is computed before that is known, so that the time of the reply tells nothing of it.
    """
    # A tenth of a second of every start that needs none, and of the first evaluation whatever it came to.
    from scipy.optimize import linear_sum_assignment

    records = int(confusion.sum())
    rows, best = linear_sum_assignment(-confusion)
    moved = [f"{classes[row]!r} for {classes[given]!r}" for row, given in zip(rows, best, strict=True) if row != given]
    exchanged = float(confusion[rows, best].sum() / records)
    if whole.accuracy is None:
        return None
    expected = whole.accuracy.value
    error = math.sqrt(whole.accuracy.error**2 + max(expected * (1.0 - expected), 0.0) / records)
    if expected - own <= max(_FAR, _ERRORS * error):
        return None
    text = (
        f"the student is right for {100 * own:.1f} % of the own {records} records, but for {whole.accuracy} of all "
        "institutions: check the classes, units and columns of these records, or the consortium's figure is false"
    )
    if moved and exchanged - own > _FAR:
        text += f"; if they write {', '.join(moved[:5])}, it is right for {100 * exchanged:.1f} %"
    return text
