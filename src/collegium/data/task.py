"""What the consortium agreed to learn: its classes and the shape of an input. All of it is public.

Ranges and categories come from here and never from a party's records, so that encoding a record
depends on that record alone.
"""

import re
from collections.abc import Sequence
from datetime import date
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from collegium.data.numbers import EPOCH
from collegium.data.several_labels import MAX_LABELS
from collegium.limits import MAX_CLASSES, MAX_FEATURES
from collegium.settings import Frozen

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

PARTY_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


class ImageInputs(Frozen):
    """Images as unsigned bytes, shape ``[height, width, channels]``."""

    kind: Literal["image"] = "image"
    dtype: ClassVar[str] = "uint8"
    height: int = Field(gt=0, le=4096)
    width: int = Field(gt=0, le=4096)
    channels: int = Field(default=1, ge=1, le=4)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.height, self.width, self.channels)


class NumberColumn(Frozen):
    """A number, clipped to ``[low, high]`` and scaled to [0, 1]; a missing value becomes 0 with its flag set.

    A date counts as the number of days since 1970-01-01; ``low`` and ``high`` may be given as dates.
    """

    kind: Literal["number", "date"] = "number"
    width: ClassVar[int] = 2
    name: str
    low: float
    high: float

    @field_validator("low", "high", mode="before", json_schema_input_type=float | date)
    @classmethod
    def _in_days(cls, value: Any) -> Any:
        return (value - EPOCH).days if type(value) is date else value

    @model_validator(mode="after")
    def _ordered(self) -> "NumberColumn":
        if not self.low < self.high:
            raise ValueError(f"column {self.name}: low must be below high")
        return self


class CategoryColumn(Frozen):
    """One of ``categories`` as indicators; anything else, missing included, sets the last indicator."""

    kind: Literal["category"] = "category"
    name: str
    categories: tuple[str, ...] = Field(min_length=1)

    @property
    def width(self) -> int:
        return len(self.categories) + 1


Column = Annotated[NumberColumn | CategoryColumn, Field(discriminator="kind")]


class TableInputs(Frozen):
    """Rows of a table, encoded by ``columns`` to 32-bit floats in [0, 1]."""

    kind: Literal["table"] = "table"
    dtype: ClassVar[str] = "float32"
    columns: tuple[Column, ...] = Field(min_length=1)

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(column.width for column in self.columns),)

    @property
    def places(self) -> list[slice]:
        """Where the numbers of each column are in an encoded row."""
        ends = accumulate(column.width for column in self.columns)
        return [slice(end - column.width, end) for end, column in zip(ends, self.columns, strict=True)]


class VectorInputs(Frozen):
    """Vectors of ``size`` numbers, such as the embeddings of texts by a public encoder; taken as they are."""

    kind: Literal["vector"] = "vector"
    dtype: ClassVar[str] = "float32"
    size: int = Field(gt=0, le=MAX_FEATURES)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)


Inputs = Annotated[ImageInputs | TableInputs | VectorInputs, Field(discriminator="kind")]


class Task(Frozen):
    """What a consortium learns; all of it is public. `from_frame` and `from_array` make one of public inputs.

    Examples
    --------
    >>> import collegium as cg
    >>> cg.Task.from_array([[0.0, 20.0], [1.0, 60.0]], classes=["no", "yes"]).classes
    ('no', 'yes')
    """

    classes: tuple[str, ...] = Field(min_length=2, max_length=MAX_CLASSES)
    """Their names; their order gives the label numbers."""
    inputs: Inputs
    """What an input is: the columns of a table, the size of an image or of a vector."""
    multilabel: bool = Field(default=False, exclude_if=lambda several: not several)
    """Whether a record holds any of the classes, none and all included, in place of one.

    Its label number then says which (`several_labels.numbers_of`).
    """

    @model_validator(mode="after")
    def _distinct(self) -> "Task":
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("classes must differ from each other")
        if self.multilabel and len(self.classes) > MAX_LABELS:
            raise ValueError(f"a multilabel task has at most {MAX_LABELS} classes")
        if self.multilabel and "index" in self.classes:
            raise ValueError("in a multilabel task no class may be called 'index', which is a column of labels.csv")
        return self

    @classmethod
    def from_frame(
        cls,
        public: "pd.DataFrame",
        *,
        label: str | None = None,
        classes: Sequence[object] | None = None,
        out: Sequence[str] = (),
    ) -> "Task":
        """The task of records that look like the rows of a public frame.

        Numbers and dates get the range that they have in ``public``, and texts its values as categories. So it must
        hold no private record. An index that pandas read as a column without a name is no input.

        Parameters
        ----------
        public : pandas.DataFrame
            Public rows. Columns of texts, truth values and of the dtype ``category`` are categories.
        label : str, optional
            The column of the class, which is no input.
        classes : sequence, optional
            The names of the classes, whose order gives their numbers; the values of ``label`` where it is left out.
        out : sequence of str
            Further columns that are no inputs, such as a patient's number.

        Raises
        ------
        DataError
            If there are no two classes, a column is not there, or one of texts differs in most rows.
        """
        from collegium.data.task_of_public import classes_of, columns_of

        names = classes_of(public, label, classes)
        columns = columns_of(public, [*out, *([] if label is None else [label])])
        return cls.model_validate({"classes": names, "inputs": {"kind": "table", "columns": columns}})

    @classmethod
    def from_array(cls, public: "ArrayLike", classes: Sequence[object]) -> "Task":
        """The task of inputs that look like those of a public array.

        The ranges of a table's columns are taken from ``public``, so it must hold no private record.

        Parameters
        ----------
        public : array_like
            A table of numbers, shape ``[n, columns]``, or images as uint8 (0 to 255), shape ``[n, height, width]`` or
            ``[n, height, width, channels]``.
        classes : sequence
            The names of the classes, at least two; their order gives the class numbers.

        Raises
        ------
        DataError
            If the shape or type is none of these, or no value of a column is a number.
        """
        from collegium.data.task_of_public import classes_of, inputs_of

        return cls.model_validate({"classes": classes_of(None, None, classes), "inputs": inputs_of(public)})

    def __repr__(self) -> str:
        inputs, names = self.inputs, ", ".join(self.classes[:5]) + (", …" if len(self.classes) > 5 else "")
        what = f"{len(inputs.columns)} columns" if isinstance(inputs, TableInputs) else f"{inputs.kind}s {inputs.shape}"
        return f"<task: {names} from {what}>"

    __str__ = __repr__

    @property
    def label_numbers(self) -> int:
        """Label numbers are below this."""
        return 2 ** len(self.classes) if self.multilabel else len(self.classes)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """What holds the labels in a file: the class number, or 0 or 1 for each class."""
        return self.classes if self.multilabel else ("label",)


OWN_CHOICE = "own-choice"
"""In place of a kind of teacher: every party fits the kind that its own file names, and tells nobody which."""


class TeacherSettings(Frozen):
    """Which teacher every party fits. Equal settings on equal data give an already fitted teacher back."""

    kind: str = "small-cnn"
    """A built-in kind, ``package.module:Class``, or `OWN_CHOICE`."""
    per_party: int = Field(default=1, ge=1, le=1000)
    seed: int = 0
    options: dict[str, float | int | str | bool] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _options_belong_to_a_kind(self) -> "TeacherSettings":
        if self.kind == OWN_CHOICE and self.options:
            raise ValueError(f"the kind {OWN_CHOICE} takes no options here: every party has its own")
        return self

    def canonical_json(self) -> str:
        """The same text for equal settings."""
        import json

        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
