"""Lists the packages to ship; everything else stands in pyproject.toml.

``groups/``, ``bases/`` and ``experiments/`` stand at the top of the repository and install inside
``groupella``. setuptools can map them (``package-dir``) but not find them there, hence these lines.
"""

from setuptools import find_packages, setup

TOP = ("groupella", "groups", "bases", "experiments")

found = find_packages(include=[pattern for top in TOP for pattern in (top, f"{top}.*")])
setup(packages=[p if p.split(".")[0] == "groupella" else f"groupella.{p}" for p in found])
