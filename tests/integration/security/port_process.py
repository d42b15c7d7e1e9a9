"""The ports of a coordinator in a process of their own, whose memory can be measured: run with a consortium's file.

Prints the port of the status page; then, for every line that it reads, what the parties answered when asked who they
are. The log goes to standard error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from collegium.coordinator.attendance import Attendance
from collegium.coordinator.consortium import read_consortium
from collegium.coordinator.watching.server import StatusServer
from collegium.protocol.logs import LogFormat, configure_logging
from collegium.protocol.messages import Describe


def main(path: Path) -> None:
    configure_logging(LogFormat.JSON)
    attendance = Attendance(read_consortium(path), wait_s=0, on_event=lambda event: None)
    with attendance.open(), StatusServer("127.0.0.1:0", dict) as status:
        print(json.dumps({"status": int(status.url.rstrip("/").rpartition(":")[2])}), flush=True)
        for _ in sys.stdin:
            names = attendance.parties.names()
            replies = attendance.parties.ask(dict.fromkeys(names, Describe()), timeout_s=20.0)
            print(json.dumps({name: type(reply).__name__ for name, reply in replies.items()}), flush=True)


main(Path(sys.argv[1]))
