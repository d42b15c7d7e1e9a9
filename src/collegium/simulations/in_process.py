"""Parties in this process, without a transport: for exact baselines and for experiments that need nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from collegium.coordinator.rounds.rounds import OnReply
from collegium.parties.party import Party
from collegium.protocol.messages import ReplyBody, Request, RequestBody


class InProcessParties:
    """`Parties` over `Party` objects, asked one after the other."""

    def __init__(self, parties: Sequence[Party], run_id: str) -> None:
        self._parties = {party.name: party for party in parties}
        self._run_id = run_id
        self._numbers = itertools.count()

    def names(self) -> list[str]:
        """The names of the parties, sorted."""
        return sorted(self._parties)

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        """Give each party in ``requests`` its request and return the replies by name; see `Parties.ask`.

        Nobody is late here, so that ``timeout_s`` (seconds) does not matter. ``on_reply`` is called with each reply.
        """
        replies: dict[str, ReplyBody] = {}
        for name, body in requests.items():
            request = Request(f"request-{next(self._numbers)}", self._run_id, body)
            replies[name] = self._parties[name].handle(request).body
            if on_reply is not None:
                on_reply(name, replies[name])
        return replies
