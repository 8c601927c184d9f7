"""From a trained network to a verdict on every layer."""

from __future__ import annotations

from groupella.evidence import Selection
from groupella.training import Fit

NATS = 5.0
NATS_PER_PARAMETER = 0.5
RULE = {"nats": NATS, "nats_per_parameter": NATS_PER_PARAMETER}


def decide(trained: Fit) -> Selection:
    """A path is alive when it is worth `NATS`, and `NATS_PER_PARAMETER` for each effective one."""
    return trained.selection(rule="evidence", **RULE)


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
