"""Charts as inline SVG whose colours come from the page's style sheet, so that they follow dark mode and print."""

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

_WIDTH, _HEIGHT = 480, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 28, 48
_BAR_HEIGHT, _BAR_NAME, _BAR_VALUE = 26, 118, 128
_NAME_CHARS = 14


def line_chart(
    points: Sequence[tuple[float, float]], *, title: str, x_label: str, y_label: str, limit: float | None = None
) -> Markup:
    """A line through ``points`` (ascending x) with an optional horizontal limit."""
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    if len(finite) < 2:
        return Markup("")
    highest = max(y for _, y in finite)
    if limit is not None and limit <= 3 * highest:
        highest = max(highest, limit)
    x_ticks, y_ticks = ticks(max(x for x, _ in finite)), ticks(highest)
    path = "M" + " L".join(f"{_x(x, x_ticks[-1]):.1f},{_y(y, y_ticks[-1]):.1f}" for x, y in finite)
    end_x, end_y = _x(finite[-1][0], x_ticks[-1]), _y(finite[-1][1], y_ticks[-1])
    drawn = [
        f'<path class="area" d="{path} L{end_x:.1f},{_y(0, 1):.1f} L{_LEFT},{_y(0, 1):.1f} Z"/>',
        f'<path class="line" d="{path}"/>',
        f'<circle class="dot" cx="{end_x:.1f}" cy="{end_y:.1f}" r="4"/>',
    ]
    if limit is not None and limit <= y_ticks[-1]:
        y = _y(limit, y_ticks[-1])
        drawn.append(f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(f'<text class="limit-name" x="{_LEFT + 6}" y="{y - 6:.1f}">budget {limit:g}</text>')
    told = f"{y_label} rises to {finite[-1][1]:.4g} at {finite[-1][0]:g} {x_label}"
    return _frame("".join(drawn), x_ticks, y_ticks, title, told, x_label, y_label)


def histogram(edges: Sequence[float], counts: Sequence[int], *, title: str, x_label: str, y_label: str) -> Markup:
    """Bars over [edges[i], edges[i + 1]]; ``edges`` run from 0 to 1 and are shown in per cent."""
    if not counts or max(counts) == 0:
        return Markup("")
    y_ticks = ticks(max(counts))
    bars = []
    for low, high, count in zip(edges, edges[1:], counts, strict=False):
        left, right, top = _x(low, edges[-1]), _x(high, edges[-1]), _y(count, y_ticks[-1])
        bars.append(
            f'<rect class="bar" x="{left + 1:.1f}" y="{top:.1f}" width="{right - left - 2:.1f}" '
            f'height="{_y(0, 1) - top:.1f}"><title>{low:.0%} to {high:.0%}: {count}</title></rect>'
        )
    x_ticks = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    told = ", ".join(
        f"{low:.0%} to {high:.0%}: {n}" for low, high, n in zip(edges, edges[1:], counts, strict=False) if n
    )
    return _frame("".join(bars), x_ticks, y_ticks, title, told, x_label, y_label, per_cent=True)


def bar_chart(rows: Sequence[tuple[str, float | None, str]], *, title: str) -> Markup:
    """Horizontal bars of fractions: (name, fraction in [0, 1] or None, text at the end)."""
    if not rows:
        return Markup("")
    height = _BAR_HEIGHT * len(rows) + 6
    span = _WIDTH - _BAR_NAME - _BAR_VALUE
    drawn = []
    for number, (name, fraction, text) in enumerate(rows):
        y = number * _BAR_HEIGHT + 4
        shown = name if len(name) <= _NAME_CHARS else name[: _NAME_CHARS - 1] + "…"
        drawn.append(f'<text class="name" x="{_BAR_NAME - 10}" y="{y + 14}">{escape(shown)}</text>')
        drawn.append(f'<rect class="track" x="{_BAR_NAME}" y="{y}" width="{span}" height="18" rx="3"/>')
        if fraction is not None:
            filled = span * min(1.0, max(0.0, fraction))
            drawn.append(f'<rect class="bar" x="{_BAR_NAME}" y="{y}" width="{filled:.1f}" height="18" rx="3"/>')
        drawn.append(f'<text class="value" x="{_BAR_NAME + span + 10}" y="{y + 14}">{escape(text)}</text>')
    return _svg("".join(drawn), height, title, ", ".join(f"{name}: {text}" for name, _, text in rows))


def epsilon_scale(rows: Sequence[tuple[str, float]], limits: Sequence[float]) -> Markup:
    """Each ε of ``rows`` (name, ε) on one logarithmic scale from 0.01 to 100, with a line at each of ``limits``."""
    if not rows:
        return Markup("")
    span, height = _WIDTH - _BAR_NAME - _RIGHT, _BAR_HEIGHT * len(rows) + 34

    def at(epsilon: float) -> float:
        return _BAR_NAME + span * (math.log10(min(100.0, max(0.01, epsilon))) + 2.0) / 4.0

    drawn = []
    for limit in limits:
        drawn.append(f'<line class="grid" x1="{at(limit):.1f}" x2="{at(limit):.1f}" y1="0" y2="{height - 30}"/>')
        drawn.append(f'<text class="tick x" x="{at(limit):.1f}" y="{height - 16}">{limit:g}</text>')
    drawn.append(f'<text class="axis y" x="{_BAR_NAME}" y="{height - 2}">strong</text>')
    drawn.append(f'<text class="tick y" x="{_WIDTH - _RIGHT}" y="{height - 2}">weak</text>')
    for number, (name, epsilon) in enumerate(rows):
        y = number * _BAR_HEIGHT + 4
        drawn.append(f'<text class="name" x="{_BAR_NAME - 10}" y="{y + 14}">{escape(name)}</text>')
        drawn.append(f'<line class="grid" x1="{_BAR_NAME}" x2="{_WIDTH - _RIGHT}" y1="{y + 9}" y2="{y + 9}"/>')
        drawn.append(f'<circle class="dot" cx="{at(epsilon):.1f}" cy="{y + 9}" r="6"/>')
    told = ", ".join(f"{name}: {epsilon:.3g}" for name, epsilon in rows)
    return _svg("".join(drawn), height, "ε of one record and of one institution on one scale", told)


def ticks(highest: float) -> list[float]:
    """From 0 to at least ``highest`` in 3 to 6 round steps."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / 5
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * scale for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * scale >= rough * (1 - 1e-9))
    return [number * step for number in range(math.ceil(highest / step - 1e-9) + 1)]


def _x(value: float, highest: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / highest


def _y(value: float, highest: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / highest


def _frame(
    drawn: str,
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    title: str,
    told: str,
    x_label: str,
    y_label: str,
    per_cent: bool = False,
) -> Markup:
    parts = []
    for tick in y_ticks:
        y = _y(tick, y_ticks[-1])
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick y" x="{_LEFT - 8}" y="{y + 4:.1f}">{tick:g}</text>')
    for tick in x_ticks:
        text = f"{tick:.0%}" if per_cent else f"{tick:g}"
        parts.append(f'<text class="tick x" x="{_x(tick, x_ticks[-1]):.1f}" y="{_HEIGHT - _BOTTOM + 18}">{text}</text>')
    parts.append(drawn)
    parts.append(f'<text class="axis" x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 8}">{escape(x_label)}</text>')
    parts.append(f'<text class="axis y" x="{_LEFT - 46}" y="14">{escape(y_label)}</text>')
    return _svg("".join(parts), _HEIGHT, title, told)


def _svg(content: str, height: float, title: str, told: str) -> Markup:
    """``told`` says in words what the picture shows, for whoever does not see it."""
    return Markup(
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}. {escape(told)}"'
        f' xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>{content}</svg>'
    )
