"""The surroundings of a run: parties, folders, devices, and callbacks for progress."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.coordinator.noise import CoordinatorNoise
from collegium.coordinator.rounds.rounds import Parties, VoteSum
from collegium.coordinator.run.factories import configured_mechanism, vote_sum_of
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.run_record import BaselineRecord, RunRecord
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium_accounting.mechanisms import Mechanism


@dataclass(frozen=True)
class Progress:
    """How far a step of a run is.

    The steps are ``pretraining`` (before queries are chosen), ``describe``, ``hold_pool``, ``fit``, ``votes``,
    ``networks`` (between class sums), ``labels``, ``student``, ``baseline`` and ``report``.
    """

    step: str
    done: int
    total: int


OnProgress = Callable[[Progress], None]
"""Called with each step as it goes on."""

Tell = Callable[[str, int, int], None]
"""Called with (step, done, total)."""


@dataclass(frozen=True)
class Reach:
    """The parties of a run and the way to reach them.

    Parameters
    ----------
    parties : how parties are asked.
    roster : every admitted party, by name; those that can be asked now where it is None. The quorum is a fraction of
        the roster.
    signing_keys : Ed25519 public key of every party on the roster, 32 bytes each; the masked modes need them.
    vote_sum : how votes are added up; by ``votes.mode`` of the configuration where it is None.
    """

    parties: Parties
    roster: Sequence[str] | None = None
    signing_keys: Mapping[str, bytes] | None = None
    vote_sum: VoteSum | None = None


@dataclass(frozen=True)
class Storage:
    """Where a run keeps its files.

    Parameters
    ----------
    folder : the run's own folder; made where it is not there.
    ledger : the file of the ledger that pays; the folder's own where it is None. Runs of one consortium share one.
    cache : folder of pretrained networks; the run's own where it is None. Runs may share one.
    study : whose labels are kept, where several share the ledger.
    signer : the coordinator's identity, which signs the ledger; None leaves it unsigned (simulations).
    """

    folder: Path
    ledger: Path | None = None
    cache: Path | None = None
    signer: Ed25519PrivateKey | None = None
    study: str | None = None


@dataclass(frozen=True)
class Compute:
    """What computes: ``device`` is ``auto``, ``cpu`` or ``cuda``; ``threads`` are those of the CPU."""

    device: str = "auto"
    threads: int = 1


@dataclass(frozen=True)
class Watch:
    """The callbacks that are told of a run's progress, and the one that may stop it.

    Parameters
    ----------
    on_progress : called as steps go on; None tells nobody.
    should_stop : asked after every batch of queries; once it is true, the run ends with what it has. The same run may
        be started again.
    baseline : measures what pooled data would have given, without privacy; only a simulation can.
    """

    on_progress: Callable[[Progress], None] | None = None
    should_stop: Callable[[], bool] = lambda: False
    baseline: Callable[[], BaselineRecord] | None = None


@dataclass(frozen=True)
class RunSetup:
    """Everything that stays the same however often a run is started, and what follows from its configuration.

    Parameters
    ----------
    public : pool and holdout.

    Raises
    ------
    ConfigurationError
        If the settings contradict each other, or a masked mode has no signing keys.
    """

    config: RunConfig
    reach: Reach
    storage: Storage
    public: PublicData
    compute: Compute
    watch: Watch
    vote_sum: VoteSum = field(init=False)
    mechanism: Mechanism = field(init=False)
    noise: CoordinatorNoise = field(init=False)

    def __post_init__(self) -> None:
        reach = self.reach
        vote_sum = reach.vote_sum or vote_sum_of(self.config, reach.parties, reach.signing_keys)
        object.__setattr__(self, "vote_sum", vote_sum)
        object.__setattr__(self, "mechanism", configured_mechanism(self.config))
        object.__setattr__(self, "noise", CoordinatorNoise(self.config.seed))

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.storage.folder)

    @property
    def ledger_file(self) -> Path:
        return self.storage.ledger or self.folder.ledger

    @property
    def cache(self) -> Path:
        return self.storage.cache or self.folder.learned


class RunNotes:
    """The record of an open run, together with the folder that keeps it and whoever watches."""

    def __init__(self, record: RunRecord, folder: RunFolder, watch: Watch) -> None:
        self.record, self._folder, self._watch = record, folder, watch

    def write(self) -> None:
        """Replace run.json by the record as it is now."""
        self._folder.write(self.record)

    def tell(self, step: str, done: int, total: int) -> None:
        """Tell whoever watches how far a step is."""
        if self._watch.on_progress is not None:
            self._watch.on_progress(Progress(step, done, total))

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Note how long what is done within this context takes, as a part of ``step``."""
        began_s = time.monotonic()
        yield
        taken_s = self.record.timings_s
        taken_s[step] = taken_s.get(step, 0.0) + time.monotonic() - began_s
