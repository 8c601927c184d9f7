"""From a trained network to a verdict on every layer, and what decided on it for the record."""

from __future__ import annotations

from groupella.decide import Rule, Selection
from groupella.training import Fit

# For the data part, where doubtful paths are not settled: networks are never quite at their MAP
# weights and their curvature is sampled, so what a path is worth is known to some ten nats only.
NATS = 20.0


def decided(trained: Fit, nats: float = NATS) -> Selection:
    """A path is alive when removing it costs `nats` of log evidence or more."""
    return trained.selection(rule=Rule(nats=nats))


def paths_of(found: Selection) -> dict[str, dict[str, dict[str, float]]]:
    """layer → path → what decided on it."""
    return {
        layer.layer: {
            p.path: {
                "removal": round(p.removal, 3),
                "gamma": round(p.effective_parameters, 3),
                "relative": round(p.relative, 5),
                "precision": float(f"{p.precision:.4g}"),
                "squared_norm": float(f"{p.squared_norm:.4g}"),
            }
            for p in layer.paths
        }
        for layer in found.layers
    }
