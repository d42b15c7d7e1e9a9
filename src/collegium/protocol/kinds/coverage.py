"""Asks how well a pool covers the parties' records."""

from dataclasses import dataclass
from typing import ClassVar

from collegium.data.values import SHA256, require
from collegium.models.coverage import CoverageSpec
from collegium.protocol.kinds.record_counts import CountRecords
from collegium.protocol.question import register


@register
@dataclass(frozen=True)
class CountCoverage(CountRecords):
    """Ask how well a pool covers the party's records (models.coverage).

    Parameters
    ----------
    coverage : the public cells; its landmarks are inputs of the pool ``pool_sha256``.
    """

    kind: ClassVar[str] = "coverage"
    needs_labels: ClassVar[bool] = False

    coverage: CoverageSpec
    pool_sha256: str

    def __post_init__(self) -> None:
        super().__post_init__()
        require(SHA256.fullmatch(self.pool_sha256) is not None, "a pool is named by 64 hexadecimal digits")

    @property
    def parts(self) -> int:
        return 1

    @property
    def length(self) -> int:
        return self.coverage.cells
