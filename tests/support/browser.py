"""A headless Chromium driven over its DevTools pipe: pages as a person sees them, without any further software."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOUND = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Pipe:
    """Commands to the browser and its events; JSON with a zero byte after each message."""

    def __init__(self, reading: int, writing: int) -> None:
        self._in, self._out = os.fdopen(reading, "rb", buffering=0), os.fdopen(writing, "wb", buffering=0)
        self._numbers = itertools.count(1)
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The result of a command; events that come before it are kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        self._out.write(json.dumps(message).encode() + b"\0")
        while (found := self._next()).get("id") != number:
            self.events.append(found)
        assert "error" not in found, (method, found["error"])
        result: dict[str, Any] = found["result"]
        return result

    def wait_for(self, method: str) -> dict[str, Any]:
        """The first event of this kind, kept ones included, which is then forgotten."""
        for event in self.events:
            if event.get("method") == method:
                self.events.remove(event)
                return event
        while (found := self._next()).get("method") != method:
            self.events.append(found)
        return found

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = self._in.read(1 << 16)
            assert data, "the browser ended"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def close(self) -> None:
        self._in.close()
        self._out.close()


class Tab:
    """One page, everything that it asks for and complains of noted."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        target = pipe.call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str = pipe.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._pipe.call(method, self._session, **parameters)

    def show(self, url: str, *, width: int = 1200, height: int = 900, dark: bool = False, still: bool = False) -> None:
        """Open ``url`` in a window of this size, in dark mode or with less motion where asked."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if still else "no-preference",
        }
        self.call(
            "Emulation.setEmulatedMedia", features=[{"name": name, "value": value} for name, value in features.items()]
        )
        for place in ("about:blank", url):  # the page before may still have something to say as it goes
            self._pipe.events.clear()
            self.call("Page.navigate", url=place)
            self._pipe.wait_for("Page.loadEventFired")

    def tell(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def needed_width(self) -> int:
        """How wide the page is, in CSS pixels. On a phone the window grows with it, so it says nothing by itself."""
        return int(self.tell("document.documentElement.scrollWidth"))

    def press_tab(self) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)

    def screenshot(self, path: Path) -> None:
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def print(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"]))

    def requested(self) -> list[str]:
        """Every address that was asked for since `show`."""
        return [
            event["params"]["request"]["url"]
            for event in self._pipe.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Errors and warnings of the console since `show`, refusals by the security policy included."""
        self.tell("0")  # whatever was said before this is here now
        found = []
        for event in self._pipe.events:
            match event.get("method"):
                case "Log.entryAdded" if event["params"]["entry"]["level"] in ("error", "warning"):
                    found.append(event["params"]["entry"]["text"])
                case "Runtime.exceptionThrown":
                    found.append(event["params"]["exceptionDetails"]["text"])
                case "Runtime.consoleAPICalled" if event["params"]["type"] in ("error", "warning"):
                    found.append(json.dumps(event["params"]["args"]))
        return found


_TAKE_THE_PIPE = """
import os, sys
reading, writing = (os.dup(int(number)) for number in sys.argv[1:3])
os.dup2(reading, 3)
os.dup2(writing, 4)
os.set_inheritable(3, True)
os.set_inheritable(4, True)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Descriptors 3 and 4 are where Chromium looks for it. In a process of its own: one that has used gRPC, as a worker of
these tests may have, must not run Python between fork and exec."""


@contextmanager
def browser() -> Iterator[Tab]:
    """A browser with one tab; it ends with the context, its profile with it."""
    assert FOUND is not None
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-c", _TAKE_THE_PIPE, str(to_browser[0]), str(from_browser[1])),
                *(FOUND, *FLAGS, f"--user-data-dir={profile}", "about:blank"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_browser[0], from_browser[1]),
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        pipe = Pipe(from_browser[0], to_browser[1])
        try:
            yield Tab(pipe)
            pipe.call("Browser.close")
        finally:
            pipe.close()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
