"""The pool check: before labels are bought, the parties count how well the pool covers their records."""

from typing import Any

from numpy.typing import NDArray

from collegium.coordinator.kinds.record_counts import RecordCounting
from collegium.coordinator.release import Releases
from collegium.coordinator.selection.kernel_choice import MOST_CELLS, pool_cover
from collegium.privacy.analysis.pool_fit import pool_fit
from collegium.privacy.mechanisms.record_counts import ONE
from collegium.protocol.kinds.coverage import CountCoverage


class PoolCheck(RecordCounting):
    """The pool check of one run.

    It is made once. After an error it is not repeated. Where too few parties answered, or the process died, the next
    start makes it, if it was kept or the ledger has its charge as not spent.
    """

    part = "pool_check"

    def _parts_and_cells(self) -> tuple[int, int]:
        return 1, MOST_CELLS

    def check(self, releases: Releases, pool: NDArray[Any], pool_sha256: str) -> None:
        """Ask the parties about the pool ``[inputs, …]`` and note what was found, where that is due.

        It is where the check is configured and paid for, and was not made yet: a process may have died before it was.
        """
        noted = self._notes.record.pool_check
        if self._settings is None or noted is None or not noted.paid or noted.found is not None:
            return
        if noted.asked and noted.why_not is not None:
            return
        spec, reference = pool_cover(self._config.sums, pool, self._config.task.inputs, self._config.seed or 0)
        mechanism = self.mechanism(1, spec.cells)
        question = CountCoverage(*self._terms(mechanism), spec, pool_sha256)
        if not self._unspent(releases):
            if self._rule(releases, mechanism, question).released is None:
                return  # its counts may have been seen
        else:
            releases.asking.ready()

        def found() -> dict[str, Any]:
            released, _ = self._released(releases, mechanism, question)
            variance = (released.noise / ONE) ** 2
            return {"found": pool_fit(reference, released.values / ONE, variance, spec.intervals_from)}

        self._attempt(releases, found)
