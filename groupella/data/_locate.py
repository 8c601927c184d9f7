"""Finding a data set's files in a directory, and reading them with their checksums verified.

The files may lie loose, or inside a tar file that is read as a stream and never unpacked to disk. A
directory may hold several copies, and a damaged one must not hide a sound one: ``locate`` gives
them all, and whoever reads takes the first that is sound.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ._catalogue import FileSet, Member
from ._errors import DataArgumentError, DataError

# Larger than any member; what claims to be larger is not what it says it is.
_LARGEST = 300_000_000
_DAMAGED = (EOFError, OSError, tarfile.TarError, lzma.LZMAError, zlib.error)


@dataclass(frozen=True)
class Located:
    """A copy in ``folder``: loose, with a path (or ``None``) per member, or one ``archive``."""

    files: FileSet
    folder: Path
    paths: tuple[Path | None, ...] = ()
    archive: Path | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """The members that have no file; what an archive lacks shows only when it is read."""
        if self.archive is not None:
            return ()
        members = zip(self.files.members, self.paths, strict=True)
        return tuple(member.name for member, path in members if path is None)

    def fingerprint(self) -> str:
        """Changes when a file is moved, replaced or edited; does not read the files."""
        paths = (self.archive,) if self.archive else [path for path in self.paths if path]
        stats = [(str(path.resolve()), path.stat()) for path in paths]
        parts = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True)
class FileCheck:
    """The state of one member: ``problem`` is empty when its checksum is the known one."""

    member: str
    path: Path
    problem: str

    @property
    def ok(self) -> bool:
        return not self.problem


def named_directory(given: str | os.PathLike[str] | None = None) -> Path | None:
    """The user's data directory: as given, else ``GROUPELLA_DATA``, else ``None``."""
    named = os.fspath(given) if given is not None else os.environ.get("GROUPELLA_DATA", "")
    return Path(named).expanduser() if named else None


def data_directory(given: str | os.PathLike[str] | None = None) -> Path | None:
    """``named_directory``, which must exist."""
    path = named_directory(given)
    if path is not None and not path.is_dir():
        origin = "the data directory" if given is not None else "GROUPELLA_DATA"
        raise DataArgumentError(f"{origin} {str(path)!r} is not a directory")
    return path


def locate(files: FileSet, directory: Path) -> list[Located]:
    """The copies in ``directory``, the preferred first and those with missing files last."""
    copies = []
    for folder in (directory / name for name in files.folders):
        if not folder.is_dir():
            continue
        paths = tuple(_loose(member, folder) for member in files.members)
        if any(paths):
            copies.append(Located(files, folder, paths))
        for path in sorted(folder.iterdir()):
            if re.fullmatch(files.archive, path.name.lower()) and path.is_file():
                copies.append(Located(files, folder, archive=path))
    return sorted(copies, key=lambda copy: len(copy.missing) > 0)


def _loose(member: Member, folder: Path) -> Path | None:
    return next((folder / name for name, _ in member.forms if (folder / name).is_file()), None)


def read_members(located: Located) -> Iterator[tuple[Member, bytes]]:
    """Every member with its content, verified; the first that is missing or altered raises."""
    if located.missing:
        raise DataError(
            f"{located.files.name} in {str(located.folder)!r} is incomplete: missing "
            f"{', '.join(located.missing)}"
        )
    for member, check, content in _examine(located):
        if not check.ok:
            raise DataError(check.problem)
        yield member, content


def check_members(located: Located) -> list[FileCheck]:
    """The state of every member; reads everything, raises nothing."""
    return [check for _, check, _ in _examine(located)]


def _examine(located: Located) -> Iterator[tuple[Member, FileCheck, bytes]]:
    if located.archive is not None:
        yield from _examine_archive(located.files, located.archive)
        return
    for member, path in zip(located.files.members, located.paths, strict=True):
        if path is None:
            where = located.folder / member.name
            yield member, FileCheck(member.name, where, f"{str(where)!r} is missing"), b""
            continue
        try:
            content, problem = path.read_bytes(), ""
        except OSError as error:
            content, problem = b"", f"{str(path)!r} cannot be read: {error.strerror}"
        problem = problem or _problem(member, path.name, content, repr(str(path)))
        yield member, FileCheck(member.name, path, problem), content


def _examine_archive(files: FileSet, archive: Path) -> Iterator[tuple[Member, FileCheck, bytes]]:
    wanted = {name: member for member in files.members for name, _ in member.forms}
    missing = {member.name for member in files.members}
    damage = ""
    try:
        with tarfile.open(archive, "r|*") as tar:
            for entry in tar:
                name = entry.name.rsplit("/", 1)[-1]
                member = wanted.get(name)
                if member is None or member.name not in missing or not entry.isfile():
                    continue
                stream = tar.extractfile(entry)
                content = stream.read() if stream and entry.size <= _LARGEST else b""
                where = f"{name!r} in {str(archive)!r}"
                missing.discard(member.name)
                problem = _problem(member, name, content, where)
                yield member, FileCheck(member.name, archive, problem), content
    except _DAMAGED as error:
        damage = f" ({str(error) or type(error).__name__})"
    for member in files.members:
        if member.name in missing:
            problem = f"{str(archive)!r} is truncated or damaged: {member.name!r} is not in it"
            yield member, FileCheck(member.name, archive, problem + damage), b""


def _problem(member: Member, name: str, content: bytes, where: str) -> str:
    expected = dict(member.forms)[name]
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found == expected:
        return ""
    return f"{where} is truncated or altered: its MD5 is {found}, not {expected}"
