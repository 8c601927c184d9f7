"""Write the pages of the API reference from the docstrings, one page per public module.

Public is what a package's ``__init__`` exports, and what a module without a leading underscore
defines, unless a package above it already exports that. The command line is not part of it, and
what `groupella` itself offers is documented where it comes from.

Our docstrings are plain text with a little Markdown, not reStructuredText: `rst` translates them,
so that a star or a bar in a formula needs no escaping in the code.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import types
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = re.compile(
    r"groupella$|groupella\.cli\b|groupella\.experiments\.commands\b|.*\._|.*__main__$"
)
LISTS = ("Parameters", "Returns", "Yields", "Raises", "Warns", "Attributes")
ITEM = re.compile(r"(?P<term>[\w.*, ]{1,40}): (?P<text>.*)")
BULLET = re.compile(r"[*-] ")


def modules() -> Iterator[types.ModuleType]:
    """All public modules, packages before what is in them."""
    for part in ("groupella", "groups", "bases", "experiments"):
        for path in sorted((ROOT / part).rglob("*.py"), key=lambda path: path.parent / path.stem):
            names = path.relative_to(ROOT).with_suffix("").parts
            names = names if part == "groupella" else ("groupella", *names)
            name = ".".join(names).removesuffix(".__init__")
            if not LEFT_OUT.match(name):
                yield importlib.import_module(name)


def exported(module: types.ModuleType) -> list[str]:
    """The names that a package's ``__init__`` imports from its own files or lists in ``__all__``.

    Of a plain module: the names that it defines.
    """
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("__")]
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and hasattr(module, "__path__"):
            names += [alias.asname for alias in node.names if alias.asname]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_")]


def contents() -> dict[str, list[str]]:
    """The names that each page documents, by module."""
    pages: dict[str, list[str]] = {}
    for module in modules():
        above = [name for name in pages if module.__name__.startswith(f"{name}.")]
        known = {id(getattr(importlib.import_module(p), n)) for p in above for n in pages[p]}
        names = [n for n in exported(module) if id(getattr(module, n)) not in known]
        if names:
            pages[module.__name__] = sorted(names, key=str.lower)
    return pages


def page(module: str, names: list[str]) -> str:
    """The page of a module, in reStructuredText for autodoc."""
    lines = [module, "=" * len(module), "", f".. automodule:: {module}", ""]
    for name in names:
        value = getattr(importlib.import_module(module), name)
        if inspect.isclass(value):
            lines += [f".. autoclass:: {module}.{name}", "   :members:", ""]
        elif callable(value) and hasattr(value, "__name__"):
            lines += [f".. autofunction:: {module}.{name}", ""]
        else:
            text = " ".join(repr(value).split())
            shown = [f"   :value: {text}"] if len(text) < 80 else []
            kind = f"   :type: {type(value).__name__}"
            lines += [f".. py:data:: {module}.{name}", kind, *shown, ""]
    return "\n".join(lines)


def write(folder: Path) -> None:
    """Write all pages into a folder, and remove those of modules that no longer exist."""
    pages = {folder / f"{module}.rst": page(module, names) for module, names in contents().items()}
    for path in set(folder.glob("*.rst")) - set(pages):
        path.unlink()
    for path, text in pages.items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def rst(text: str) -> list[str]:
    """Translate a docstring, already dedented, into lines of reStructuredText."""
    lines: list[str] = []
    section = ""
    for block in re.split(r"\n(?:[ \t]*\n)+", text.strip("\n")):
        rows = block.split("\n")
        if len(rows) > 1 and re.fullmatch("-{3,}", rows[1]):
            section, rows = rows[0], rows[2:]
            lines += [f".. rubric:: {section}", ""]
        lines += [*_block(rows, section in LISTS), ""]
    return lines


def _block(rows: list[str], is_section: bool) -> list[str]:
    """One block without blank lines: definitions, literal text, bullets or a paragraph."""
    tops = [row for row in rows if not row.startswith(" ")]
    if is_section or (tops and rows[0] == tops[0] and all(map(ITEM.match, tops))):
        return _definitions(rows, is_section)
    if not tops or rows[0].startswith((">>>", "|")):
        return ["::", "", *(f"   {row}" for row in rows)]
    if all(map(BULLET.match, tops)) and rows[0] == tops[0]:
        items = re.split(r"\n[*-] ", "\n".join(rows)[2:])
        return [f"* {_escape(' '.join(item.split()))}" for item in items]
    end = next((i for i, row in enumerate(rows) if i and row.startswith("  ")), len(rows))
    after = ["", *_block(rows[end:], False)] if rows[end:] else []
    return [_escape(" ".join(row.strip() for row in rows[:end])), *after]


def _definitions(rows: list[str], is_section: bool) -> list[str]:
    """A definition list, from a numpydoc section or from lines ``name: meaning``."""
    lines: list[str] = []
    for row in rows:
        item = None if is_section else ITEM.match(row)
        if item:
            lines += ["", f"``{item['term']}``", f"   {_escape(item['text'])}"]
        elif row.startswith(" "):
            lines.append(f"   {_escape(row.strip())}")
        else:
            lines += ["", f"``{row}``"]
    return lines[1:] if lines[:1] == [""] else lines


def _escape(text: str) -> str:
    """Return text that reStructuredText shows as it is, with code in backticks."""
    shown = ""
    for i, part in enumerate(re.split(r"(``.+?``|`[^`]+`)", text)):
        if i % 2:
            shown += rf"\ ``{part.strip('` ')}``\ "
        else:
            shown += re.sub(r"([\\*_|`])", r"\\\1", part)
    shown = re.sub(r"::$", ":", shown.strip().removeprefix("\\ ").removesuffix("\\"))
    return re.sub(r"^(?=[^\w\s`\\])", r"\\", shown)
