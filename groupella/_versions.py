"""Versions of everything that a result may depend on."""

from __future__ import annotations

import importlib.metadata
import platform


def versions() -> dict[str, str]:
    """Return the versions of everything that a result may depend on."""
    from groupella import __version__

    found = {"groupella": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "escnn"):
        found[name] = importlib.metadata.version(name)
    return found
