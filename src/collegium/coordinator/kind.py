"""How a run asks a kind of question about inputs of its pool, and what the sum of the answers says.

Derive `RunKind` for each kind of question that labels follow from, and `settings.kinds.register` it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from collegium.coordinator.contradictions import Counted
from collegium.coordinator.groups import Verdict
from collegium.coordinator.release import Releases
from collegium.coordinator.run.student_trainer import StudentTrainer
from collegium.coordinator.run.surroundings import RunSetup
from collegium.coordinator.settings.kinds import KindSettings, run_kind
from collegium.coordinator.settings.run_config import RunConfig
from collegium.data.task import TeacherSettings
from collegium.models.noisy_sums import NoisySums
from collegium.protocol.question import PoolRange, Question, QuestionTerms
from collegium_accounting.units import IntArray


@dataclass(frozen=True)
class RunFacts:
    """What the questions of a run follow from.

    Parameters
    ----------
    pool : ``[inputs, …]``; ``pool_sha256`` is its name.
    ledger_id : names the ledger under which sums are released.
    study : whose labels are released; None outside a consortium's studies.
    pretrained : returns the file of a network that learned from the pool without labels.
    noise_votes : of the mechanism; it may follow from the budget.
    """

    config: RunConfig
    pool: NDArray[Any] = field(repr=False)
    pool_sha256: str
    ledger_id: str
    study: str | None
    pretrained: Callable[[], bytes]
    noise_votes: float

    @property
    def of_study(self) -> str:
        """Names the ledger and the study: each study has labels of its own, and one release is not given to two."""
        return self.ledger_id if self.study is None else f"{self.ledger_id}:{self.study}"


class Sums(Protocol):
    """Sums over all records, of which labels and student follow from the last.

    Attributes
    ----------
    first_name : how the first of them is called in the ledger's charge.
    """

    first_name: str

    @property
    def held(self) -> list[NoisySums]:
        """Those that were released, in order."""
        ...

    @property
    def lacking(self) -> int:
        """How many sums of the run were not released."""
        ...

    @property
    def counted(self) -> list[Counted]:
        """How many records the latest of them counts, of each group of parties and of those that stay together."""
        ...

    @property
    def verdict(self) -> Verdict:
        """Which group of parties is left out."""
        ...

    def take(self) -> None:
        """Have the sums that were not released yet; see `release.Releases.release`."""
        ...


class RunKind(KindSettings, ABC):
    """Asks one kind of question in one run; `selection.plan` chooses the inputs."""

    teacher: TeacherSettings | None = None
    """What parties must have fitted before; None where records answer for themselves."""

    def __init__(self, facts: RunFacts) -> None:
        self.facts = facts

    @property
    def votes_per_unit(self) -> Mapping[str, int]:
        """How many votes one unit can change, by the names of the units that are protected."""
        return {self.facts.config.budget.unit: 1}

    @abstractmethod
    def ask(self, terms: QuestionTerms, inputs: PoolRange) -> Question:
        """The question of a round about ``inputs``; on equal terms it is equal."""

    def sums(self, setup: RunSetup, releases: Releases, trainer: StudentTrainer) -> "Sums | None":
        """The sums over all records that label every input; None where inputs are asked about one by one."""
        return None

    def votes(self, question: Question, counts: IntArray) -> IntArray:
        """The votes ``[queries, classes]`` that exact sums of the question's shape say."""
        return counts


def kind_of(facts: RunFacts) -> RunKind:
    """How the run asks, by the mechanism of its configuration."""
    kind = run_kind(facts.config.mechanism.kind)
    assert issubclass(kind, RunKind)  # `register` is for these
    return kind(facts)
