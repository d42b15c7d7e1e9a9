"""Class sums: labels of the whole pool follow from the last of them.

Each is paid for, asked once, made noisy and kept in the journal, under the name of what it answers: a run that is
started again finds it there and asks nobody. So are the networks whose features a second sum is taken under, by the
name of the first sum. A charge names its question: with other networks a second sum is another release, and is paid as
such.
"""

import hashlib
from pathlib import Path

from collegium.coordinator.asking import RunQuestion
from collegium.coordinator.release import Releases, WholeVector
from collegium.coordinator.rounds.round_requests import SumRequests
from collegium.coordinator.run.student_trainer import StudentTrainer
from collegium.coordinator.run.surroundings import RunSetup
from collegium.errors import DataError, StorageError
from collegium.models.kernel_student import PARTY_CONTRIBUTIONS, NoisySums
from collegium.privacy.mechanisms.base import WHOLE_MECHANISM
from collegium.protocol.question import PoolRange
from collegium.whole_files import read_whole, write_whole


class SumsOfRun:
    """The class sums of one run: one, or a second under features that networks learned from the first.

    Parameters
    ----------
    requests : for the first sum; ``pool_sha256`` names the pool that it is about.
    trainer : makes the networks that learn what these sums say of the pool. Where they can learn nothing, as too much
        of that is noise, the second sum is under the same map, and the mean of both takes its place.
    """

    def __init__(
        self, setup: RunSetup, releases: Releases, requests: SumRequests, trainer: StudentTrainer, pool_sha256: str
    ) -> None:
        self._setup, self._releases, self._requests, self._trainer = setup, releases, requests, trainer
        self._pool_sha256 = pool_sha256
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
            stage = mechanism.stages[0].name if mechanism.sum_per_stage else WHOLE_MECHANISM
            asked = self._requests.request(mechanism, sums.mode, PoolRange(self._pool_sha256, (0,)), stage)
            question = RunQuestion([self._requests.question], asked, sums, further=lacking - 1)
            parties = self._releases.asking.ready()
            self._releases.release(self._releases.statement.sums, question, self._rule, parties)

    @property
    def _rule(self) -> WholeVector:
        journal, noise = self._releases.asking.journal, self._releases.noise
        return WholeVector(journal, noise, self._requests.question, f"class sums {self._requests.number}")

    @property
    def _network(self) -> Path:
        """Of the networks that learned from the first sum; public. A second sum's question follows from it."""
        asked, values = self._requests.question.encode(), self._held[0].values.tobytes()
        digest = hashlib.sha256(asked + values).hexdigest()
        return self._releases.asking.journal.folder / f"class-sums-network-{digest[:16]}.safetensors"

    def _next_is_known(self, *, learn: bool) -> bool:
        """Have the request for the next sum. Returns False if it needs networks, and they did not ``learn`` yet.

        What they learned is on the disk before anybody is asked about it, so that the question stays the same.
        """
        if not self._held or self._requests.number > 1:
            return True
        file = self._network
        if not file.exists():
            if not learn:
                return False
            write_whole(file, self._trainer.networks_of(self._held[0]))
        second = self._requests.under(read_whole(file))
        try:
            _ = second.question
        except (StorageError, DataError) as error:
            raise StorageError(f"{file.name}: {error}; restore it from a copy") from error
        self._requests = second
        return True

    def _kept(self) -> NoisySums | None:
        """The next sum, where it was released."""
        if (released := self._rule.released) is None:
            return None
        contributions = released.answered * PARTY_CONTRIBUTIONS if self._requests.per_party else None
        sums = NoisySums(self._requests.spec, released.values, released.noise, contributions)
        return self._held[0].mean_with(sums) if self._held and self._requests.network is None else sums
