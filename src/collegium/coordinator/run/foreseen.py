"""What a run would still ask and pay, tried on copies of what is released: the files themselves stay as they are."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.surroundings import Storage
from collegium.coordinator.selection.queries import study_of
from collegium.privacy.ledger.entry import Charge, Release, names_an_input, queries_digest
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.store import copy_ledger

_RELEASED = ("released-*.safetensors", "class-sums-next-*", "exact-sums.json", "open-sum-*.safetensors")
"""The files beside a ledger from which a run knows what need not be asked again."""


@dataclass(frozen=True)
class Origin:
    """The study for which sums were released first, and the day.

    Parameters
    ----------
    study : None outside a consortium's named studies.
    """

    study: str | None
    day: str


@dataclass(frozen=True)
class Foreseen:
    """What a run would still ask, reuse and pay.

    Parameters
    ----------
    affordable : how many of the queries that have no label yet the budget pays for.
    wanted : the queries of the run; ``decided`` have a label or an abstention already, ``taken`` of them that of the
        one exact sum of another study.
    sums, held : sums over all records that the run follows from, and how many of them are released already.
    origin : whose the released sums are; None where none are, or the ledger does not tell.
    counts : what is counted of the parties' records and not released yet.
    unit, delta, budget : of the ledger; a budget of None is no limit.
    before, after : ε of everything charged, by unit, as it is and with all that the run would pay.
    """

    affordable: int
    wanted: int
    decided: int
    taken: int
    sums: int
    held: int
    origin: Origin | None
    counts: tuple[str, ...]
    unit: str
    delta: float
    budget: float | None
    before: Mapping[str, float]
    after: Mapping[str, float]

    @property
    def asks_labels(self) -> bool:
        """Whether any party is still to be asked for labels."""
        return self.decided < self.wanted and (not self.sums or self.held < self.sums)

    @property
    def asks(self) -> bool:
        """Whether any party is still to be asked for anything."""
        return self.asks_labels or bool(self.counts)

    @property
    def same_again(self) -> bool:
        """Whether every sum of the run was released for another study, so that its labels are that one's."""
        return bool(self.sums) and self.held == self.sums and not self.decided


def origin_of(ledger: Ledger, name: str) -> Origin | None:
    """For which study the ledger's charge of this name was made: the one that labels were released for next."""
    digest, day = queries_digest([name]), ""
    for entry in ledger.entries():
        if isinstance(entry.content, Charge) and entry.content.queries_sha256 == digest:
            day = day or entry.time_utc[:10]
        labels = entry.content.labels if day and isinstance(entry.content, Release) else {}
        if labelled := next(filter(names_an_input, labels), None):
            return Origin(study_of(labelled), day)
    return None


def charged(ledger: Ledger) -> dict[str, float]:
    """ε of everything charged, by unit; of the budget's unit alone where a game is played for it, which takes minutes.

    0 where nothing is charged.
    """
    unit = ledger.terms().unit
    with ledger.reading() as chain:
        alone = chain.spending.games
    return {unit: 0.0} | {one[0]: ledger.epsilon(one) for one in ledger.units() if one[0] == unit or not alone}


@contextmanager
def on_copies(storage: Storage) -> Iterator[Storage]:
    """A storage that is thrown away, with copies of the ledger, of what is released beside it, and of the run's record.

    Raises StorageError where a file cannot be read, LedgerCorrupt where the ledger is none.
    """
    with tempfile.TemporaryDirectory(prefix="collegium-check-") as made:
        folder, real = Path(made), RunFolder(storage.folder)
        ledger, own = storage.ledger or real.ledger, folder / "run"
        own.mkdir()
        if ledger.exists():
            copy_ledger(ledger, folder / ledger.name)
            for pattern in _RELEASED:
                for file in ledger.parent.glob(pattern):
                    shutil.copyfile(file, folder / file.name)
            if real.run_json.exists():
                shutil.copyfile(real.run_json, own / real.run_json.name)
        yield replace(storage, folder=own, ledger=folder / ledger.name, cache=None)
