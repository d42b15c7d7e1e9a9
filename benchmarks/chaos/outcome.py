"""What came of one run under faults."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from collegium.errors import CollegiumError


@dataclass
class Outcome:
    """What came of a run."""

    stop_condition: str = "every label"
    """How the run had to end."""
    state: str = "unfinished"
    """finished, stopped (as nothing could make it go on) or hung."""
    faults: Counter[str] = field(default_factory=Counter)
    clean_stops: list[str] = field(default_factory=list)
    """Last lines of a coordinator or party that stopped by itself with a is_typed_error error."""
    lives: int = 1
    """Coordinator processes."""
    rounds: int = 0
    labels: int = 0
    queries_charged: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)
    labels_seen: list[dict[str, int]] = field(default_factory=list, repr=False)
    """What the ledger held whenever the coordinator had ended."""


def is_typed_error(line: str) -> bool:
    """Whether this is the one line that a command ends with when something is wrong."""
    kinds = [CollegiumError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    return line.partition(": ")[0] in {kind.__name__ for kind in kinds} and "Traceback" not in line
