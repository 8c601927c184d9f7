"""The figures of a report as files, for papers and slides: PNG and SVG by matplotlib."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ._content import Content, FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")


def figures(content: Content) -> dict[str, Figure]:
    """Name → figure: selection, precisions, curves, equivariance and filters, where measured."""
    found = {}
    if content.selection.is_measured:
        found["selection"] = content.selection.figure()
    if len(content.history):
        if content.selection.is_measured:
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
    for axis in axes.flat[len(layers) :]:
        axis.set_visible(False)
    for axis, layer in zip(axes.flat, layers, strict=False):
        for path in layer.paths:
            key = f"{layer.layer}/{path.path}" if layer.layer else path.path
            values = [(r.precisions or {}).get(key, math.nan) for r in content.history]
            colour = f"C{names.index(path.path) % 10}"
            axis.plot(epochs, values, colour, ls="-" if path.alive else "--", label=path.path)
        axis.set_yscale("log")
        axis.set_title(f"{layer.layer}: {layer.verdict}", fontsize=9)
        axis.set_xlabel("epoch")
    axes[0, 0].set_ylabel("precision δ")
    axes[0, 0].legend(fontsize=8)
    return figure


def _curves(content: Content) -> Figure:
    figure, axes = _new(3)
    epochs = [r.epoch + 1 for r in content.history]
    updates = [(r.epoch + 1, r.log_evidence) for r in content.history if r.log_evidence is not None]
    axes[0, 0].plot([e for e, _ in updates], [v / content.selection.n_data for _, v in updates])
    panels = (("nll", "validation_nll", 1), ("accuracy", "validation_accuracy", 100))
    for axis, (training, test, factor) in zip(axes[0, 1:], panels, strict=True):
        for column, label in ((training, "training"), (test, "test")):
            values = content.history.column(column)
            if any(v is not None for v in values):
                numbers = [math.nan if v is None else factor * v for v in values]
                axis.plot(epochs, numbers, label=label)
        if axis.lines:
            axis.legend(fontsize=8)
    titles = ("log evidence, nats a datum", "negative log-likelihood", "accuracy, %")
    for axis, title in zip(axes.flat, titles, strict=True):
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("epoch")
    return figure


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
    """The largest filters of each path, one row a layer; each picture has its own scale."""
    layers = list(dict.fromkeys(f.layer for f in content.filters))
    paths = list(dict.fromkeys(f.path for f in content.filters))
    figure, axes = _new(len(paths), len(layers), width=4.0, height=1.0)
    for axis in axes.flat:
        axis.set_axis_off()
    for picture in content.filters:
        axis = axes[layers.index(picture.layer), paths.index(picture.path)]
        largest = float(np.abs(picture.filters).max(initial=0.0))
        scale = f"±{largest:.2g}" if largest else "all zero"
        shown = _side_by_side(picture.filters)
        axis.imshow(shown, cmap="RdBu", vmin=-largest, vmax=largest, interpolation="nearest")
        axis.set_title(f"{picture.layer} {picture.path}: {picture.kind}, {scale}", fontsize=8)
    return figure


def _side_by_side(filters: FloatArray) -> FloatArray:
    """In one row, with a gap of one pixel between them."""
    height = filters.shape[1]
    gap = np.full((height, 1), np.nan)
    parts = [part for one in filters for part in (one, gap)]
    return np.concatenate(parts[:-1], axis=1)
