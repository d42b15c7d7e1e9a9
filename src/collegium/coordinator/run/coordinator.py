"""One run, from a configuration to a student and a report, over any `Parties`.

Every step leaves what it did in the run's folder, so that a run that was interrupted is started again
by the same call: labels and charges are found in the ledger, chosen queries in run.json, a fitted student by what it
was fitted from, and the rest costs nothing to repeat.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from collegium.coordinator.run.factories import open_ledger
from collegium.coordinator.run.open_run import OpenRun
from collegium.coordinator.run.run_record import RunRecord, check_same_run
from collegium.coordinator.run.surroundings import Compute, Progress, Reach, RunSetup, Storage, Watch
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.errors import LedgerCorrupt
from collegium.privacy.ledger.chain import Head
from collegium.whole_files import remove_stale_temp_files

__all__ = ["Compute", "CoordinatorRun", "Progress", "Reach", "Storage", "Watch"]


class CoordinatorRun:
    """Drives one run: `prepare` it, `label` queries, `fit` the student; or `run`, which does all three.

    Parameters
    ----------
    config : what is asked.
    reach : who is reached.
    storage : where files are kept.
    public : pool and holdout.
    compute : device and threads.
    watch : who is told of progress, and who may stop the run.

    Raises
    ------
    ConfigurationError
        If the settings contradict each other, or a masked mode has no signing keys.
    """

    def __init__(
        self,
        config: RunConfig,
        reach: Reach,
        storage: Storage,
        *,
        public: PublicData,
        compute: Compute = Compute(),  # noqa: B008 -- frozen
        watch: Watch = Watch(),  # noqa: B008 -- frozen
    ) -> None:
        self._setup = RunSetup(config, reach, storage, public, compute, watch)

    @contextmanager
    def prepare(self) -> Iterator[OpenRun]:
        """The run, with its folder locked and its ledger open, for as long as this context lasts.

        Raises
        ------
        StorageError
            If the folder cannot be written, or another process runs in it.
        LedgerCorrupt
            If the ledger fails its own checks, is gone, or is older than the run.
        ConfigurationError
            If the folder holds another run, or settings are wrong.
        """
        setup, folder = self._setup, self._setup.folder
        folder.prepare()
        with folder.lock():
            remove_stale_temp_files(folder.path)
            held = folder.read()
            if held is not None:
                # Before the first round settings may change: no label is out, and what was paid serves the same alone.
                if held.rounds:
                    check_same_run(held, setup.config, setup.public.spec, folder.path)
                if held.ledger is not None and not setup.ledger_file.exists():
                    raise LedgerCorrupt(f"{setup.ledger_file} is gone: restore it, or start in another folder")
            opened = open_ledger(
                setup.config, setup.mechanism, setup.vote_sum.added, setup.ledger_file, setup.storage.signer
            )
            with closing(opened) as ledger:
                if held is not None and held.ledger is not None:
                    ledger.require(Head.parse(held.ledger.head))
                yield OpenRun(setup, ledger, held)

    def check(self) -> None:
        """Raise now what a run would raise before it asks any party, or at its end over the student's settings.

        For whoever has to start parties first: they need not start for a run that cannot go on.
        """
        with self.prepare() as run:
            run.check()

    def label(self) -> RunRecord:
        """Label queries until all are labelled, the budget ends or `Watch.should_stop` says so.

        Returns
        -------
        The record of the run: its state is ``labelled``, or ``labelling`` where the run was told to stop.

        Raises
        ------
        BudgetExceeded
            If not one query fits the budget; no party is asked then.
        QuorumNotReached
            If too few parties are ready or answer.
        """
        with self.prepare() as run:
            run.label()
        return run.record

    def evaluate(self) -> RunRecord:
        """Fit the student of the labels that are there, and have the parties measure it where that is configured."""
        with self.prepare() as run:
            run.evaluate()
        return run.record

    def fit(self) -> RunRecord:
        """Fit the student of the labels that are there, measure it, and write the report; no party is asked."""
        with self.prepare() as run:
            run.fit()
        return run.record

    def run(self) -> RunRecord:
        """Do the whole run, or what is left of it; see `label` and `fit`."""
        with self.prepare() as run:
            run.label()
            if run.record.state == "labelled":
                run.evaluate()
                run.fit()
        return run.record
