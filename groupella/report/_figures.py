"""Draw the charts of a report with matplotlib: as SVG inside the page, as PNG and SVG files.

Both come from `draw`. A chart is 360 points wide with text of 12 points, so that on a phone the
text keeps its size. Inside the page each colour becomes a variable of the style sheet, so that
charts follow the reader's light or dark setting.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from groupella._files import replacing

from ._content import ReportContent
from ._panels import (
    Panel,
    error_panels,
    precision_panels,
    reliability_panels,
    training_panels,
)
from ._pictures import filter_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
WIDTH, HEIGHT, LEGEND_ROW = 5.0, 2.7, 0.25  # inches
LETTERS = 48  # that fit into the width
TEXT, RULE = "#5c6270", "#dcdcd8"
COLOURS = ["#0072b2", "#d55e00", "#008860", "#b0508a", "#8a6d00", "#3f8fc4", "#7a4fbf", "#555b66"]
VARIABLES = {TEXT: "quiet", RULE: "rule", **{c: f"s{i}" for i, c in enumerate(COLOURS)}}
STYLE: dict[Any, Any] = {
    "font.size": 12,
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlesize": 12,
    "text.parse_math": False,  # a name may contain $
    "svg.fonttype": "none",
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), TEXT),
}
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def figures(content: ReportContent) -> dict[str, Figure]:
    """Return name → figure: selection, precisions, curves, calibration, …, as far as measured."""
    found = {}
    if content.selection.is_measured:
        found["selection"] = content.selection.figure()
    for name, panels in (
        ("precisions", precision_panels(content)),
        ("curves", training_panels(content)),
        ("calibration", reliability_panels(content)),
        ("equivariance", error_panels(content)),
    ):
        if panels:
            found[name] = draw(panels)
    if content.filters:
        found["filters"] = _filters(content)
    return found


def save_figures(content: ReportContent, directory: str | Path) -> list[Path]:
    """Write every figure as PNG and SVG into `directory` and return the paths."""
    directory = Path(directory)
    written = []
    for name, figure in figures(content).items():
        for suffix in FORMATS:
            path = directory / f"{name}.{suffix}"
            with replacing(path) as temporary:
                figure.savefig(temporary, dpi=110)
            written.append(path)
    return written


def draw(panels: Sequence[Panel], titles: bool = True) -> Figure:
    """Return the panels side by side, at most three in a row, under one legend."""
    import matplotlib
    from matplotlib.figure import Figure as MatplotlibFigure
    from matplotlib.lines import Line2D

    names = {line.name: line.colour for panel in panels for line in panel.lines}
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    entries = max(1, columns * LETTERS // (6 + max(map(len, names))))  # in a row of the legend
    height = HEIGHT * rows + LEGEND_ROW * math.ceil(len(names) / entries)
    with matplotlib.rc_context(STYLE):
        figure = MatplotlibFigure(figsize=(WIDTH * columns, height), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis in axes.flat[len(panels) :]:
            axis.set_visible(False)
        for axis, panel in zip(axes.flat, panels, strict=False):
            _draw_panel(axis, panel)
            if titles:
                axis.set_title(panel.title)
        handles = [Line2D([], [], color=_colour(colour), label=n) for n, colour in names.items()]
        figure.legend(handles=handles, loc="outside upper left", ncols=entries, frameon=False)
    return figure


def inline_svg(panel: Panel, salt: str) -> str:
    """Return the panel as an SVG element for a page; `salt` keeps its ids apart from others'."""
    import matplotlib

    stream = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": salt}):
        figure = draw([panel], titles=False)
        figure.savefig(stream, format="svg", facecolor="none", metadata=nothing)
    svg = stream.getvalue().partition("<svg")[2]
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    # Curves carry their name as an id, which becomes a tooltip; other groups need none.
    svg = re.sub(r'<g id="curve: ([^"]*)">', r"<g><title>\1</title>", svg)
    svg = re.sub(r'<g id="[^"]*"(/?)>', r"<g\1>", svg)
    svg = re.sub(r"\s*\n\s*", " ", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable}, {colour})")
    label = escape(", ".join(filter(None, (panel.y_label, panel.title))))
    return f'<svg role="img" aria-label="{label}"{svg}'


def _draw_panel(axis: Any, panel: Panel) -> None:
    from matplotlib.ticker import MaxNLocator

    for line in panel.lines:
        ys = [math.nan if y is None else y for y in line.ys]
        style: dict[str, Any] = {"color": _colour(line.colour), "clip_on": False, "lw": 2}
        style |= {"ls": "--" if line.dashed else "-", "label": line.name}
        marker = "o" if len(line.points) == 1 and line.end is None else ""
        axis.plot(line.xs, ys, marker=marker, gid=f"curve: {line.name}", **style)
        if line.end is not None:
            style |= {"marker": "x", "ms": 8, "mew": 2, "label": f"_{line.end}"}
            axis.plot(*line.points[-1], gid=f"curve: {line.name}: {line.end}", **style)
    axis.grid(color=RULE, clip_on=False)
    axis.spines[:].set_visible(False)
    axis.set_facecolor("none")
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if panel.log:
        values = [y for line in panel.lines for _, y in line.points]
        low, high = panel.limits or (min(values) / 2, max(values) * 2)
        axis.set_yscale("log")
        axis.set_ylim(low, high)
        axis.set_yticks(*_decades(low, high))
        axis.minorticks_off()
    else:
        axis.yaxis.set_major_locator(MaxNLocator(nbins=6))
        axis.ticklabel_format(axis="y", useOffset=False)
    axis.tick_params(length=0)


def _decades(low: float, high: float) -> tuple[list[float], list[str]]:
    """Return about five powers of ten with their labels; the limits where there are too few."""
    powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    shown = powers[:: max(1, math.ceil(len(powers) / 6))]
    if len(shown) < 2:
        return [low, high], [f"{low:.2g}", f"{high:.2g}"]
    labels = [f"{10**k:,}" if 0 <= k <= 3 else f"10{str(k).translate(SUPERSCRIPTS)}" for k in shown]
    return [10.0**k for k in shown], labels


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _filters(content: ReportContent) -> Figure:
    """Return the largest filters of each path, one row per layer, coloured as on the page."""
    import matplotlib
    from matplotlib.figure import Figure as MatplotlibFigure

    rows = filter_rows(content)
    paths = list(dict.fromkeys(picture.path for picture in content.filters))
    with matplotlib.rc_context({**STYLE, "axes.titlesize": 8}):
        figure = MatplotlibFigure(figsize=(4 * len(paths), len(rows)), layout="constrained")
        axes = figure.subplots(len(rows), len(paths), squeeze=False)
        for axis in axes.flat:
            axis.set_axis_off()
        for (number, strips), line in zip(rows.items(), axes, strict=True):
            for strip in strips:
                axis = line[paths.index(strip.path)]
                axis.set_title(f"layer {number}, {strip.title}")
                if not strip.pixels:
                    continue
                gap = [(0, 0), (0, 1), (0, 0)]  # one transparent pixel to the right of each filter
                tiles = np.concatenate([np.pad(one, gap) for one in strip.pixels], axis=1)
                axis.imshow(tiles[:, :-1], interpolation="nearest")
    return figure
