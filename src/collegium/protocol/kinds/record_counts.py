"""What all questions that count records in cells have in common."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from collegium.data.values import require
from collegium.protocol.question import RecordsQuestion
from collegium_accounting.mechanisms.record_counts import ONE


@dataclass(frozen=True)
class CountRecords(RecordsQuestion):
    """Ask how many of the party's records lie in each of some cells (`mechanisms.record_counts`).

    Derive a kind for each way to make cells.

    Parameters
    ----------
    terms : with the parameters ``parts`` and ``cells``, which must be those of the cells that are asked for.
    per_party : the party then sends shares of its records.
    """

    reads: ClassVar[tuple[str, ...]] = ("parts", "cells")

    def __post_init__(self) -> None:
        super().__post_init__()
        stated = self.terms.parameters
        true = stated.get("parts") == self.parts and stated.get("cells") == self.length
        require(true, "the terms count the cells that are asked for")

    @property
    def of_one(self) -> int:
        return ONE

    @property
    def low(self) -> int:
        return 0

    @property
    @abstractmethod
    def parts(self) -> int:
        """The cells that one record adds to."""
