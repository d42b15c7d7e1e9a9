"""The pool check: before labels are bought, the parties count how well the pool covers their records."""

from functools import cached_property
from typing import Any

from collegium.coordinator.kinds.record_counts import CountsOnce
from collegium.coordinator.run.surroundings import RunNotes, RunSetup
from collegium.coordinator.selection.kernel_choice import MOST_CELLS, pool_cover
from collegium.coordinator.settings.run_config import PublicData
from collegium.privacy.analysis.pool_fit import PoolFit, pool_fit
from collegium.protocol.kinds.coverage import CountCoverage
from collegium.protocol.question import RecordsQuestion
from collegium_accounting.mechanisms import Mechanism
from collegium_accounting.renyi import FloatArray


class PoolCheck(CountsOnce):
    """The pool check of one run."""

    part = "pool_check"

    def __init__(self, setup: RunSetup, notes: RunNotes, ledger_id: str, public: PublicData) -> None:
        super().__init__(setup, notes, ledger_id, setup.config.pool_check)
        self._public = public

    def _parts_and_cells(self) -> tuple[int, int]:
        return 1, MOST_CELLS

    @cached_property
    def _cover(self) -> Any:
        config = self._config
        return pool_cover(config.sums, self._public.pool.x, config.task.inputs, config.seed or 0)

    def _asked(self) -> tuple[Mechanism, RecordsQuestion]:
        spec, _ = self._cover
        mechanism = self.mechanism(spec.cells)
        return mechanism, CountCoverage(*self._terms(mechanism), spec, self._public.spec.sha256)

    def _found(self, counts: FloatArray, variance: float) -> PoolFit:
        spec, reference = self._cover
        return pool_fit(reference, counts, variance, spec.intervals_from)
