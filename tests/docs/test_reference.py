"""The API reference has every public name, and shows docstrings as they were written."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("groupella", "groups", "bases", "experiments")
# The command line has pages of its own.
NOT_AN_API = ("groupella.cli", "groupella.experiments.commands")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("_reference", ROOT / "docs" / "_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = load()


@pytest.fixture(scope="module")
def pages() -> dict[str, list[str]]:
    found: dict[str, list[str]] = reference.contents()
    return found


def exports() -> dict[str, set[str]]:
    """What each package's ``__init__`` imports under a public name, read from its text."""
    found = {}
    for path in (path for part in PARTS for path in (ROOT / part).rglob("__init__.py")):
        names = path.parent.relative_to(ROOT).parts
        package = ".".join(names if names[0] == "groupella" else ("groupella", *names))
        tree = ast.parse(path.read_text("utf-8"))
        imported = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module]
        aliases = [a for n in imported if n.module != "__future__" for a in n.names]
        if not package.startswith(NOT_AN_API):
            found[package] = {a.asname or a.name for a in aliases}
    return found


def test_every_exported_name_is_in_the_reference(pages: dict[str, list[str]]) -> None:
    packages = exports()
    assert {"groupella.groups", "groupella.training", "groupella.nn.layer"} <= set(packages)
    missing = {
        f"{package}.{name}"
        for package, names in packages.items()
        for name in names - set(pages.get(package, ()))
        if not any(package.startswith(f"{above}.") and name in pages[above] for above in pages)
    }
    assert missing == set()


def test_every_public_class_and_function_has_a_docstring(pages: dict[str, list[str]]) -> None:
    bare = []
    for module, names in pages.items():
        for name in names:
            value = getattr(sys.modules[module], name)
            ours = getattr(value, "__module__", "").startswith("groupella")
            if ours and (inspect.isclass(value) or inspect.isfunction(value)):
                text = value.__doc__ or ""
                if not text or text.startswith(f"{name}("):  # what dataclass writes
                    bare.append(f"{module}.{name}")
    assert bare == []


def test_pages_are_written_and_those_of_the_past_removed(
    pages: dict[str, list[str]], tmp_path: Path
) -> None:
    (tmp_path / "groupella.gone.rst").touch()
    reference.write(tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == set(pages)
    page = (tmp_path / "groupella.training.rst").read_text("utf-8")
    assert page.startswith("groupella.training\n==================\n")
    assert ".. autofunction:: groupella.training.fit\n" in page
    assert ".. autoclass:: groupella.training.Settings\n   :members:\n" in page


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sum |x| over *all*\nrows of x_.", [r"Sum \|x\| over \*all\* rows of x\_.", ""]),
        ("Use `fit` or ``x = 1``.", [r"Use \ ``fit``\  or \ ``x = 1``\ .", ""]),
        ("As in::\n\n    a * b", ["As in:", "", "::", "", "       a * b", ""]),
        ("* one\n  more\n* two", ["* one more", "* two", ""]),
        ("x: an `image`\n    of a cat\ny: its label",
         ["``x``", r"   an \ ``image``", "   of a cat", "", "``y``", "   its label", ""]),
        ("Parameters\n----------\nx : Tensor\n    An image.\n\nReturns\n-------\nTensor\n    Sum.",
         [".. rubric:: Parameters", "", "``x : Tensor``", "   An image.", "",
          ".. rubric:: Returns", "", "``Tensor``", "   Sum.", ""]),
    ],
)  # fmt: skip
def test_docstrings_become_restructured_text(text: str, expected: list[str]) -> None:
    assert reference.rst(text) == expected
