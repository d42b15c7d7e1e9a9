"""How the coordinator reaches its parties, whatever carries the messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from collegium.protocol.messages import ReplyBody, RequestBody

OnReply = Callable[[str, ReplyBody], None]


class Parties(Protocol):
    """The parties of one run. Implementations: gRPC sessions, Flower's grid, objects in this process."""

    def names(self) -> list[str]:
        """Parties that can be asked now, sorted."""
        ...

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        """Send each party its request; return once all have answered or ``timeout_s`` has passed.

        Every asked party has an entry. One that did not answer has a ``Failure``: code ``deadline``
        (it stalled), ``unreachable`` (it is gone), ``protocol`` (it sent what the protocol does not
        allow) or whatever error it reported. ``on_reply`` is called as answers come in.
        """
        ...
