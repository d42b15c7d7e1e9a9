"""A hook of MkDocs: links from a page to a file of the repository outside docs/ become plain text on the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """The page's text; a link that stays within docs/ is left alone, and so is one to a file that there is not."""
    docs = Path(config["docs_dir"])
    here = (docs / page.file.src_uri).parent

    def text_alone(link: re.Match[str]) -> str:
        target = (here / link[2]).resolve()
        return link[1] if target.exists() and docs.resolve() not in target.parents else link[0]

    return _LINK.sub(text_alone, markdown)
