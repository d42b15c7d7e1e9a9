"""Take the README's picture of a report: `python .ci/screenshot.py runs/demo docs/report.png`, with Chromium."""

import base64
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.browser import browser


def main(run: Path, picture: Path, width: int = 1000, height: int = 420, dark: bool = False) -> None:
    with browser() as tab:
        tab.show(f"file://{run.resolve()}/report.html", width=width, height=height, dark=dark)
        data = tab.call("Page.captureScreenshot", format="png")["data"]
    picture.write_bytes(base64.b64decode(data))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
