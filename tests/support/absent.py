"""An institution that stays away from one phase of a sum, and is there otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collegium.coordinator.rounds.rounds import Parties
from collegium.protocol.replies import Failure
from collegium.protocol.requests import RequestBody, SecureSumStep
from collegium.protocol.secure_sum import Phase
from collegium.protocol.secure_sum.messages import phase_of


def absent(parties: Parties, name: str, phase: Phase, *sums: int) -> None:
    """Let one stay away from a phase of the sums of these numbers, from 1 on."""
    ask, reached = parties.ask, 0

    def asked(requests: Mapping[str, RequestBody], **how: Any) -> Any:
        nonlocal reached
        steps = [one for one in requests.values() if isinstance(one, SecureSumStep)]
        if not steps or phase_of(steps[0].message) is not phase:
            return ask(requests, **how)
        reached += 1
        if reached not in sums:
            return ask(requests, **how)
        there = {one: request for one, request in requests.items() if one != name}
        return ask(there, **how) | {name: Failure("deadline", "it stalled")}

    parties.ask = asked  # type: ignore[method-assign]
