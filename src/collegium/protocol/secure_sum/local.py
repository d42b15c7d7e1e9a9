"""Both sides in one process, without a network: for simulations, benchmarks and tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from collegium.protocol.secure_sum.coordinator import CoordinatorSum, SumResult
from collegium.protocol.secure_sum.party import PartySum
from collegium.protocol.secure_sum.phases import Phase


def nobody_drops(_party: str, _phase: Phase) -> bool:
    """Every party answers in every phase."""
    return False


def run_sum(
    coordinator: CoordinatorSum,
    parties: Mapping[str, PartySum],
    drops: Callable[[str, Phase], bool] = nobody_drops,
) -> SumResult:
    """Drive one round to its end.

    Parameters
    ----------
    parties : by name; a name that is missing never answers.
    drops : whether a party is gone before it answers this phase; once gone, it stays away.

    Raises
    ------
    CollegiumError
        Whatever either side raises.
    """
    while coordinator.phase is not Phase.DONE:
        for name, request in coordinator.requests().items():
            if name in parties and not drops(name, coordinator.phase):
                coordinator.accept(name, parties[name].handle(request))
        coordinator.close_phase()
    return coordinator.result
