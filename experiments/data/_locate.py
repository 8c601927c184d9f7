"""Finding a data set's files in a directory, and reading them with their checksums verified.

The files may lie loose, or inside a tar file that is read as a stream and never unpacked to disk.
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
from ._errors import DataError

# Larger than any member; what claims to be larger is not what it says it is.
_LARGEST = 300_000_000
_DAMAGED = (EOFError, OSError, tarfile.TarError, lzma.LZMAError, zlib.error)


@dataclass(frozen=True)
class Located:
    """Where a data set lies: its loose ``paths``, one per member, or one ``archive``."""

    files: FileSet
    paths: tuple[Path, ...] = ()
    archive: Path | None = None

    def fingerprint(self) -> str:
        """Changes when a file is moved, replaced or edited; does not read the files."""
        paths = (self.archive,) if self.archive else self.paths
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


def data_directory(given: str | os.PathLike[str] | None = None) -> Path | None:
    """The user's data directory: as given, else ``GROUPELLA_DATA``, else ``None``."""
    named = os.fspath(given) if given is not None else os.environ.get("GROUPELLA_DATA", "")
    if not named:
        return None
    path = Path(named).expanduser()
    if not path.is_dir():
        origin = "the data directory" if given is not None else "GROUPELLA_DATA"
        raise DataError(f"{origin} {str(path)!r} is not a directory")
    return path


def locate(files: FileSet, directory: Path, incomplete_raises: bool = True) -> Located | None:
    """The data set in ``directory``, or ``None``. A part of a set raises, unless told not to."""
    partial: DataError | None = None
    for folder in (directory / name for name in files.folders):
        if not folder.is_dir():
            continue
        found = [_loose(member, folder) for member in files.members]
        paths = tuple(path for path in found if path is not None)
        if len(paths) == len(files.members):
            return Located(files, paths)
        if paths and partial is None:
            names = [m.name for m, path in zip(files.members, found, strict=True) if path is None]
            partial = DataError(
                f"{files.name} in {str(folder)!r} is incomplete: missing {', '.join(names)}"
            )
        for path in sorted(folder.iterdir()):
            if re.fullmatch(files.archive, path.name.lower()) and path.is_file():
                return Located(files, archive=path)
    if partial is not None and incomplete_raises:
        raise partial
    return None


def _loose(member: Member, folder: Path) -> Path | None:
    return next((folder / name for name, _ in member.forms if (folder / name).is_file()), None)


def read_members(located: Located) -> Iterator[tuple[Member, bytes]]:
    """Every member with its content, verified; the first that is altered raises."""
    for member, check, content in _examine(located):
        if not check.ok:
            raise DataError(f"{check.problem}; replace it, or remove it to download it again")
        yield member, content


def check_members(located: Located) -> list[FileCheck]:
    """The state of every member; reads everything, raises nothing."""
    return [check for _, check, _ in _examine(located)]


def _examine(located: Located) -> Iterator[tuple[Member, FileCheck, bytes]]:
    if located.archive is not None:
        yield from _examine_archive(located.files, located.archive)
        return
    for member, path in zip(located.files.members, located.paths, strict=True):
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
