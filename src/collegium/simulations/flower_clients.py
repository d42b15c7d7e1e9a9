"""Virtual parties as clients of Flower's engine: a node receives a request, and the party that it plays answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from collegium.protocol.messages import Request, SecureSumStep, VoteRequest
from collegium.simulations.flower_parties import RECORD, FlowerParties
from collegium.simulations.virtual import virtual_party

TRAIL = "collegium-round"

Drive = Callable[[FlowerParties], None]
"""What the coordinator does once its parties are there."""


def answer(message: Message, context: Context, folder: Path) -> Message:
    """One request in, one reply out, by the party that this node plays.

    Flower may hand a node's next message to another worker process, so the requests of the round under way
    travel with the node: a process that has not seen them answers them first, to itself.
    """
    party = virtual_party(folder, int(context.node_config["partition-id"]))
    data = message.content.config_records[RECORD]["request"]
    request = Request.from_bytes(data if isinstance(data, bytes) else b"")
    trail = _trail(context)
    if isinstance(request.body, SecureSumStep):
        for earlier in trail:
            party.handle(Request.from_bytes(earlier))
        _keep_trail(context, [*trail, request.to_bytes()])
    elif isinstance(request.body, VoteRequest):
        _keep_trail(context, [request.to_bytes()])
    reply = party.handle(request)
    return Message(RecordDict({RECORD: ConfigRecord({"reply": reply.to_bytes()})}), reply_to=message)


def _trail(context: Context) -> list[bytes]:
    kept = context.state.config_records.get(TRAIL)
    requests = kept["requests"] if kept is not None else []
    return [item for item in requests if isinstance(item, bytes)] if isinstance(requests, list) else []


def _keep_trail(context: Context, requests: list[bytes]) -> None:
    context.state.config_records[TRAIL] = ConfigRecord({"requests": requests})


def apps_for(
    folder: Path, run_id: str, expected: int, drive: Drive, stop: threading.Event
) -> tuple[ServerApp, ClientApp]:
    """A server app that runs ``drive`` until ``stop`` and a client app that plays the parties of ``folder``."""
    client = ClientApp()

    @client.query("collegium")
    def _answer(message: Message, context: Context) -> Message:
        return answer(message, context, folder)

    server = ServerApp()

    @server.main()
    def _main(grid: Grid, context: Context) -> None:
        drive(FlowerParties(grid, run_id=run_id, expected=expected, stop=stop))

    return server, client
