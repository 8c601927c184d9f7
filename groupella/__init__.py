"""Networks that learn which symmetries they should have."""

from __future__ import annotations

import importlib.metadata

__version__ = importlib.metadata.version("groupella")

__all__ = ["__version__"]
