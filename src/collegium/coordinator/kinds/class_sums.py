"""Class sums: labels of the whole pool follow from the last of them.

Each is paid for, asked once, made noisy and kept in the journal, under the name of what it answers: a run that is
started again finds it there and asks nobody. So are the networks whose features a second sum is taken under, by the
name of the first sum. A charge names its question: with other networks a second sum is another release, and is paid as
such.
"""

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from collegium.coordinator.asking import RunQuestion
from collegium.coordinator.kind import RunKind
from collegium.coordinator.release import Releases, WholeVector
from collegium.coordinator.rounds.rounds import terms_of
from collegium.coordinator.run.student_trainer import StudentTrainer
from collegium.coordinator.run.surroundings import RunSetup
from collegium.coordinator.selection.kernel_choice import kernel_spec
from collegium.coordinator.settings.kinds import register
from collegium.errors import DataError, StorageError
from collegium.models.kernel_student import PARTY_CONTRIBUTIONS, NoisySums
from collegium.models.kernels import KernelSpec
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.question import PoolRange, Terms
from collegium.whole_files import read_digested, write_digested
from collegium_accounting.mechanisms import SumMode


@register
class ClassSums(RunKind):
    """Asks `SumClasses`; the labels of all inputs follow from one sum or two."""

    question = SumClasses
    usual = {"votes": {"mode": SumMode.MASKED_AND_NOISED}, "student": {"method": "kernel"}}  # noqa: RUF012

    network: bytes | None = None
    """Records are compared by its features; by those of the settings where it is None."""
    number = 1
    """1 for the first sum, 2 for the second."""

    def under(self, network: bytes) -> Self:
        """The one who asks for a second sum, under features of these networks, which learned from the first sum alone.

        Where the file is empty, it is a second sum under the same map.
        """
        second = type(self)(self.facts)
        second.network, second.number = network or None, 2
        return second

    @cached_property
    def spec(self) -> KernelSpec:
        """The public kernel."""
        config, pool = self.facts.config, self.facts.pool
        asked = config.sums, pool, config.task.inputs, len(config.task.classes)
        return kernel_spec(*asked, self.facts.noise_votes, config.seed or 0, self.network)

    @property
    def per_party(self) -> bool:
        """Whether each party sends one vector for all of its records."""
        return self.facts.config.budget.unit == "party"

    @cached_property
    def name(self) -> str:
        """What is asked, of which pool and under which ledger, with which noise: equal texts have equal answers."""
        facts, config = self.facts, self.facts.config
        asked = [self.number, self.spec.digest(), facts.pool_sha256, facts.ledger_id]
        return json.dumps([*asked, facts.noise_votes, config.votes.mode, config.budget.unit])

    def ask(self, terms: Terms, inputs: PoolRange) -> SumClasses:
        """The question; ``inputs`` do not matter, as a sum labels every input."""
        facts = self.facts
        return SumClasses(terms, facts.ledger_id, self.per_party, self.spec, facts.pool_sha256, self.number)

    @classmethod
    def decided(cls, config: Any) -> dict[str, Any]:
        return {"rounds": config.class_sums}

    def sums(self, setup: RunSetup, releases: Releases, trainer: StudentTrainer) -> "SumsOfRun":
        return SumsOfRun(setup, releases, self, trainer)


class SumsOfRun:
    """The class sums of one run: one, or a second under features that networks learned from the first.

    Parameters
    ----------
    first : asks for the first sum.
    trainer : makes the networks that learn what these sums say of the pool. Where they can learn nothing, as too much
        of that is noise, the second sum is under the same map, and the mean of both takes its place.
    """

    def __init__(self, setup: RunSetup, releases: Releases, first: ClassSums, trainer: StudentTrainer) -> None:
        self._setup, self._releases, self._asking, self._trainer = setup, releases, first, trainer
        self._rounds, self._held = int(setup.mechanism.parameters()["rounds"]), list[NoisySums]()

    @property
    def held(self) -> list[NoisySums]:
        """Those that were released, in order; labels and student follow from the last of them.

        Raises StorageError where a file is damaged: what it held was paid for.
        """
        while len(self._held) < self._rounds and self._next_is_known(learn=False) and (sums := self._kept()):
            self._held.append(sums)
        return self._held

    @property
    def lacking(self) -> int:
        """How many sums of the run were not released."""
        return self._rounds - len(self.held)

    def take(self) -> None:
        """Have the sums that were not released yet.

        Raises
        ------
        BudgetExceeded, QuorumNotReached
            Where the budget or the parties do not take a sum; those before it are kept.
        DataError
            If networks can learn nothing from the first sum.
        """
        mechanism, sums = self._setup.mechanism, self._setup.vote_sum
        while lacking := self.lacking:
            self._next_is_known(learn=True)
            if self._kept() is not None:
                continue
            terms = terms_of(mechanism, sums, self._releases.statement.sums.stage)
            asked = self._asking.ask(terms, PoolRange(self._asking.facts.pool_sha256, (0,)))
            question = RunQuestion([self._asking.name], asked, sums, further=lacking - 1)
            parties = self._releases.asking.ready()
            self._releases.release(self._releases.statement.sums, question, self._rule, parties)

    @property
    def _rule(self) -> WholeVector:
        journal, noise = self._releases.asking.journal, self._releases.noise
        return WholeVector(journal, noise, self._asking.name, f"class sums {self._asking.number}")

    @property
    def _network(self) -> Path:
        """Of the networks that learned from the first sum; public. A second sum's question follows from it."""
        asked, values = self._asking.name.encode(), self._held[0].values.tobytes()
        digest = hashlib.sha256(asked + values).hexdigest()
        return self._releases.asking.journal.folder / f"class-sums-network-{digest[:16]}"

    def _next_is_known(self, *, learn: bool) -> bool:
        """Have the request for the next sum. Returns False if it needs networks, and they did not ``learn`` yet.

        What they learned is on the disk before anybody is asked about it, so that the question stays the same.
        """
        if not self._held or self._asking.number > 1:
            return True
        file = self._network
        if not file.exists():
            if not learn:
                return False
            write_digested(file, self._trainer.networks_of(self._held[0]))
        second = self._asking.under(read_digested(file))
        try:
            _ = second.name
        except (StorageError, DataError) as error:
            raise StorageError(f"{file.name}: {error}; restore it from a copy") from error
        self._asking = second
        return True

    def _kept(self) -> NoisySums | None:
        """The next sum, where it was released."""
        if (released := self._rule.released) is None:
            return None
        contributions = released.answered * PARTY_CONTRIBUTIONS if self._asking.per_party else None
        sums = NoisySums(self._asking.spec, released.values, released.noise, contributions)
        return self._held[0].mean_with(sums) if self._held and self._asking.network is None else sums
