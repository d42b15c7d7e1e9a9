"""Who answers is a matter of the question: each says which mechanisms its sums are for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest
from collegium_reproduction.nearest.question import CountNearest
from pydantic import Field

from collegium.coordinator.kind import RunKind
from collegium.coordinator.settings import kinds
from collegium.coordinator.settings.run_config import RunConfig
from collegium.errors import ConfigurationError
from collegium.protocol import question as question_module
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.kinds.coverage import CountCoverage
from collegium.protocol.kinds.evaluation import Evaluate
from collegium.protocol.kinds.near_records import CastNeighbours
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.question import (
    Cost,
    PoolRange,
    Question,
    QuestionTerms,
    about_all_records,
    question_for,
    register,
)
from collegium.settings import Frozen, validate_config
from collegium_accounting.mechanisms import VoteMechanism, known_names, mechanism_named
from collegium_accounting.mechanisms import registry as mechanisms
from collegium_accounting.mechanisms.gnmax import GNMax
from collegium_accounting.mechanisms.labels import LabelMechanism, LabelStage
from collegium_accounting.mechanisms.parameters import Parameter

KINDS: dict[type[Question], set[str]] = {
    CastVotes: {"gnmax", "confident-gnmax", "lnmax", "exponential"},
    CastNeighbours: {"individual-knn"},
    CountNearest: {"knn", "multilabel-knn"},
    SumClasses: {"class-sums"},
    Evaluate: {"record-counts"},
    CountCoverage: {"record-counts"},
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_a_question_takes_the_mechanisms_that_it_is_for_and_no_others(kind: type[Question]) -> None:
    ours = set().union(*KINDS.values())
    assert ours <= set(known_names())
    assert {name for name in ours if kind.fits(mechanism_named(name))} == KINDS[kind]


def test_teachers_of_one_class_each_are_not_asked_for_several_labels() -> None:
    assert not CastVotes.fits(mechanism_named("multilabel"))


def test_a_mechanism_of_another_package_is_for_the_question_whose_parameters_it_has() -> None:
    @dataclass(frozen=True)
    class Near(LabelMechanism):
        name: ClassVar[str] = "near-for-test"
        source: ClassVar[str] = "trivial"
        sigma: Annotated[float, Parameter("noise", "votes")]
        participations: Annotated[int, Parameter("votes of one record")]
        levels: Annotated[int, Parameter("units of a vote")] = 1

        @property
        def stages(self) -> tuple[LabelStage, ...]:
            return ()

    assert [kind for kind in KINDS if kind.fits(Near)] == [CastNeighbours]


def test_a_kind_of_another_package_takes_its_own_mechanisms_and_leaves_the_others_as_they_were() -> None:
    gnmax = mechanism_named("gnmax")

    @dataclass(frozen=True)
    class Weighed(VoteMechanism):
        name: ClassVar[str] = "weighed-for-test"

    @dataclass(frozen=True)
    class Guess(Question):
        """Its name stands before that of every kind which is here."""

        kind: ClassVar[str] = "a-guess"
        serves: ClassVar[type] = VoteMechanism
        shape = (1, 2)
        high = 1

        def cost(self) -> Cost:
            raise AssertionError("nobody is asked")

    @dataclass(frozen=True)
    class Weigh(Guess):
        kind: ClassVar[str] = "weigh"
        serves: ClassVar[type] = Weighed

    assert not about_all_records(gnmax)  # every kind is loaded
    try:
        register(Guess), register(Weigh)
        assert Guess.fits(gnmax) and Guess.fits(Weighed)
        assert question_for(gnmax) is CastVotes
        assert question_for(Weighed) is Weigh
    finally:
        for name in ("a-guess", "weigh"):
            question_module._by_name.pop(name, None)


def test_a_kind_of_another_package_has_settings_of_its_own_in_a_configuration() -> None:
    class Asked(Frozen):
        """The section of this kind."""

        weight: int = Field(ge=1)

    @dataclass(frozen=True)
    class Scales(GNMax):
        name: ClassVar[str] = "scales-for-test"

    @dataclass(frozen=True)
    class OnScales(CastVotes):
        kind: ClassVar[str] = "on-scales"
        serves: ClassVar[type] = Scales

    class AsksOnScales(RunKind):
        question, section, settings = OnScales, "question", Asked

        @classmethod
        def entries(cls, config: RunConfig) -> int:
            assert isinstance(config.question, Asked)
            return config.question.weight

        def ask(self, terms: QuestionTerms, inputs: PoolRange) -> Question:
            raise AssertionError("nothing is asked")

    def read(**sections: object) -> RunConfig:
        task = {"classes": ["no", "yes"], "inputs": {"kind": "vector", "size": 4}}
        common = {"name": "a", "task": task, "pool": {"source": "p.csv"}, "budget": {"epsilon": 1.0}}
        return validate_config(common | sections, RunConfig, "file")

    assert kinds.installed_kind(mechanism_named("gnmax")) is not None  # every kind is loaded
    named = {"mechanism": {"name": "scales-for-test", "parameters": {"sigma": 9.0}}}
    try:
        mechanisms.register(Scales), register(OnScales), kinds.register(AsksOnScales)
        config = read(**named, question={"weight": 3})
        assert config.question == Asked(weight=3)
        again = RunConfig.model_validate_json(config.model_dump_json())
        assert again == config and again.question == Asked(weight=3), "as run.json keeps it"
        with pytest.raises(ConfigurationError, match=r"file: question\.weight"):
            read(**named, question={"weight": 0})
        with pytest.raises(ConfigurationError, match="the section question and the mechanism scales-for-test belong"):
            read(**named)
        with pytest.raises(ConfigurationError, match="gnmax asks for nothing that is configured here"):
            read(mechanism={"name": "gnmax", "parameters": {"sigma": 9.0}}, teachers={}, question={"weight": 3})
    finally:
        mechanisms._by_name.pop("scales-for-test", None)
        question_module._by_name.pop("on-scales", None)
        kinds._by_question.pop("on-scales", None)
