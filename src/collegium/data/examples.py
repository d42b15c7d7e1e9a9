"""Records as teachers and students take them: encoded inputs, class numbers, and who belongs together."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.errors import DataError


@dataclass(frozen=True, eq=False)
class Examples:
    """``n`` records of one task.

    Attributes
    ----------
    x : uint8 ``[n, height, width, channels]`` for images, float32 ``[n, d]`` in [0, 1] for tables.
    y : int64 ``[n]``, numbers of the task's classes; None where there is no label.
    groups : str ``[n]``, equal for records that belong together; None when every record stands alone.
    columns : the raw columns that are no inputs, as text ``[n]`` each, to partition by.
    rows : SHA-256 of each raw record without its label, bytes ``[n]``; None where records were given as arrays.
    rows_of : what the rows are made of: the names of the columns.
    group_of : the column of the groups; empty where there are none, or arrays alone.
    """

    x: NDArray[Any] = field(repr=False)
    y: NDArray[np.int64] | None = field(default=None, repr=False)
    groups: NDArray[np.str_] | None = field(default=None, repr=False)
    columns: Mapping[str, NDArray[np.str_]] = field(default_factory=dict, repr=False)
    rows: NDArray[np.void] | None = field(default=None, repr=False)
    rows_of: str = ""
    group_of: str = ""

    def __len__(self) -> int:
        return len(self.x)

    def take(self, indices: NDArray[np.int64]) -> "Examples":
        """The records at ``indices``, in that order."""
        return Examples(
            self.x[indices],
            None if self.y is None else self.y[indices],
            None if self.groups is None else self.groups[indices],
            {name: values[indices] for name, values in self.columns.items()},
            None if self.rows is None else self.rows[indices],
            self.rows_of,
            self.group_of,
        )

    def labels(self) -> NDArray[np.int64]:
        """The class numbers ``[n]``; DataError where the records have none."""
        if self.y is None:
            there = ", ".join(self.columns) or "none"
            raise DataError(
                f"the records have no label: name its column with label; columns beside the inputs: {there}"
            )
        return self.y

    def identities(self) -> list[bytes]:
        """32 bytes per record that say who it is: its group, or its own content where it has none.

        They depend on nothing but the record itself, neither on its position nor on the other records:
        a teacher assigned by a keyed hash of them is the only one that a record touches.
        """
        if self.groups is not None:
            return [hashlib.sha256(b"group\0" + str(group).encode()).digest() for group in self.groups]
        labels = np.full(len(self), -1, dtype=np.int64) if self.y is None else self.y
        return [
            hashlib.sha256(b"record\0" + int(label).to_bytes(8, "little", signed=True) + row.tobytes()).digest()
            for row, label in zip(np.ascontiguousarray(self.x), labels, strict=True)
        ]

    def lasting_identities(self, task_json: str) -> tuple[list[bytes], str]:
        """32 bytes per record that stay the same for good, and the scheme that they follow.

        A record is its group, or its raw row without its label, so that neither another task nor a corrected label
        makes it somebody new. Where there are arrays alone, it is its encoded row, and the scheme names the task. Two
        schemes give the same record two identities, so a count by identities is valid within one scheme only.
        """
        if self.groups is not None:
            return self.identities(), f"group {self.group_of}"
        if self.rows is not None:
            return [bytes(row) for row in self.rows], f"row of {self.rows_of}"
        unlabelled = Examples(self.x)
        return unlabelled.identities(), f"encoded row of {hashlib.sha256(task_json.encode()).hexdigest()}"
