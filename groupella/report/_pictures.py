"""Pictures of a report: learned filters as coloured pixels, and PNG files inside the page."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from groupella.decide import LayerSelection, shown

from ._content import FilterPicture, FloatArray, ReportContent

POSITIVE, NEGATIVE = (214, 94, 0), (0, 114, 178)  # also distinct to colour-blind readers
FAINT = 0.02  # of the scale: a filter that is weaker everywhere would be a blank box
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class FilterStrip:
    """The largest filters of one path: `pixels` has an RGBA picture of each that can be seen."""

    path: str
    kind: str
    alive: bool
    largest: float
    pixels: tuple[Pixels, ...]

    @property
    def title(self) -> str:
        state = "" if self.alive else " (dead)"
        seen = "" if self.pixels else ": too small to see"
        return f"{shown(self.path)}{state}, largest weight {self.largest:.2g}{seen}"


def filter_rows(content: ReportContent) -> dict[int, list[FilterStrip]]:
    """Return layer number → filters of its paths, on one scale per layer and kind."""
    found = {}
    for number, layer in enumerate(content.selection.layers, 1):
        mine = [f for f in content.filters if f.layer == layer.layer]
        if mine:
            found[number] = [_strip(f, layer, mine) for f in mine]
    return found


def signed_pixels(values: FloatArray, scale: float) -> Pixels:
    """Return RGBA: positive orange, negative blue, 0 transparent, opaque where |value| ≥ scale."""
    strength = np.clip(np.abs(values) / scale, 0.0, 1.0) if scale > 0 else np.zeros(values.shape)
    pixels = np.empty((*values.shape, 4), dtype=np.uint8)
    pixels[..., :3] = np.where((values >= 0)[..., None], POSITIVE, NEGATIVE)
    pixels[..., 3] = np.round(255 * strength)
    return pixels


def image_pixels(values: FloatArray) -> Pixels:
    """Return grey (height, width) or coloured (height, width, 3) values from 0 to 1 as bytes."""
    return np.asarray(np.round(255 * np.clip(values, 0.0, 1.0)), dtype=np.uint8)


def png(pixels: Pixels) -> str:
    """Return a PNG file as a data URI."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


def _strip(
    picture: FilterPicture, layer: LayerSelection, others: list[FilterPicture]
) -> FilterStrip:
    alive = layer.live if layer.paths else [f.path for f in others]  # not measured is not dead
    alike = [_largest(f) for f in others if f.kind == picture.kind and f.path in alive]
    scale = max(alike or map(_largest, others))
    seen = [values for values in picture.filters if np.abs(values).max() > FAINT * scale]
    pixels = tuple(signed_pixels(values, scale) for values in seen)
    return FilterStrip(picture.path, picture.kind, picture.path in alive, _largest(picture), pixels)


def _largest(picture: FilterPicture) -> float:
    return float(np.abs(picture.filters).max(initial=0.0))
