"""The ports of a coordinator in a process of their own, whose memory can be measured: run with a consortium's file.

Prints the port of the status page; then, for every line that it reads, what the parties answered when asked who they
are. The log goes to standard error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from collegium.coordinator.service.session_service import SessionService
from collegium.coordinator.settings.consortium import read_consortium
from collegium.coordinator.watching.server import StatusServer
from collegium.data.values import ArraySpec
from collegium.logs import LogFormat, configure_logging
from collegium.protocol.requests import Describe


def main(path: Path) -> None:
    configure_logging(LogFormat.JSON)
    config = read_consortium(path)
    attendance = SessionService(
        config, pool=ArraySpec("0" * 64, "uint8", (100, 8, 8, 1)), wait_s=0, on_event=lambda event: None
    )
    with attendance.open(), StatusServer("127.0.0.1:0", dict) as status:
        print(json.dumps({"status": int(status.url.rstrip("/").rpartition(":")[2])}), flush=True)
        for _ in sys.stdin:
            names = attendance.parties.names()
            replies = attendance.parties.ask(dict.fromkeys(names, Describe()), timeout_s=20.0)
            print(json.dumps({name: type(reply).__name__ for name, reply in replies.items()}), flush=True)


main(Path(sys.argv[1]))
