"""Copies of a public data set on this machine: find them, and read their files with checksums.

A copy is a folder of loose files, or a tar archive, which is read as a stream and never unpacked to
disk. A directory may hold several copies, and a damaged one must not hide a sound one: `locate`
returns all, and readers take the first that is sound.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._catalogue import dataset
from ._errors import DataError

# Larger than any file of a data set: an archive member that claims more is not read.
_LARGEST = 300_000_000
_DAMAGED = (EOFError, OSError, tarfile.TarError, lzma.LZMAError, zlib.error)
_TAR = r"\.(tar|tar\.gz|tgz|tar\.xz|txz|tar\.bz2)"


@dataclass(frozen=True)
class FileCheck:
    """The state of one file of a data set; `problem` is empty if its checksum is right."""

    member: str
    path: Path
    problem: str

    @property
    def ok(self) -> bool:
        return not self.problem


@dataclass(frozen=True)
class Copy:
    """A copy of the data set `name`: `place` is an archive, or a folder with files at `paths`."""

    name: str
    place: Path
    paths: dict[str, Path]
    is_archive: bool = False

    @property
    def missing(self) -> list[str]:
        """Files that are not in the folder; those missing from an archive show when it is read."""
        return (
            [] if self.is_archive else [f for f in dataset(self.name).files if f not in self.paths]
        )

    def fingerprint(self) -> str:
        """A digest that changes when a file is moved, replaced or edited; files are not read."""
        paths = [self.place] if self.is_archive else self.paths.values()
        stats = [(str(path.resolve()), path.stat()) for path in paths]
        parts = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def check(self) -> list[FileCheck]:
        """The state of every file. Reads all of them and raises nothing."""
        return [check for check, _ in self._contents()]

    def decode(self) -> list[Any]:
        """Every file, decoded; raises at the first that is missing or altered."""
        if self.missing:
            missing = ", ".join(self.missing)
            raise DataError(f"{self.name} in {str(self.place)!r} is incomplete: missing {missing}")
        known, decoded = dataset(self.name), {}
        for check, content in self._contents():
            if not check.ok:
                raise DataError(check.problem)
            decoded[check.member] = known.parse(content, check.member)
        return [decoded[file] for file in known.files]

    def _contents(self) -> Iterator[tuple[FileCheck, bytes]]:
        return self._archived() if self.is_archive else self._loose()

    def _loose(self) -> Iterator[tuple[FileCheck, bytes]]:
        for file, forms in dataset(self.name).files.items():
            path, content = self.paths.get(file, self.place / file), b""
            try:
                content = path.read_bytes()
                problem = _problem(content, forms[path.name], repr(str(path)))
            except FileNotFoundError:
                problem = f"{str(path)!r} is missing"
            except OSError as error:
                problem = f"{str(path)!r} cannot be read: {error.strerror}"
            yield FileCheck(file, path, problem), content

    def _archived(self) -> Iterator[tuple[FileCheck, bytes]]:
        files = dataset(self.name).files
        wanted = {form: file for file, forms in files.items() for form in forms}
        missing, damage = dict.fromkeys(files), ""
        try:
            with tarfile.open(self.place, "r|*") as tar:
                for entry in tar:
                    form = entry.name.rsplit("/", 1)[-1]
                    file = wanted.get(form)
                    if file not in missing or not entry.isfile():
                        continue
                    stream = tar.extractfile(entry)
                    content = stream.read() if stream and entry.size <= _LARGEST else b""
                    del missing[file]
                    where = f"{form!r} in {str(self.place)!r}"
                    problem = _problem(content, files[file][form], where)
                    yield FileCheck(file, self.place, problem), content
        except _DAMAGED as error:
            damage = f" ({str(error) or type(error).__name__})"
        for file in missing:
            problem = f"{str(self.place)!r} is truncated or damaged: {file!r} is not in it{damage}"
            yield FileCheck(file, self.place, problem), b""


def locate(name: str, directory: Path) -> list[Copy]:
    """The copies in a directory, the preferred one first, those with missing files last."""
    known, copies = dataset(name), []
    for folder in (directory / inside for inside in known.folders):
        if not folder.is_dir():
            continue
        paths = {
            file: folder / form
            for file, forms in known.files.items()
            for form in reversed(list(forms))  # the first that exists wins
            if (folder / form).is_file()
        }
        if paths:
            copies.append(Copy(name, folder, paths))
        for path in sorted(folder.iterdir()):
            if re.fullmatch(known.archive + _TAR, path.name.lower()) and path.is_file():
                copies.append(Copy(name, path, {}, is_archive=True))
    return sorted(copies, key=lambda copy: len(copy.missing) > 0)


def _problem(content: bytes, md5: str, where: str) -> str:
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return "" if found == md5 else f"{where} is truncated or altered: its MD5 is {found}, not {md5}"
