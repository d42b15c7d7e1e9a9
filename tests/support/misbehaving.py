"""Institutions of this process that come and go, and of which some run software of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from collegium.protocol.question import Question
from collegium.protocol.replies import Failure
from collegium.protocol.requests import Ask, RequestBody
from collegium.simulations.local import InProcessParties, LocalParties

Unheard = Callable[[str, RequestBody], bool]
"""Whether a party, by its name, does not hear a request."""
Twist = Callable[[Question, np.ndarray], np.ndarray]
"""What is sent in the place of an honest answer to a question."""


class Unreliable(InProcessParties):
    """Real parties; ``asked`` holds the requests to them, also those unheard, by their names and in their order."""

    def __init__(self, *parties: Any, **options: Any) -> None:
        self.asked: list[dict[str, RequestBody]] = []
        self._unheard: Unheard = lambda name, body: False
        super().__init__(*parties, **options)

    def ask(self, requests: Mapping[str, RequestBody], **options: Any) -> Any:
        heard = {name: body for name, body in requests.items() if not self._unheard(name, body)}
        self.asked.append(dict(requests))
        gone = dict.fromkeys(requests.keys() - heard.keys(), Failure("unreachable", "gone"))
        return super().ask(heard, **options) | gone

    @contextmanager
    def cut_off(self, unheard: Unheard) -> Iterator[None]:
        """In here some requests do not arrive, beside those that do not anyway."""
        before = self._unheard
        self._unheard = lambda name, body: before(name, body) or unheard(name, body)
        try:
            yield
        finally:
            self._unheard = before

    def questions(self) -> list[tuple[str, Any]]:
        """What each party was asked for, with its name, in order."""
        return [(name, body.question) for sent in self.asked for name, body in sent.items() if isinstance(body, Ask)]


class Misbehaving(Unreliable, LocalParties):
    """The same, made from their records."""

    def lies(self, name: str, twist: Twist) -> None:
        """From now on this party sends ``twist`` of what it should."""
        liar = self._parties[name]
        honest = liar._bounded
        liar._bounded = lambda kind, ask, run_id: twist(ask.question, honest(kind, ask, run_id))  # type: ignore[method-assign]


def number_of(body: RequestBody) -> int:
    """Which class sum of its run is asked for; 0 for any other request."""
    return getattr(body.question, "number", 0) if isinstance(body, Ask) else 0
