"""What one round of a block does, as its entry states it: a step of a mechanism, from which the cost is computed again.

The laws that an entry states are compared with it in `stated_laws`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self, get_args

from collegium.errors import ConfigurationError, LedgerCorrupt
from collegium_accounting.game.laws import Law, RenyiLaw, together
from collegium_accounting.mechanisms import AddedBy, Adjacency, Mechanism, Stage, Unit, create
from collegium_accounting.renyi import WIDE_ORDERS

Parameter = float | int | str

Counted = Literal["exact", "classic", "whole counts"]
"""By the exact accountant; by published bounds; as whole noisy counts of all steps that one sum is for."""


@dataclass(frozen=True)
class Step:
    """One step of a mechanism, as a block of a ledger charges it.

    Parameters
    ----------
    mechanism, parameters : name, and parameters by name.
    stage : the step's name; empty for all steps on one sum.
    honest_survivors : whose shares of the noise are counted on; 0 where the coordinator adds it.
    units : by privacy unit, how many votes it may change and the adjacency.
    counted : how its cost is counted.
    classes : their number where it makes the cost smaller; None where no such number is assumed.
    """

    mechanism: str
    parameters: Mapping[str, Parameter] = field(hash=False)
    stage: str
    honest_survivors: int
    units: Mapping[str, tuple[int, str]] = field(hash=False)
    counted: Counted = "exact"
    classes: int | None = None

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        stage: Stage,
        units: Mapping[str, Unit],
        counted: Counted = "exact",
        classes: int | None = None,
    ) -> Self:
        """The step ``stage`` of ``mechanism``, as it is summed, for these units."""
        named = {name: (unit.votes, unit.adjacency.value) for name, unit in units.items()}
        honest = stage.added.honest_survivors
        return cls(mechanism.name, mechanism.parameters(), stage.name, honest, named, counted, classes)

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> Self:
        """The step that an entry holds; raises LedgerCorrupt where it holds none."""
        units = {str(name): (int(votes), Adjacency(near).value) for name, (votes, near) in written["units"].items()}
        if written["counted"] not in get_args(Counted) or written.keys() != cls.__dataclass_fields__.keys():
            raise LedgerCorrupt("it states a step of a mechanism in an unknown form")
        return cls(**{**written, "parameters": dict(written["parameters"]), "units": units})

    @property
    def described(self) -> tuple[Mechanism, tuple[Stage, ...]]:
        """The mechanism, and the steps that are meant; raises ConfigurationError where they are not known here."""
        mechanism = create(self.mechanism, **self.parameters)
        stages = mechanism.summed(AddedBy(self.honest_survivors))
        asked = tuple(stage for stage in stages if self.stage in ("", stage.name))
        if not asked:
            raise ConfigurationError(f"{self.mechanism} has no step {self.stage!r}")
        return mechanism, asked

    @cached_property
    def laws(self) -> Mapping[str, Law]:
        """What one round releases, by unit; raises ConfigurationError where the mechanism is not known here."""
        mechanism, stages = self.described
        units = {name: mechanism.unit(votes, Adjacency(near)) for name, (votes, near) in self.units.items()}
        if self.counted == "whole counts":
            return {name: together(stage.law(unit) for stage in stages) for name, unit in units.items()}
        return {name: law_of(stages[0], self.counted, unit, self.classes) for name, unit in units.items()}


def law_of(stage: Stage, counted: Counted, unit: Unit, classes: int | None = None) -> Law:
    """What one query costs at ``stage``, by the exact accountant or by published bounds."""
    return stage.law(unit, classes) if counted == "exact" else RenyiLaw.of(stage.charge(WIDE_ORDERS, unit))
