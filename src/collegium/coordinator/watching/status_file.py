"""status.json in the consortium's folder: what the serving process knows, for other programs to read."""

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from collegium.coordinator.run.run_folder import plain
from collegium.errors import CollegiumError
from collegium.whole_files import write_whole

logger = logging.getLogger("collegium.coordinator")

LOOK_S = 2.0
"""How often the file is written where anything but the time has changed."""


@contextmanager
def kept_current(path: Path, snapshot: Callable[[], Mapping[str, Any]]) -> Iterator[None]:
    """Keep the file ``path`` at what ``snapshot`` says within, and at its end; each time the whole file."""
    ending = threading.Event()

    def keep() -> None:
        written, told = None, ""
        while True:
            last = ending.is_set()
            try:
                shown = plain(snapshot())
                lasting = {**shown, "at": None, "phase": {**shown["phase"], "seconds_left": None}}
                if lasting != written:
                    write_whole(path, json.dumps(shown, allow_nan=False, ensure_ascii=False) + "\n")
                    written = lasting
                told = ""
            except CollegiumError as error:
                if told != (told := str(error)):
                    logger.error("%s", error)
            if last:
                return
            ending.wait(LOOK_S)

    keeper = threading.Thread(target=keep, name="status-file", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ending.set()
        keeper.join()
