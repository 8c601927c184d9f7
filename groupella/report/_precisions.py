"""The prior precisions of every path over training, as they are drawn.

A path has one precision, or several where its tensors or lengthscales have priors of their own.
Where a path was taken out its precision goes to the upper bound, which is no finding of the
evidence and would leave no room for the others in a picture: its curve ends there instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from groupella.decide import LayerSelection, PathSelection

from ._content import Content


@dataclass(frozen=True)
class PrecisionCurve:
    """One precision by epochs, None where there is none; `out` is the epoch that took it out."""

    path: str
    alive: bool
    values: tuple[float | None, ...]
    out: int | None = None

    @property
    def is_constant(self) -> bool:
        return len({v for v in self.values if v is not None}) < 2 and self.out is None


def precision_curves(content: Content) -> dict[str, list[PrecisionCurve]]:
    """Layer name → curves of its paths, without those of which nothing was recorded."""
    return {
        layer.layer: [
            curve
            for path in layer.paths
            for name in _priors(layer, path)
            if (curve := _curve(content, path, name)) is not None
        ]
        for layer in content.selection.layers
    }


def _priors(layer: LayerSelection, path: PathSelection) -> tuple[str, ...]:
    """Selections that were saved before they named priors mean the one of the path."""
    return path.priors or (f"{layer.layer}/{path.path}" if layer.layer else path.path,)


def _curve(content: Content, path: PathSelection, name: str) -> PrecisionCurve | None:
    out = next((r.epoch for r in content.history if name in r.taken_out), None)
    values = tuple(
        None if out is not None and r.epoch >= out else (r.precisions or {}).get(name)
        for r in content.history
    )
    if all(v is None for v in values):
        return None
    return PrecisionCurve(path.path, path.alive, values, out)
