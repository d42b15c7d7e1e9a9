"""The pool check: before labels are bought, the parties count how well the pool covers their records."""

from functools import cached_property
from typing import Any

from collegium.coordinator.kinds.record_counts import CountsOnce
from collegium.coordinator.release import Releases
from collegium.coordinator.selection.kernel_choice import MOST_CELLS, pool_cover
from collegium.errors import PoolUnfit
from collegium.privacy.analysis.pool_fit import PoolFit, pool_fit
from collegium.protocol.kinds.coverage import CountCoverage
from collegium.protocol.question import RecordsQuestion
from collegium.protocol.rehearsals import is_rehearsal
from collegium_accounting.mechanisms import Mechanism
from collegium_accounting.renyi import FloatArray


class PoolCheck(CountsOnce):
    """The pool check of one run."""

    part = "pool_check"

    def count(self, releases: Releases) -> None:
        """See `CountsOnce.count`; raises PoolUnfit where the pool surely does not fit, and is to."""
        super().count(releases)
        record = self._notes.record
        found = None if record.pool_check is None else record.pool_check.found
        settings = self._config.pool_check
        stops = settings is not None and settings.stop and not is_rehearsal(self._config.name)
        if found is not None and found.surely_unfit and stops and record.labels is None:
            raise PoolUnfit(f"{found} No label was bought. pool_check.stop = false goes on with this pool.")

    def _parts_and_cells(self) -> tuple[int, int]:
        return 1, MOST_CELLS

    @cached_property
    def _cover(self) -> Any:
        config = self._config
        return pool_cover(config.sums, self._setup.public.pool.x, config.task.inputs, config.seed or 0)

    def _asked(self) -> tuple[Mechanism, RecordsQuestion]:
        spec, _ = self._cover
        mechanism = self.mechanism(spec.cells)
        return mechanism, CountCoverage(*self._terms(mechanism), spec, self._setup.public.spec.sha256)

    def _found(self, counts: FloatArray, variance: float) -> PoolFit:
        spec, reference = self._cover
        return pool_fit(reference, counts, variance, spec.intervals_from)
