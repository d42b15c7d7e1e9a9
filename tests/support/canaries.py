"""Looking for secrets in what a run left or said, in every form in which bytes and counts usually leak."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass
class Canaries:
    """Secrets by name: bytes (keys, seeds), texts (codes) and vectors of counts (votes, sums)."""

    data: dict[str, bytes] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    counts: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    def found_in(self, said: Mapping[str, bytes]) -> list[str]:
        """``secret as form in place`` for every secret that some place shows."""
        forms = [(name, form, needle) for name, form, needle in self._needles()]
        patterns = [(name, _as_numbers(row.tolist())) for name, row in self._rows()]
        found = []
        for place, content in said.items():
            packed = re.sub(rb"\s+", b"", content)  # base64 and hex are broken into lines
            for name, form, needle in forms:
                if needle in content or needle in packed:
                    found.append(f"{name} as {form} in {place}")
            found += [f"{name} as numbers in {place}" for name, pattern in patterns if pattern.search(content)]
        return found

    def _rows(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        for name, counts in self.counts.items():
            for row in np.atleast_2d(counts):
                yield name, row

    def _needles(self) -> Iterator[tuple[str, str, bytes]]:
        for name, secret in self.data.items():
            yield from ((name, form, needle) for form, needle in encodings(secret))
        for name, text in self.texts.items():
            yield name, "text", text.encode()
            yield name, "text without its dashes", text.replace("-", "").encode()
            yield from ((name, form, needle) for form, needle in encodings(text.encode()))
        for name, row in self._rows():
            for kind in ("<i8", ">i8", "<i4", ">i4", "<u2", ">u2"):
                yield from (
                    (name, f"{form} of {kind}", needle) for form, needle in encodings(row.astype(kind).tobytes())
                )


def encodings(secret: bytes) -> Iterator[tuple[str, bytes]]:
    """Raw, hex, base64 at each of its three alignments, Python's repr and a decimal list; halves of it too."""
    assert len(secret) >= 8, "too short to tell from chance"
    parts = {"": secret}
    if len(secret) >= 32:
        parts |= {"first half, ": secret[: len(secret) // 2], "second half, ": secret[len(secret) // 2 :]}
    for which, part in parts.items():
        yield f"{which}raw", part
        yield f"{which}hex", part.hex().encode()
        yield f"{which}HEX", part.hex().upper().encode()
        yield f"{which}hex with colons", part.hex(":").encode()
        yield f"{which}repr", repr(part)[2:-1].encode()
        yield f"{which}decimals", ", ".join(map(str, part)).encode()
        yield f"{which}decimals, packed", ",".join(map(str, part)).encode()
        for before in range(3):
            # What surrounds the secret decides its first and last characters; those in between are its own.
            text = base64.b64encode(bytes(before) + part)
            own = text[(0, 2, 3)[before] : len(text) - 4]
            yield f"{which}base64", own
            yield f"{which}base64 for addresses", own.replace(b"+", b"-").replace(b"/", b"_")


def _as_numbers(row: list[int]) -> re.Pattern[bytes]:
    """These numbers in their order with nothing but punctuation and blanks between, however they are printed."""
    return re.compile(
        rb"(?<!\d)" + rb"(?:\.0*)?[\s,;\[\]()\"']{1,24}".join(str(number).encode() for number in row) + rb"(?!\d)"
    )
