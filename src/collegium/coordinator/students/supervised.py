"""The plain student: a network that learns the issued labels alone. Its settings are read without loading torch."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from collegium.coordinator.students import LearningProblem, register
from collegium.settings import Frozen

if TYPE_CHECKING:
    from collegium.models.networks import FittedNetwork

if find_spec("torch") is None:  # a run without torch is refused before it begins, not when its student is fitted
    raise ModuleNotFoundError("no module named torch", name="torch")


@register
class Supervised(Frozen):
    """Cross-entropy on the labels; AdamW with one cycle of the learning rate (Smith and Topin 2018).

    Where an input holds several classes: one yes or no for each.
    """

    name: ClassVar[str] = "supervised"
    multilabel: ClassVar[bool] = True

    network: str = "default"
    steps: int = Field(default=600, gt=0)
    batch: int = Field(default=64, gt=0)
    learning_rate: float = Field(default=4e-3, gt=0)
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)

    def fit(self, problem: LearningProblem) -> "FittedNetwork":
        from collegium.coordinator.students.networks import fit_supervised

        return fit_supervised(problem, **self.model_dump())
