"""What a configuration says of the kind of question that a run asks.

`coordinator.kind.RunKind` adds how it is asked. The kinds of this package are in `coordinator.kinds`; another package
names its own under the entry-point group ``collegium.run_kinds``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from collegium.errors import ConfigurationError
from collegium.extras import INSTALLED_BY
from collegium.protocol.question import Question, question_for
from collegium.settings import Frozen
from collegium_accounting.extras import Registry
from collegium_accounting.mechanisms import Mechanism

ENTRY_POINT_GROUP = "collegium.run_kinds"

KindClass = TypeVar("KindClass", bound="type[KindSettings]")


class KindSettings:
    """The part of a kind that a configuration is checked by. ``config`` is the `RunConfig` throughout."""

    question: ClassVar[type[Question]]
    """The kind of question that it asks."""
    section: ClassVar[str] = ""
    """The section of the configuration that belongs to it and to no other; empty for none."""
    settings: ClassVar[type[Frozen] | None] = None
    """What that section holds, where it is more than `RunConfig` knows: a class derived from the section's own."""
    usual: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings by section that hold where the configuration leaves them out."""

    @classmethod
    def check(cls, config: Any) -> None:
        """Raise ValueError, with what to do, for settings that do not fit each other."""

    @classmethod
    def decided(cls, config: Any) -> dict[str, Any]:
        """Parameters of the mechanism that other sections decide, by name."""
        return {}

    @classmethod
    def entries(cls, config: Any) -> int:
        """Counts for each query in one party's answer."""
        return len(config.task.classes)


_by_question: Registry[type[KindSettings]] = Registry(
    ENTRY_POINT_GROUP,
    "who asks the question",
    "two classes ask questions of the kind",
    "collegium.coordinator.kinds",
    INSTALLED_BY,
)


def register(kind: KindClass) -> KindClass:
    """Class decorator: have runs ask the kind's question with it.

    Raises ConfigurationError where another class asks that kind of question.
    """
    _by_question.add(kind.question.kind, kind)
    return kind


def run_kind(mechanism: type[Mechanism]) -> type[KindSettings]:
    """Who asks the questions that ``mechanism`` makes labels of.

    Raises ConfigurationError where the package that does is not installed.
    """
    kind = installed_kind(mechanism)
    if kind is None:
        raise ConfigurationError(
            f"no installed package asks for what {mechanism.name} makes labels of: name another mechanism"
        )
    return kind


def installed_kind(mechanism: type[Mechanism]) -> type[KindSettings] | None:
    """Who asks the questions that ``mechanism`` makes labels of; None where no installed package does."""
    known, question = _by_question.loaded(), question_for(mechanism)
    return None if question is None else known.get(question.kind)


class CountSettings(ABC):
    """The part of a kind of counts that a configuration is checked by; `kinds.record_counts.OtherCounts` adds the rest.

    Another package's kind is named under the entry-point group ``collegium.count_kinds``.
    """

    question: ClassVar[type[Question]]
    """The kind of question that it asks; its name is that of the section ``counts.NAME``."""
    settings: ClassVar[type[Frozen]]
    """What that section holds: a class derived from `CountsConfig`."""

    @classmethod
    @abstractmethod
    def parts_and_cells(cls, config: Any, settings: Any) -> tuple[int, int]:
        """How many cells one record adds to, and all cells, by public facts alone; ValueError for wrong settings."""

    @classmethod
    def rounds_of(cls, settings: Any) -> int:
        """How many times parties are asked; what each round asks may follow from those before."""
        return 1


CountClass = TypeVar("CountClass", bound="type[CountSettings]")
COUNTS_ENTRY_POINTS = "collegium.count_kinds"
_counts: Registry[type[CountSettings]] = Registry(
    COUNTS_ENTRY_POINTS, "the counts", "two classes ask for the counts", installed_by=INSTALLED_BY
)


def register_counts(kind: CountClass) -> CountClass:
    """Class decorator: have runs take these counts where their configuration asks for them."""
    _counts.add(kind.question.kind, kind)
    return kind


def count_kinds() -> Mapping[str, type[CountSettings]]:
    """Kinds of counts of other installed packages, by name."""
    return _counts.loaded()


def round_names(kind: str, settings: Any) -> list[str]:
    """What the rounds of these counts are called, in their order: the last one as the kind is."""
    return [*(f"{kind}, round {number}" for number in range(1, count_kinds()[kind].rounds_of(settings))), kind]
