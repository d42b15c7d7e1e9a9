"""What the terms of a request mean to a party: one mechanism, from which check, charge and noise follow.

The policy's floor, the party's own charge and the noise that it adds before masking are asked of the same object, so
that they cannot differ. Nothing here looks at votes or records: a refusal tells no more than the request itself.
"""

from collegium.data.task import Task
from collegium.errors import ConfigurationError, MechanismRefused, ModeRefused
from collegium.protocol.requests import (
    CastNeighbours,
    CastVotes,
    CountCoverage,
    CountNearest,
    CountRecords,
    Evaluate,
    SumClasses,
    VoteRequest,
)
from collegium_accounting.mechanisms import AnsweredBy, Mechanism, SumMode

DEFAULT_RECORD_RHO = 0.01
"""What one record may spend over all runs unless the institution's policy says otherwise (ε = 0.6 at δ = 1e-5)."""

_ASKED_OF: dict[type[VoteRequest], AnsweredBy] = {
    CastVotes: AnsweredBy.TEACHERS,
    CastNeighbours: AnsweredBy.RECORDS_WITHIN_A_RADIUS,
    CountNearest: AnsweredBy.SAMPLED_RECORDS,
    CountCoverage: AnsweredBy.ALL_RECORDS,
    Evaluate: AnsweredBy.ALL_RECORDS,
    SumClasses: AnsweredBy.ALL_RECORDS,
}


def mechanism_of(request: VoteRequest) -> Mechanism:
    """The mechanism that the request's terms describe.

    Parameters
    ----------
    request : VoteRequest
        A request for votes, of teachers or of records.

    Returns
    -------
    The mechanism: what it charges for an answer and what noise it has are what the party reckons with.

    Raises
    ------
    MechanismRefused
        If the terms describe no mechanism that a party can answer by such a request: its name or a parameter is
        unknown, missing, surplus or not finite, it protects nobody, or it is about other voters, another adjacency
        or another stage.
    ModeRefused
        If it does not work in the way of summing that is asked for; under ``masked+noised`` only a mechanism whose
        noise the parties add does.
    """
    terms = request.terms
    try:
        mechanism = terms.described()
        shares = [stage.share for stage in mechanism.stages_asked(terms.stage)]
    except ConfigurationError as error:
        raise MechanismRefused(f"policy: the terms describe no mechanism that this party knows: {error}") from error
    if not mechanism.private:
        raise MechanismRefused(f"policy: the mechanism {mechanism.name} protects nobody")
    if mechanism.answered_by is not _ASKED_OF[type(request)]:
        raise MechanismRefused(f"policy: the mechanism {mechanism.name} is answered by {mechanism.answered_by}")
    if mechanism.gives_labels == isinstance(request, CountRecords):
        raise MechanismRefused(f"policy: the mechanism {mechanism.name} is answered by another kind of request")
    if terms.adjacency not in mechanism.adjacencies:
        raise MechanismRefused(f"policy: {mechanism.name} is not accounted for under {terms.adjacency} adjacency")
    noised = terms.sum_mode == SumMode.MASKED_AND_NOISED
    if terms.sum_mode not in mechanism.sum_modes or any((share is not None) != noised for share in shares):
        raise ModeRefused(f"policy: {mechanism.name} is not answered in the mode {terms.sum_mode!r}")
    return mechanism


def check_task(mechanism: Mechanism, task: Task) -> None:
    """Raise MechanismRefused unless the mechanism is about as many classes, and labels a record, as the task has."""
    if mechanism.several_labels != task.multilabel:
        held = "any of the classes" if task.multilabel else "one class each"
        raise MechanismRefused(f"{mechanism.name} does not suit this task, whose records hold {held}")
    counted = {name: mechanism.parameters().get(name) for name in ("classes", "labels")}
    if any(number not in (None, len(task.classes)) for number in counted.values()):
        raise MechanismRefused(f"the terms of {mechanism.name} are about another number of classes than the task has")
