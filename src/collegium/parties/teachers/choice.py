"""Which kind of teacher a party fits: the consortium's, or its own where the consortium leaves it to each party.

An own choice is a setting like any other: made once, from public knowledge, and the same for all of the
party's teachers. A kind chosen by how well it does on the party's records would be learned from all of
them, and the claim for a single record would not hold. The coordinator learns neither the kind nor the
options: rows of votes sum to the same number of teachers, and what is charged depends on the votes alone.

A round stays what it was: it is named by its queries and terms, answers are counted by query whatever
voted (`account.Account`), and a masked round that was begun is never begun again, so a party that changes
its choice gains the coordinator no more sums of one query than the policy allows anyway.
"""

from __future__ import annotations

from pydantic import Field

from collegium.data.task import OWN_CHOICE, TeacherSettings
from collegium.errors import ConfigurationError
from collegium.settings import Frozen


class OwnTeacher(Frozen):
    """The section ``[teacher]`` of a party's file; read only where the consortium's kind is ``own-choice``."""

    kind: str
    options: dict[str, float | int | str | bool] = Field(default_factory=dict)


def settings_here(asked: TeacherSettings, own: OwnTeacher | None) -> TeacherSettings:
    """What this party fits when it is asked for ``asked``.

    Raises ConfigurationError where the choice is the party's and it has made none.
    """
    if asked.kind != OWN_CHOICE:
        return asked
    if own is None:
        raise ConfigurationError(
            "this consortium leaves the kind of teacher to each party: name one under [teacher] in the party's file"
        )
    return asked.model_copy(update={"kind": own.kind, "options": own.options})
