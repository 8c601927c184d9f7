"""Parse what users type: groups, durations, and objects in their own files."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from inspect import ismodule
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupella.data import Axes
    from groupella.groups import GroupSet, Symmetry

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


class ArgumentError(ValueError):
    """An argument cannot be understood; the message says what was expected."""


def complete_groups(incomplete: str) -> list[str]:
    """Return names of groups that complete a list such as "z2,p"."""
    from groupella.groups import group_names

    head, comma, last = incomplete.rpartition(",")
    return [f"{head}{comma}{name}" for name in group_names() if name.startswith(last)]


def group_set(text: str, free: bool = True, points: int | None = None) -> GroupSet:
    """Return the groups that "z2,p4,flips(0)" names, or NAME in "file.py:NAME".

    NAME is a GroupSet, one or several symmetries, or a function that makes them. With `free` the
    trivial group is added if it is missing, except to a GroupSet. `points` is the number of points
    of groups that are named without one, such as "permutations".
    """
    from groupella.groups import GroupSet, Symmetry, split_names, trivial

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
        chosen = [named_group(name, points) for name in split_names(text)]
        if not chosen:
            raise ArgumentError("name at least one group, such as --groups z2,p4")
    if free and not any(m.is_trivial for m in chosen):
        chosen.insert(0, trivial())
    try:
        return GroupSet(*chosen)
    except ValueError as error:
        raise ArgumentError(f"--groups {text}: {error}") from error


def axes(text: str) -> Axes:
    """Return the axes of the samples that these groups act on; see `groupella.data.axes_of`."""
    from groupella.data import axes_of
    from groupella.groups import needs_points, split_names

    if ".py:" not in text and any(map(needs_points, split_names(text))):
        return "points"
    return axes_of(group_set(text))


def named_group(name: str, points: int | None = None) -> Symmetry:
    """Return the group of that name; see `groupella.groups.named_group`."""
    from groupella import groups

    try:
        return groups.named_group(name, points)
    except ValueError as error:
        if name.endswith(".py"):
            raise ArgumentError(f"{name!r} names no object in it; write {name}:NAME") from None
        raise ArgumentError(f"{error}, or your own: my_groups.py:GROUPS") from error


def one_group(text: str) -> Symmetry:
    """Return the group of that name; or "file.py:NAME", a symmetry or a function that makes one."""
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
    """Return the object NAME of "file.py:NAME". A file is executed again if it changes."""
    file, _, name = text.rpartition(":")
    path = Path(file).expanduser()
    if not file:
        raise ArgumentError(f"{text!r} names no object in the file; write file.py:NAME")
    if not path.is_file():
        raise ArgumentError(f"there is no file {file!r}; write file.py:NAME")
    try:
        module = _module(path.resolve(), path.read_bytes())
    except (Exception, SystemExit) as error:
        raise ArgumentError(f"{path} fails: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        public = [n for n, o in vars(module).items() if not n.startswith("_") and not ismodule(o)]
        raise ArgumentError(f"{path} has no {name!r}; it has {', '.join(public) or 'nothing'}")
    return getattr(module, name)


def call(maker: Any, name: str) -> Any:
    """Return the result of a user's function, which takes no arguments."""
    try:
        return maker()
    except (Exception, SystemExit) as error:
        hint = "; it is called without arguments" if isinstance(error, TypeError) else ""
        raise ArgumentError(f"{name}() fails: {type(error).__name__}: {error}{hint}") from error


@lru_cache
def _module(file: Path, content: bytes) -> ModuleType:
    """Return the module in a file, which may import its neighbours, also inside functions."""
    # A unique name: it must not hide another module, and dataclasses look theirs up.
    name = f"_groupella_user_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    module = ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module
    folder = str(file.parent)
    sys.path.insert(0, folder)
    try:
        exec(compile(content, str(file), "exec", dont_inherit=True), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(folder)
    # For what its functions import later: at the end, where it hides no other module.
    if folder not in sys.path:
        sys.path.append(folder)
    return module


def seconds(text: str) -> float:
    """Return the seconds in "5m", "90s", "1h30m", or a plain number of seconds."""
    plain = text.strip().lower().replace(" ", "")
    try:
        total = float(plain)
    except ValueError:
        match = _DURATION.fullmatch(plain)
        if match is None or not plain:
            raise ArgumentError(
                f"expected a duration such as 5m, 90s or 1h30m, got {text!r}"
            ) from None
        hours, minutes, rest = (float(part or 0) for part in match.groups())
        total = 3600 * hours + 60 * minutes + rest
    if not 0 < total < float("inf"):
        raise ArgumentError(f"a duration must be positive, got {text!r}")
    return total
