"""Line charts as inline SVG, coloured by the style sheet so that they follow light and dark.

Drawn for a width of 360 units: that is about a phone's, so text keeps its size there, and on a
wider screen charts stand side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 50, 8, 10, 34
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Line:
    """One curve; `colour` is the number of a series in the style sheet. None is a gap.

    end: why the curve ends before the others, which a cross then marks.
    """

    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    colour: int
    dashed: bool = False
    end: str | None = None


def line_chart(
    lines: Sequence[Line],
    *,
    label: str,
    x_label: str = "epoch",
    log: bool = False,
    limits: tuple[float, float] | None = None,
) -> str:
    """An SVG element. With `log` the vertical axis shows powers of ten."""
    scaled = [(line, _points(line, log)) for line in lines]
    values = [y for _, points in scaled for _, y in points]
    if not values:
        return f'<p class="quiet">{escape(label)}: nothing was recorded.</p>'
    xs = [x for line in lines for x in line.xs]
    x_low, x_high = min(xs), max(xs)
    if limits is not None:
        low, high = (_scaled(v, log) for v in limits)
    else:
        low, high = min(values), max(values)
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low) if x_high > x_low else 0.5
        return LEFT + width * across, TOP + height * (high - y) / (high - low)

    parts = []
    for tick, text in _ticks(low, high, log):
        _, y = at(x_low, tick)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    for tick in _whole_ticks(x_low, x_high):
        x, _ = at(tick, low)
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{tick}</text>'
        )
    middle = LEFT + width / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 3}" text-anchor="middle">{escape(x_label)}</text>'
    )
    for line, points in scaled:
        parts.append(_curve(line, [at(x, y) for x, y in points]))
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>{''.join(parts)}</svg>"
    )


def _points(line: Line, log: bool) -> list[tuple[float, float]]:
    pairs = zip(line.xs, line.ys, strict=True)
    return [(x, _scaled(y, log)) for x, y in pairs if y is not None and math.isfinite(y)]


def _scaled(y: float, log: bool) -> float:
    return math.log10(max(y, 1e-300)) if log else y


def _curve(line: Line, points: Sequence[tuple[float, float]]) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="5 4"' if line.dashed else ""
    name = f"<title>{escape(line.name)}</title>"
    if not points:
        return ""
    end = _cross(line, *points[-1])
    if len(points) == 1:
        x, y = points[0]
        dot = f'<circle class="dot s{line.colour}" cx="{x:.1f}" cy="{y:.1f}" r="3">{name}</circle>'
        return end or dot
    return f'<polyline class="curve s{line.colour}" points="{path}"{dash}>{name}</polyline>{end}'


def _cross(line: Line, x: float, y: float) -> str:
    if line.end is None:
        return ""
    return (
        f'<path class="curve s{line.colour}" d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8">'
        f"<title>{escape(line.name)}: {escape(line.end)}</title></path>"
    )


def _ticks(low: float, high: float, log: bool) -> list[tuple[float, str]]:
    if log:
        step = max(1, math.ceil((high - low) / 5))
        first = math.ceil(low / step) * step
        found = [(float(k), _power(k)) for k in range(first, math.floor(high) + 1, step)]
        if len(found) >= 2:
            return found
        return [(v, f"{10**v:.2g}") for v in (low, high)]
    step_size = _nice((high - low) / 5)
    digits = max(0, -math.floor(math.log10(step_size)))
    count = math.floor(high / step_size) - math.ceil(low / step_size) + 1
    start = math.ceil(low / step_size)
    return [
        ((start + i) * step_size, f"{(start + i) * step_size:.{digits}f}".replace("-", "−"))
        for i in range(count)
    ]


def _whole_ticks(low: float, high: float) -> list[int]:
    step = max(1, int(_nice((high - low) / 5)))
    first = math.ceil(low / step) * step
    return list(range(first, math.floor(high) + 1, step))


def _nice(step: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(max(step, 1e-12)))
    return next(f * power for f in (1.0, 2.0, 5.0, 10.0) if f * power >= step * (1 - 1e-9))


def _power(k: int) -> str:
    if k in (0, 1, 2, 3):
        return f"{10**k:,}"
    return f"10{str(k).translate(_SUPERSCRIPTS)}"
