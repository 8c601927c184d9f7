"""The street is one-way: groups → bases → groupella → experiments; and escnn has one gate.

Inside `groupella/` the rooms are in an order too, and no room reaches into another's private files.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STREET = ("groups", "bases", "groupella", "experiments")
MAPPED = {"groupella.groups": "groups", "groupella.bases": "bases"}
MAPPED["groupella.experiments"] = "experiments"
# Each room imports only from those before it.
ROOMS = (
    "nn",
    "networks",
    "curvature",
    "evidence",
    "decide",
    "harden",
    "training",
    "data",
    "testing",
    "report",
    "answers",
    "runs",
    "cli",
)
FILES = [path for part in STREET for path in sorted((ROOT / part).rglob("*.py"))]


def name_of(path: Path) -> str:
    """The dotted name under which a file is imported once installed; a package ends in .__init__"""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "groupella" else ("groupella", *parts))


def imports(path: Path, name: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything imported, at the top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = name.split(".")[: -node.level] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{stem}.{alias.name}") for alias in node.names)


def part_of(module: str) -> str | None:
    """The part of the street that a dotted name belongs to."""
    for prefix, part in MAPPED.items():
        if f"{module}.".startswith(f"{prefix}."):
            return part
    return "groupella" if module.split(".")[0] == "groupella" else None


def room_of(module: str) -> str | None:
    """The room of `groupella/` that a dotted name belongs to; None for what all may use."""
    names = module.split(".")
    if names[0] != "groupella" or len(names) < 2:
        return None
    return names[1] if names[1] in (*ROOMS, "groups", "bases", "experiments") else None


def private_part(module: str) -> str | None:
    """The first name of a dotted name that begins with an underscore, dunders apart."""
    return next((n for n in module.split(".") if n.startswith("_") and not n.endswith("__")), None)


def offences(path: Path, name: str) -> Iterator[str]:
    own = part_of(name)
    assert own is not None
    here = room_of(name)
    for line, module in imports(path, name):
        there = room_of(module)
        if here in ROOMS and there in ROOMS and ROOMS.index(there) > ROOMS.index(here):
            yield f"{path.name}:{line}: {here} imports {module}"
        if there is not None and there != here and private_part(module):
            yield f"{path.name}:{line}: reaches into {there} for {module}"
        part = part_of(module)
        if part is not None and STREET.index(part) > STREET.index(own):
            yield f"{path.name}:{line}: {own} imports {module}"
        if own in ("groups", "bases") and f"{module}.".startswith("torch.nn."):
            yield f"{path.name}:{line}: {own} imports {module}"
        if module.split(".")[0] == "escnn":
            yield f"{path.name}:{line}: imports {module}; escnn comes through groups/gate.py"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    assert list(offences(path, name_of(path))) == []


@pytest.mark.parametrize("path", sorted(ROOT.glob("tests/**/*.py")), ids=lambda p: p.name)
def test_tests_take_escnn_through_the_gate_too(path: Path) -> None:
    modules = [module for _, module in imports(path, "tests")]
    assert not [module for module in modules if module.split(".")[0] == "escnn"]


@pytest.mark.parametrize(
    ("name", "code", "offence"),
    [
        ("groupella.groups.x", "import groupella.bases", True),
        ("groupella.groups.x", "from ..bases import kernel_basis", True),
        ("groupella.groups.x", "from .. import experiments", True),
        ("groupella.bases.x", "from groupella.groups import Lattice", False),
        ("groupella.bases.x", "from groupella import nn", True),
        ("groupella.bases.x.__init__", "from ..groups import Lattice", False),
        ("groupella.nn.paths.x", "from ..bases import kernel_basis", False),
        ("groupella.nn.paths.x", "def f():\n    import groupella.data", True),
        ("groupella.experiments.x", "import groupella.nn.layer, torch.nn", False),
        ("groupella.groups.x", "import torch", False),
        ("groupella.groups.x", "from torch import nn", True),
        ("groupella.bases.x", "import torch.nn.functional as F", True),
        ("groupella.nn.layer", "import escnn.nn", True),
        ("groupella.nn.layer", "from escnn import group", True),
    ],
)
def test_the_reader_of_imports_knows_right_from_wrong(
    tmp_path: Path, name: str, code: str, offence: bool
) -> None:
    path = tmp_path / "module.py"
    path.write_text(code)
    assert bool(list(offences(path, name))) == offence


def test_importing_groupella_costs_at_most_a_second_on_top_of_torch() -> None:
    code = (
        "import time, torch\n"
        "start = time.process_time()\n"
        "import groupella, groupella.groups, groupella.bases\n"
        "print(time.process_time() - start)"
    )
    # Other work on the machine only adds to it.
    times = (float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5))
    assert any(seconds < 1 for seconds in times)
