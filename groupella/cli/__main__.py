"""``python -m groupella.cli`` is the command ``groupella``."""

from __future__ import annotations

from .start import main

main()
