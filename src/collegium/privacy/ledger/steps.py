"""What one round of a block does, as its entry states it: a step of a mechanism, from which the cost is computed again.

The laws that an entry states are what its charges are counted by. They are believed only as far as mechanism,
parameters, unit and number of classes bear them out: whoever writes the ledger could state any.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from collegium.errors import CollegiumError, ConfigurationError, LedgerCorrupt
from collegium_accounting.game.laws import Law, RenyiLaw, VectorLaw
from collegium_accounting.game.winner import RoundLaw
from collegium_accounting.mechanisms import (
    Adjacency,
    AnsweredBy,
    Mechanism,
    Stage,
    Unit,
    create,
    known_names,
    mechanism_named,
)
from collegium_accounting.renyi import WIDE_ORDERS

if TYPE_CHECKING:
    from collegium.privacy.ledger.entry import Terms

Parameter = float | int | str

Counted = Literal["exact", "classic", "whole counts"]
"""By the exact accountant; by published bounds; as whole noisy counts of all steps that one sum is for."""

_ROUNDING = 1e-9
"""Relative: the last digits of noise change with the parties and the cells."""


@dataclass(frozen=True)
class Step:
    """One step of a mechanism, as a block of a ledger charges it.

    Parameters
    ----------
    mechanism, parameters : name, and parameters by name. The name tells who adds the noise.
    stage : the step's name; empty for all steps on one sum.
    units : by privacy unit, how many votes it may change and the adjacency.
    counted : how its cost is counted.
    classes : their number where it makes the cost smaller; None where no such number is assumed.
    """

    mechanism: str
    parameters: Mapping[str, Parameter] = field(hash=False)
    stage: str
    units: Mapping[str, tuple[int, str]] = field(hash=False)
    counted: Counted = "exact"
    classes: int | None = None

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        stage: str,
        units: Mapping[str, Unit],
        counted: Counted = "exact",
        classes: int | None = None,
    ) -> Self:
        """The step ``stage`` of ``mechanism`` for these units."""
        named = {name: (unit.votes, unit.adjacency.value) for name, unit in units.items()}
        return cls(mechanism.name, mechanism.parameters(), stage, named, counted, classes)

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> Self:
        """The step that an entry holds; raises LedgerCorrupt where it holds none."""
        units = {str(name): (int(votes), Adjacency(near).value) for name, (votes, near) in written["units"].items()}
        if written["counted"] not in get_args(Counted) or written.keys() != cls.__dataclass_fields__.keys():
            raise LedgerCorrupt("it states a step of a mechanism in an unknown form")
        return cls(**{**written, "parameters": dict(written["parameters"]), "units": units})

    @cached_property
    def laws(self) -> Mapping[str, Law]:
        """What one round releases, by unit; raises ConfigurationError where the mechanism is not known here."""
        mechanism = create(self.mechanism, **self.parameters)
        units = {name: Unit(votes, Adjacency(adjacency)) for name, (votes, adjacency) in self.units.items()}
        if self.counted == "whole counts":
            return {name: mechanism.answer_law(unit, self.stage) for name, unit in units.items()}
        stage = next((one for one in mechanism.stages if one.name == self.stage), None)
        if stage is None:
            raise ConfigurationError(f"{self.mechanism} has no step {self.stage!r}")
        return {name: law_of(stage, self.counted, unit, self.classes) for name, unit in units.items()}


def law_of(stage: Stage, counted: Counted, unit: Unit, classes: int | None = None) -> Law:
    """What one query costs at ``stage``, by the exact accountant or by published bounds."""
    return stage.law(unit, classes) if counted == "exact" else RenyiLaw.of(stage.charge(WIDE_ORDERS, unit))


def check_terms(terms: "Terms", *, all_known: bool = True) -> None:
    """Raise LedgerCorrupt unless every law that ``terms`` state costs what its step does, or more.

    With ``all_known`` also where a step is missing or its mechanism unknown, so that nothing can be compared.
    """
    for purpose, block in terms.blocks.items():
        known = block.step is not None and block.step.mechanism in known_names()
        if block.laws and (all_known or known):
            _check_laws(purpose, block.laws, block.step, terms)


def _check_laws(purpose: str, laws: Mapping[str, Law], step: Step | None, terms: "Terms") -> None:
    if step is None:
        raise LedgerCorrupt(f"it states what {purpose!r} costs, and not the mechanism: nobody can check that")
    try:
        computed = step.laws
        voters = mechanism_named(step.mechanism).answered_by
    except CollegiumError as error:
        raise LedgerCorrupt(f"what {purpose!r} costs cannot be computed: {error}; install its package") from None
    for unit, law in laws.items():
        votes, adjacency = step.units.get(unit, (0, ""))
        enough = votes >= (terms.votes_per_unit.get(unit, 1) if voters is AnsweredBy.TEACHERS else 1)
        # To replace a vote costs no less than to add or remove one.
        if not enough or adjacency not in (terms.adjacency, "replace") or not covers(law, computed[unit]):
            named = ", ".join(f"{name} {value}" for name, value in step.parameters.items())
            raise LedgerCorrupt(
                f"it states less for {purpose!r} than {step.mechanism} ({named}) costs one {unit}: do not trust this "
                "ledger"
            )


def covers(stated: Law, computed: Law) -> bool:
    """Whether ``stated`` costs at least what ``computed`` does, but for rounding."""

    def least(one: float, other: float) -> bool:
        return one >= other or math.isclose(one, other, rel_tol=_ROUNDING)

    match stated, computed:
        case VectorLaw(), VectorLaw():
            return least(stated.mu, computed.mu) and least(stated.slack, computed.slack)
        case RenyiLaw(), RenyiLaw():
            return all(map(least, (*stated.values, stated.delta), (*computed.values, computed.delta)))
        case RoundLaw(), RoundLaw():
            return stated == computed
    return False
