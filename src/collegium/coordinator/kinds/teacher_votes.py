"""Asks the parties' teachers about inputs of the pool."""

from collections.abc import Mapping

from collegium.coordinator.kind import RunFacts, RunKind
from collegium.coordinator.settings.kinds import register
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.question import PoolRange, QuestionTerms


@register
class TeacherVotes(RunKind):
    """Asks `CastVotes`."""

    question = CastVotes
    section = "teachers"
    usual = {"teachers": {}}  # noqa: RUF012  settings, never changed

    def __init__(self, facts: RunFacts) -> None:
        super().__init__(facts)
        assert facts.config.teachers is not None  # the configuration's own checks
        self.teacher = self._teacher = facts.config.teachers

    @property
    def votes_per_unit(self) -> Mapping[str, int]:
        return {"record": 1, "party": self._teacher.per_party}

    def ask(self, terms: QuestionTerms, inputs: PoolRange) -> CastVotes:
        return CastVotes(terms, self.facts.of_study, self._teacher, inputs, len(self.facts.config.task.classes))
