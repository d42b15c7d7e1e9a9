"""Divide one data set over simulated parties: at random, by a Dirichlet distribution, or by a column.

What is divided are units: groups of records that belong together, or else single records.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from collegium.data import Examples
from collegium.errors import ConfigurationError, DataError
from collegium.limits import MAX_PARTIES
from collegium.settings import Frozen

Kind = Literal["iid", "dirichlet", "quantity", "column"]
Indices = NDArray[np.int64]


class PartitionConfig(Frozen):
    """How a simulation divides its records over the parties.

    ``iid``: equal shares at random. ``dirichlet``: each class is divided by shares drawn from a Dirichlet
    distribution of concentration ``alpha`` (label skew). ``quantity``: the records, in random order, are
    divided by such shares (size skew). ``column``: one party per value of ``column``, in the values' order.
    """

    kind: Kind = "iid"
    parties: int | None = Field(default=None, ge=1, le=MAX_PARTIES)
    """Needed by every kind but ``column``, which finds it in the data and checks it where it is given."""
    seed: int = Field(default=0, ge=0)
    alpha: float = Field(default=1.0, gt=0)
    column: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> "PartitionConfig":
        if (self.kind == "column") != (self.column is not None):
            raise ValueError('column goes with kind = "column", and only with it')
        if self.kind != "column" and self.parties is None:
            raise ValueError(f'kind = "{self.kind}" needs the number of parties')
        return self


def partition(examples: Examples, config: PartitionConfig) -> list[Indices]:
    """The positions of each party's records; records of one group stay in one part.

    Returns
    -------
    One array of positions per party, ascending. The arrays are disjoint and together hold every record once.
    The same examples and settings give the same parts. Under ``dirichlet`` and ``quantity`` with a small
    ``alpha`` a party may be left without a record.

    Raises
    ------
    ConfigurationError
        When there are more parties than records (or groups), or when the column does not exist or has another
        number of values than there are parties.
    DataError
        When labels are needed and absent, or when a group has records under several values of the column.

    References
    ----------
    Yurochkin et al. 2019, "Bayesian nonparametric federated learning of neural networks", Section 4, for
    ``dirichlet``.
    """
    unit_of_record, first_records = _units(examples)
    units = len(first_records)
    if config.parties is not None and config.parties > units:
        what = "records" if examples.groups is None else "groups of records"
        raise ConfigurationError(f"{config.parties} parties cannot divide {units} {what}: ask for fewer parties")
    rng, parties = np.random.default_rng(config.seed), config.parties or 0
    match config.kind:
        case "column":
            values = _column(examples, config)
            _check_groups_agree(values, unit_of_record, first_records)
            of_units = values[first_records]
            parts = [np.flatnonzero(of_units == value) for value in np.unique(values)]  # values in ascending order
            if config.parties not in (None, len(parts)):
                raise ConfigurationError(
                    f"column {config.column} has {len(parts)} values for {parties} parties: correct either"
                )
        case "iid":
            parts = np.array_split(rng.permutation(units), parties)
        case "quantity":
            parts = _by_quantity(rng.permutation(units), parties, config.alpha, rng)
        case "dirichlet":
            order = rng.permutation(units)
            labels = examples.labels()[first_records[order]]
            parts = _by_label(order, labels, parties, config.alpha, np.random.default_rng(config.seed))
    party_of_unit = np.empty(units, dtype=np.int64)
    for party, part in enumerate(parts):
        party_of_unit[part] = party
    party_of_record = party_of_unit[unit_of_record]
    positions = np.argsort(party_of_record, kind="stable").astype(np.int64)
    ends = np.cumsum(np.bincount(party_of_record, minlength=len(parts)))
    return np.split(positions, ends[:-1])


def _units(examples: Examples) -> tuple[Indices, Indices]:
    """What is divided, groups or else records: the unit of each record, and the first record of each unit."""
    if examples.groups is None:
        everyone = np.arange(len(examples), dtype=np.int64)
        return everyone, everyone
    _, first, inverse = np.unique(examples.groups, return_index=True, return_inverse=True)
    return inverse.astype(np.int64), first.astype(np.int64)


def _column(examples: Examples, config: PartitionConfig) -> NDArray[np.str_]:
    assert config.column is not None
    if config.column not in examples.columns:
        there = ", ".join(examples.columns) or "none"
        raise ConfigurationError(f"there is no column {config.column} to partition by; there are: {there}")
    return examples.columns[config.column]


def _check_groups_agree(values: NDArray[np.str_], unit_of_record: Indices, first_records: Indices) -> None:
    astray = np.unique(unit_of_record[values != values[first_records][unit_of_record]])
    if len(astray):
        raise DataError(
            f"{len(astray)} groups have records under several values of the column: each would touch teachers of "
            "several parties, so no record-level ε would hold; partition by another column or name another group"
        )


def _by_quantity(order: Indices, parties: int, alpha: float, rng: np.random.Generator) -> list[Indices]:
    """The units in this order, cut at shares from one Dirichlet distribution."""
    ends = np.rint(np.cumsum(rng.dirichlet(np.full(parties, alpha))) * len(order)).astype(np.int64)
    return np.split(order, ends[:-1])


def _by_label(order: Indices, labels: Indices, parties: int, alpha: float, rng: np.random.Generator) -> list[Indices]:
    """The units of each class, in this order, cut at shares from a Dirichlet distribution of the class's own."""
    shares: list[list[Indices]] = []
    for label in np.unique(labels):
        of_class = order[labels == label]
        ends = (np.cumsum(rng.dirichlet(np.full(parties, alpha))) * len(of_class)).astype(np.int64)
        shares.append(np.split(of_class, ends[:-1]))
    return [np.concatenate(part) for part in zip(*shares, strict=True)]
