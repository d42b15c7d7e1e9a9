"""What a question asks of this party, row by row, and what that costs: what its book is asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from collegium.parties.policy import described
from collegium.privacy.ledger.steps import Step
from collegium.privacy.ledger.witness import agreement
from collegium.protocol.question import Keys, Question, keys
from collegium_accounting.game.laws import Law
from collegium_accounting.mechanisms import Mechanism


@dataclass(frozen=True, eq=False)
class Answer:
    """What a question asks of this party.

    Parameters
    ----------
    roster : digest of the parties that an exact answer is summed with; empty where it is not summed, or not exact.
    """

    question: Question
    mechanism: Mechanism
    keys: Keys
    roster: bytes

    @classmethod
    def to(cls, run_id: str, question: Question, contents: Sequence[bytes], roster: bytes) -> "Answer":
        """The answer that ``question`` asks for within a run; see `protocol.question.keys`.

        Raises
        ------
        MechanismRefused, ModeRefused
            If the terms describe no mechanism that a party answers.
        """
        summed = b"" if question.terms.noised else roster
        return cls(question, described(question), keys(question, contents, run_id, roster), summed)

    @property
    def exact(self) -> bool:
        """Whether the same answer comes out when it is asked for again; the parties' own noise is always fresh."""
        return not self.question.terms.noised

    @property
    def purpose(self) -> str:
        """What the party's own ledger calls one row."""
        terms, mechanism, cost = self.question.terms, self.mechanism, self.question.cost()
        parameters = ", ".join(f"{key} {value}" for key, value in mechanism.parameters().items())
        asked = f"{terms.stage or self.question.kind} of {mechanism.name}"
        honest = f" of {terms.honest_survivors} honest parties" if terms.noised else ""
        return f"{asked} ({parameters}; {terms.sum_mode}{honest}; {cost.unit.votes} votes)"

    @property
    def agreement(self) -> str:
        """What the party signs that it agreed to; see `witness.agreement`."""
        question = self.question
        classes = None if question.whole_vector else question.shape[1]
        step = Step.of(self.mechanism, question.stages()[0], {"voters": question.cost().unit})
        return agreement(question.ledger_id, step, question.terms.sum_mode, classes)

    @cached_property
    def step(self) -> Step:
        """What one row does, for the unit of the ledger that pays and for a record."""
        cost, terms = self.question.cost(), self.question.terms
        units = {"record": cost.record} | {"party" if cost.per_party else "record": cost.unit}
        return replace(Step.of(self.mechanism, self.question.stages()[0], units, "whole counts"), stage=terms.stage)

    @property
    def laws(self) -> Mapping[str, Law]:
        """What one row releases, by unit."""
        return self.step.laws
