"""What decided on every path, for the record."""

from __future__ import annotations

from groupella.evidence import Selection


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
