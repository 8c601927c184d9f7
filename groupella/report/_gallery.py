"""The report's pictures: learned filters of each path, and example images."""

from __future__ import annotations

from html import escape

import numpy as np

from groupella.decide import LayerSelection

from ._content import Content, FilterPicture
from ._pictures import image, signed
from ._words import shown


def filters(content: Content) -> str:
    """Every layer's, on one scale for each kind."""
    if not content.filters:
        return ""
    figures = []
    for number, layer in enumerate(content.selection.layers, 1):
        mine = pictures_of(content, layer)
        if not mine:
            continue
        strips = []
        for picture in mine:
            alive = is_alive(layer, picture)
            scale = scale_of(content, layer, picture.kind)
            images = "".join(
                f'<img alt="filter {i} of {escape(shown(picture.path))}" src="{signed(f, scale)}">'
                for i, f in enumerate(picture.filters, 1)
            )
            state = "" if alive else " (dead)"
            strips.append(
                f'<div><span class="quiet">{escape(shown(picture.path))}{state}, largest weight '
                f'{largest(picture):.2g}</span><div class="strip {picture.kind}'
                f'{"" if alive else " faded"}">{images}</div></div>'
            )
        figures.append(f"<figure><h4>layer {number}</h4>{''.join(strips)}</figure>")
    return (
        "<h3>Learned filters</h3>"
        '<p class="quiet">The largest of each path: positive orange, negative blue, on one scale '
        "a layer, so that paths that are switched off are blank. Paths without shifts show maps "
        f'over the whole image.</p><div class="filters">{"".join(figures)}</div>'
    )


def examples(content: Content) -> str:
    """Images with their labels."""
    if not content.examples:
        return ""
    figures = "".join(
        f'<figure><img alt="{escape(e.label)}" src="{image(e.pixels)}">'
        f"<figcaption>{escape(e.label)}</figcaption></figure>"
        for e in content.examples
    )
    return (
        '<h3>Example images</h3><p class="quiet">Training images with their labels.</p>'
        f'<div class="examples">{figures}</div>'
    )


def pictures_of(content: Content, layer: LayerSelection) -> list[FilterPicture]:
    return [f for f in content.filters if f.layer == layer.layer]


def is_alive(layer: LayerSelection, picture: FilterPicture) -> bool:
    """Where nothing was measured, nothing is called dead."""
    return picture.path in layer.live or not layer.paths


def largest(picture: FilterPicture) -> float:
    return float(np.abs(picture.filters).max(initial=0.0))


def scale_of(content: Content, layer: LayerSelection, kind: str) -> float:
    """The largest weight of a layer's live paths of that kind, or of any where all are dead."""
    mine = pictures_of(content, layer)
    alike = [largest(p) for p in mine if p.kind == kind and is_alive(layer, p)]
    return max(alike or map(largest, mine), default=0.0)
