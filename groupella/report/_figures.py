"""The figures of a report as files, for papers and slides: PNG and SVG by matplotlib."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ._content import Content, FloatArray
from ._gallery import is_alive, largest, pictures_of, scale_of
from ._pictures import NEGATIVE, POSITIVE
from ._precisions import precision_curves
from ._words import numbered, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")


def figures(content: Content) -> dict[str, Figure]:
    """Name → figure: selection, precisions, curves, equivariance and filters, where measured."""
    found = {}
    if content.selection.is_measured:
        found["selection"] = content.selection.figure()
    if len(content.history):
        if any(precision_curves(content).values()):
            found["precisions"] = _precisions(content)
        found["curves"] = _curves(content)
    if content.errors:
        found["equivariance"] = _equivariance(content)
    if content.filters:
        found["filters"] = _filters(content)
    return found


def save_figures(content: Content, directory: str | Path) -> list[Path]:
    """Write every figure as PNG and SVG."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures(content).items():
        for suffix in FORMATS:
            path = directory / f"{name}.{suffix}"
            figure.savefig(path, dpi=150)
            written.append(path)
    return written


def _new(
    columns: int, rows: int = 1, width: float = 3.2, height: float = 2.6
) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure as MatplotlibFigure

    figure = MatplotlibFigure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _precisions(content: Content) -> Figure:
    layers = content.selection.layers
    columns = min(4, len(layers))
    figure, axes = _new(columns, math.ceil(len(layers) / columns))
    names = list(dict.fromkeys(p.path for s in layers for p in s.paths))
    epochs = [r.epoch + 1 for r in content.history]
    found = precision_curves(content)
    for axis in axes.flat[len(layers) :]:
        axis.set_visible(False)
    for number, (axis, layer) in enumerate(zip(axes.flat, layers, strict=False), 1):
        for curve in found[layer.layer]:
            values = [math.nan if v is None else v for v in curve.values]
            colour = f"C{names.index(curve.path) % 10}"
            style = "-" if curve.alive else "--"
            axis.plot(epochs, values, colour, ls=style, label=shown(curve.path))
            if curve.out is not None:
                last = max(i for i, v in enumerate(curve.values) if v is not None)
                axis.plot(epochs[last], values[last], "x", color=colour, label="_taken out")
        axis.set_yscale("log")
        axis.set_title(f"{numbered(number, layer.layer)}: {layer.verdict}", fontsize=9)
        axis.set_xlabel("epoch")
    axes[0, 0].set_ylabel("precision δ (× where a path was taken out)", fontsize=8)
    axes[0, 0].legend(fontsize=8)
    return figure


def _curves(content: Content) -> Figure:
    """What was recorded of evidence, likelihood and accuracy, a panel each."""
    per_datum = 1 / content.selection.n_data
    panels = (
        ("log evidence, nats a datum", per_datum, {"training": "log_evidence"}),
        ("negative log-likelihood", 1, {"training": "nll", "test": "validation_nll"}),
        ("accuracy, %", 100, {"training": "accuracy", "test": "validation_accuracy"}),
    )
    drawn = []
    for title, factor, columns in panels:
        lines = {label: _recorded(content, column, factor) for label, column in columns.items()}
        lines = {label: points for label, points in lines.items() if points}
        if lines:
            drawn.append((title, lines))
    figure, axes = _new(len(drawn))
    for axis, (title, lines) in zip(axes.flat, drawn, strict=True):
        for label, points in lines.items():
            marker = "o" if len(points) == 1 else ""
            axis.plot([e for e, _ in points], [v for _, v in points], marker=marker, label=label)
        axis.legend(fontsize=8)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("epoch")
    return figure


def _recorded(content: Content, column: str, factor: float) -> list[tuple[int, float]]:
    found = zip(content.history, content.history.column(column), strict=True)
    return [(record.epoch + 1, factor * value) for record, value in found if value is not None]


def _equivariance(content: Content) -> Figure:
    groups = list(dict.fromkeys(e.group for e in content.errors))
    figure, axes = _new(len(groups))
    for axis, group in zip(axes.flat, groups, strict=True):
        mine = [e for e in content.errors if e.group == group]
        for field, marker in (("before", "o:"), ("after", "s-")):
            values = [getattr(e, field) for e in mine]
            shown = [math.nan if v is None else max(v, 1e-8) for v in values]
            axis.plot(range(1, len(mine) + 1), shown, marker, label=f"{field} training")
        axis.set_yscale("log")
        axis.set_title(f"equivariance error, {group}", fontsize=9)
        axis.set_xlabel("layer")
        axis.set_xticks(range(1, len(mine) + 1))
    axes[0, 0].legend(fontsize=8)
    return figure


def _filters(content: Content) -> Figure:
    """The largest filters of each path, one row a layer, coloured and scaled as on the page."""
    from matplotlib.colors import LinearSegmentedColormap

    ends = [tuple(c / 255 for c in colour) for colour in (NEGATIVE, (255, 255, 255), POSITIVE)]
    colours = LinearSegmentedColormap.from_list("signed", ends)
    layers = [(i, s) for i, s in enumerate(content.selection.layers, 1) if pictures_of(content, s)]
    paths = list(dict.fromkeys(f.path for f in content.filters))
    figure, axes = _new(len(paths), len(layers), width=4.0, height=1.0)
    for axis in axes.flat:
        axis.set_axis_off()
    for row, (number, layer) in enumerate(layers):
        for picture in pictures_of(content, layer):
            axis = axes[row, paths.index(picture.path)]
            scale = scale_of(content, layer, picture.kind) or 1.0
            tiles = _side_by_side(picture.filters)
            axis.imshow(tiles, cmap=colours, vmin=-scale, vmax=scale, interpolation="nearest")
            state = "" if is_alive(layer, picture) else " (dead)"
            size = f"largest {largest(picture):.2g}"
            title = f"{numbered(number, layer.layer)}, {shown(picture.path)}{state}: {size}"
            axis.set_title(title, fontsize=8)
    return figure


def _side_by_side(filters: FloatArray) -> FloatArray:
    """In one row, with a gap of one pixel between them."""
    height = filters.shape[1]
    gap = np.full((height, 1), np.nan)
    parts = [part for one in filters for part in (one, gap)]
    return np.concatenate(parts[:-1], axis=1)
