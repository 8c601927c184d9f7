"""What people type: groups, durations, and objects in their own files."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterable
from inspect import ismodule
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupella.groups import GroupSet, Symmetry

NAMED = (
    "trivial",
    "z2",
    "p2",
    "p4",
    "p4m",
    "flips",
    "pmm",
    "cmm",
    "cm",
    "c2",
    "c4",
    "d2",
    "d4",
    "mirror",
    "diagonal",
    "z1",
    "line_reflections",
    "z3",
    "octahedral",
    "o",
    "oh",
    "axial2",
    "axial4",
    "inversion",
    "p-1",
)
# Names that are not those of a function, and what is said in parentheses: flips(0), cm(anti).
_MADE: dict[str, tuple[str, tuple[Any, ...]]] = {
    "z1": ("translations", (1,)),
    "z3": ("translations", (3,)),
    "o": ("octahedral_point", ()),
    "oh": ("octahedral_point", (True,)),
    "axial2": ("axial", (2,)),
    "axial4": ("axial", (4,)),
    "p-1": ("inversion", (True,)),
}
_WORDS: dict[str, dict[str, Any]] = {
    "anti": {"anti": True},
    "diagonal": {"diagonal": True},
    "mirrors": {"mirrors": True},
    "point": {"translations": False},
    **{f"dim={dim}": {"dim": dim} for dim in (1, 2, 3)},
}
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


class ArgumentError(ValueError):
    """Something on the command line cannot be understood; the message says what was expected."""


def complete_groups(incomplete: str) -> list[str]:
    """Names of groups that continue a list such as "z2,p"."""
    head, comma, last = incomplete.rpartition(",")
    return [f"{head}{comma}{name}" for name in NAMED if name.startswith(last)]


def group_set(text: str, free: bool = True) -> GroupSet:
    """From names, "z2,p4,flips(0)", or from a file, "file.py:NAME".

    NAME is a GroupSet, symmetries, or a function that makes them. With `free` the trivial group is
    added where it is missing, except to a GroupSet.
    """
    from groupella.groups import GroupSet, Symmetry, trivial

    if ".py:" in text:
        found = from_file(text)
        if callable(found) and not isinstance(found, Symmetry | GroupSet):
            found = call(found, text)
        if isinstance(found, GroupSet):
            return found
        members = [found] if isinstance(found, Symmetry) else found
        if not isinstance(members, Iterable):
            raise ArgumentError(f"{text} is {type(found).__name__}, not a GroupSet or symmetries")
        chosen = list(members)
        if not chosen:
            raise ArgumentError(f"{text} is empty: it must hold at least one symmetry")
        if not all(isinstance(m, Symmetry) for m in chosen):
            raise ArgumentError(f"{text} must hold symmetries (groupella.groups.Symmetry)")
    else:
        chosen = [named_group(name) for name in re.split(r",(?![^(]*\))", text) if name.strip()]
        if not chosen:
            raise ArgumentError("name at least one group, such as --groups z2,p4")
    if free and not any(m.is_trivial for m in chosen):
        chosen.insert(0, trivial())
    try:
        return GroupSet(*chosen)
    except ValueError as error:
        raise ArgumentError(f"--groups {text}: {error}") from error


def named_group(name: str) -> Symmetry:
    """A group by the catalogue's name for it: "p4", "flips(0)", "cm(anti)", "z3"; or "none"."""
    from groupella import groups

    text = name.strip()
    stem, opened, inside = text.partition("(")
    stem = "trivial" if stem == "none" else stem
    if sized := re.fullmatch(r"(s|permutations|cyclic)(\d*)", stem):
        call = "cyclic" if sized[1] == "cyclic" else "permutations"
        number = sized[2] or "5"
        raise ArgumentError(
            f"the group {text!r} acts on a given number of points, not on images: write "
            f"GROUPS = [{call}({number})] into a file and give my_groups.py:GROUPS"
        )
    if stem not in NAMED:
        raise ArgumentError(
            f"no group {text!r}; known are none, {', '.join(NAMED[1:])}, or your own: "
            "my_groups.py:GROUPS"
        )
    maker, given = _MADE.get(stem, (stem, ()))
    numbers: list[int] = []
    options: dict[str, Any] = {}
    try:
        for part in inside.removesuffix(")").split(",") if opened else ():
            word = part.replace(" ", "")
            if word in _WORDS:
                options |= _WORDS[word]
            else:
                numbers.append(int(word))
        made: Symmetry = getattr(groups, maker)(*given, *numbers, **options)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"no group {text!r}: {error}") from error
    return made


def one_group(text: str) -> Symmetry:
    """A single group: by its name, or "file.py:NAME", a symmetry or a function that makes one."""
    from groupella.groups import Symmetry

    if ".py:" not in text:
        return named_group(text)
    found = from_file(text)
    if callable(found) and not isinstance(found, Symmetry):
        found = call(found, text)
    if not isinstance(found, Symmetry):
        raise ArgumentError(f"{text} is {type(found).__name__}, not a symmetry")
    return found


def from_file(text: str) -> Any:
    """The object NAME of "file.py:NAME"."""
    file, _, name = text.rpartition(":")
    path = Path(file).expanduser()
    if not file:
        raise ArgumentError(f"{text!r} names no object in the file; write file.py:NAME")
    if not path.is_file():
        raise ArgumentError(f"there is no file {file!r}; write file.py:NAME")
    module = _module(path.resolve(), path)
    if not hasattr(module, name):
        public = [n for n, o in vars(module).items() if not n.startswith("_") and not ismodule(o)]
        raise ArgumentError(f"{path} has no {name!r}; it has {', '.join(public) or 'nothing'}")
    return getattr(module, name)


def call(maker: Any, name: str) -> Any:
    """What a user's function makes; it takes no arguments."""
    try:
        return maker()
    except (Exception, SystemExit) as error:
        hint = "; it is called without arguments" if isinstance(error, TypeError) else ""
        raise ArgumentError(f"{name}() fails: {type(error).__name__}: {error}{hint}") from error


def _module(file: Path, shown: Path) -> ModuleType:
    """The module in a file, which may import what lies beside it, also later on."""
    # A name of its own: it is to hide no other module, and dataclasses look theirs up.
    name = f"_groupella_user_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"{shown} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(file.parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ArgumentError(f"{shown} fails: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
    # For what its functions import later: at the end, where it hides no module of others.
    if folder not in sys.path:
        sys.path.append(folder)
    return module


def seconds(text: str) -> float:
    """From "5m", "90s", "1h30m", or a number of seconds."""
    plain = text.strip().lower().replace(" ", "")
    try:
        total = float(plain)
    except ValueError:
        match = _DURATION.fullmatch(plain)
        if match is None or not plain:
            raise ArgumentError(f"a duration is such as 5m, 90s or 1h30m, got {text!r}") from None
        hours, minutes, rest = (float(part or 0) for part in match.groups())
        total = 3600 * hours + 60 * minutes + rest
    if not 0 < total < float("inf"):
        raise ArgumentError(f"a duration must be positive, got {text!r}")
    return total
