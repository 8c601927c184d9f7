"""Sphinx configuration: ``make docs`` builds these pages."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import _reference  # noqa: E402

project = "groupella"
author = "The groupella authors"
release = importlib.metadata.version("groupella")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = f"groupella {release}"
html_show_copyright = False


def _translate(app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    lines[:] = _reference.rst("\n".join(lines)) if any(lines) else []


def setup(app: Any) -> None:
    """Write the reference before Sphinx reads the pages, and translate the docstrings."""
    _reference.write(HERE / "reference")
    app.connect("autodoc-process-docstring", _translate)
