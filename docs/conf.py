"""How Sphinx builds these pages: ``make docs``."""

from __future__ import annotations

import importlib.metadata

project = "groupella"
author = "The groupella authors"
release = importlib.metadata.version("groupella")

extensions = ["myst_parser", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"groupella {release}"
html_show_copyright = False
