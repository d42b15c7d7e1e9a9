"""The colours of both pages by WCAG 2.2: text 4.5 to 1 (1.4.3, AA), marks that carry a meaning 3 to 1 (1.4.11)."""

from __future__ import annotations

import re

import pytest

from collegium.coordinator.report.page import STYLE as REPORT
from collegium.coordinator.watching.page import STYLE as STATUS

TEXT, MARK = 4.5, 3.0
PAIRS = [
    *((text, ground, TEXT) for text in ("ink", "soft", "accent", "warn", "good") for ground in ("paper", "panel")),
    ("warn", "warn-panel", TEXT),
    ("ink", "warn-panel", TEXT),
    *((mark, ground, MARK) for mark in ("accent", "good", "warn", "soft") for ground in ("paper", "panel")),
]


def schemes(style: str) -> dict[str, dict[str, str]]:
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    return {name: dict(re.findall(r"--([\w-]+): (#\w+)", block)) for name, block in (("light", light), ("dark", dark))}


def luminance(colour: str) -> float:
    """Relative luminance of ``#rgb`` or ``#rrggbb``, as WCAG defines it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    shares = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_the_measure_is_that_of_wcag() -> None:
    assert contrast("#000", "#fff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=1e-3)


@pytest.mark.parametrize("style", [REPORT, STATUS], ids=["report", "status"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("front", "ground", "needed"), PAIRS)
def test_every_colour_stands_out_from_what_it_is_on(
    front: str, ground: str, needed: float, scheme: str, style: str
) -> None:
    colours = schemes(style)[scheme]
    assert contrast(colours[front], colours[ground]) >= needed


@pytest.mark.parametrize("style", [REPORT, STATUS], ids=["report", "status"])
def test_no_colour_is_used_that_is_not_among_the_checked(style: str) -> None:
    rest = re.sub(r":root \{.*?\}", "", style, flags=re.DOTALL)
    assert not re.search(r"#[0-9a-f]{3,8}\b|rgba?\(|hsla?\(|opacity: 0", rest)
    used = set(re.findall(r"var\(--([\w-]+)\)", rest))
    for colours in schemes(style).values():
        assert used <= colours.keys()
