"""The known name that a misspelt one probably stands for."""

import difflib
from collections.abc import Iterable


def nearest(text: str, known: Iterable[object]) -> str | None:
    """The known text that is most like ``text``, whatever the letters' case; None where none is like it."""
    folded = {str(one).casefold(): str(one) for one in known}
    close = difflib.get_close_matches(text.casefold(), list(folded), 1, 0.7)
    return folded[close[0]] if close else None
