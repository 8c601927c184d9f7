"""Getting the files of a public data set, and checking those that are there."""

from __future__ import annotations

import dataclasses
import logging
import os
import shlex
from pathlib import Path

from ._cache import cache_directory
from ._catalogue import FileSet, file_set
from ._download import check_mirror, download
from ._errors import DataError
from ._locate import FileCheck, Located, check_members, data_directory, locate, named_directory

PathLike = str | os.PathLike[str]


def fetch(
    name: str,
    data_dir: PathLike | None = None,
    mirror: str | None = None,
    progress: bool = True,
) -> Path:
    """Downloads what of ``name`` is not there and sound, and gives the directory that holds it.

    That is ``data_dir`` where one is given, else ``GROUPELLA_DATA``, else a part of the cache
    directory, and it is made if need be. What lies sound where ``load`` looks is not downloaded
    again. ``mirror`` is the address of a directory with the files, tried before the public mirrors.
    """
    files = file_set(name)
    if mirror is not None:
        check_mirror(mirror)
    places = _places(data_dir)
    for place in places:
        if any(_is_sound(copy) for copy in locate(files, place)):
            return place
    download_missing(files, places[0], mirror, progress)
    return places[0]


def verify(name: str, data_dir: PathLike | None = None) -> list[FileCheck]:
    """Reads every file of ``name`` and compares its checksum with the known one.

    Of several copies, in ``data_dir`` or else where ``load`` looks, the one that ``load`` takes:
    the first that is sound. Where none is, the first.
    """
    files = file_set(name)
    data_directory(data_dir)  # raises where it is no directory
    places = _places(data_dir)
    first: list[FileCheck] = []
    for copy in (copy for place in places for copy in locate(files, place)):
        checks = check_members(copy)
        if all(check.ok for check in checks):
            if first:
                warn_of([check.problem for check in first if not check.ok], copy)
            return checks
        first = first or checks
    if not first:
        raise DataError(
            f"no files of {name} in {' or '.join(repr(str(place)) for place in places)}: nothing "
            f"to verify; get them with `{fetch_command(name, data_dir)}`"
        )
    return first


def downloads() -> Path:
    """Where downloads go when no directory is named."""
    return cache_directory() / "downloads"


def fetch_command(name: str, data_dir: PathLike | None) -> str:
    """The command that gets or mends the files."""
    where = "" if data_dir is None else f" --data-dir {shlex.quote(os.fspath(data_dir))}"
    return f"groupella data fetch {name}{where}"


def warn_of(problems: list[str], copy: Located) -> None:
    """Says that damaged files were passed over, and for which copy."""
    logging.getLogger(__name__).warning(
        "%s; read instead: %s", "; ".join(problems), copy.archive or copy.folder
    )


def download_missing(files: FileSet, base: Path, mirror: str | None, progress: bool) -> None:
    """Downloads to ``base`` what is not there: files beside their like, archives for themselves."""
    loose = next((copy for copy in locate(files, base) if copy.archive is None), None)
    sound = {check.member: check.ok for check in check_members(loose)} if loose else {}
    for item in files.downloads:
        if sound.get(item.file):
            continue
        beside = loose.folder if loose and item.file in sound else base / files.folders[0]
        urls = (f"{mirror.rstrip('/')}/{item.file}",) if mirror else ()
        download(dataclasses.replace(item, urls=urls + item.urls), beside, progress)


def _places(data_dir: PathLike | None) -> list[Path]:
    """The directories to look in: the one that is given, else the two that ``load`` looks in."""
    named = named_directory(data_dir)
    if named is not None and data_dir is not None:
        return [named]
    return [downloads()] if named is None else [named, downloads()]


def _is_sound(copy: Located) -> bool:
    return not copy.missing and all(check.ok for check in check_members(copy))
