"""Whether the pool fits: before labels are bought, the parties count how well it covers their records.

The check is made once in a run. After an error it is not repeated, as counts may have been released; only where too few
parties answered is the charge good for the next start.
"""

from typing import Any

from numpy.typing import NDArray

from collegium.coordinator.run.record_counting import RecordCounting
from collegium.coordinator.selection.pool_cover import MOST_CELLS, pool_cover
from collegium.privacy.analysis.pool_fit import pool_fit
from collegium.protocol.requests import CountCoverage


class PoolCheck(RecordCounting):
    """The check of one run's pool."""

    part = "pool_check"

    def _parts_and_cells(self) -> tuple[int, int]:
        return 1, MOST_CELLS

    @property
    def due(self) -> bool:
        """Whether the check is configured and paid for, and was not made yet."""
        held = self._notes.record.pool_check
        return self._settings is not None and held is not None and held.paid and not held.asked

    def check(self, pool: NDArray[Any], pool_sha256: str) -> None:
        """Ask the parties, which hold the pool ``[inputs, …]``, and note what was found; the check must be `due`."""
        held, config = self._notes.record.pool_check, self._config
        assert held is not None
        spec, reference = pool_cover(config.sums, pool, config.task.inputs, len(config.task.classes), config.seed or 0)

        def found() -> dict[str, Any]:
            _, counts, variance, _ = self._released(
                self.mechanism(1, spec.cells),
                spec.digest(),
                lambda terms, name, paid, per_party: CountCoverage(terms, name, paid, per_party, spec, pool_sha256),
            )
            return {"found": pool_fit(reference, counts, variance, spec.intervals_from)}

        self._attempt(held, found)
