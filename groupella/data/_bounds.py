"""Bounds on a user's data; those on what a file declares are checked before memory is spent on it.

An .npz file is a zip of .npy files. A few megabytes of zip can hold gigabytes of zeros, and a
header of a hundred bytes can declare an array of terabytes, for which numpy asks the system before
it reads the first value. So the directory of the zip and the headers of its arrays are read first.
"""

from __future__ import annotations

import math
import zipfile
from typing import IO, Any

import numpy as np

from groupella._machine import in_gibibytes, memory_of_machine

from ._errors import DataError

LARGEST_NUMBER = 1e150  # whose square is finite, and that of its inverse not 0
LARGEST_PICTURE = 1 << 26  # pixels
LARGEST_ARCHIVE = 1 << 33  # bytes, unpacked
FREE_RATIO = 1 << 28  # bytes that may be compressed as much as they like
LARGEST_RATIO = 200


def check_memory(shape: tuple[int, ...], size: int, what: str) -> None:
    """Raise `DataError` for an array that memory cannot hold as numbers of `size` bytes.

    A view of one value, or of a file, may declare any shape.
    """
    needed, there = math.prod(shape) * size, memory_of_machine()
    if there is not None and needed > there:
        raise DataError(
            f"{what} of shape {shape} takes {in_gibibytes(needed)} of memory, and this machine has "
            f"{in_gibibytes(there)}: give fewer or smaller samples"
        )


def check_archive(file: IO[bytes]) -> None:
    """Raise `DataError` for an .npz file that declares too much; leave `file` at its start.

    A bare array is refused, also with a zip behind it: numpy would ask for as much memory as its
    header declares.
    """
    magic = np.lib.format.MAGIC_PREFIX
    if file.read(len(magic)) == magic:
        raise DataError("it is one array (.npy); expected several by name (np.savez)")
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            packed = max(sum(member.compress_size for member in members), 1)
            if total > LARGEST_ARCHIVE or (total > FREE_RATIO and total > LARGEST_RATIO * packed):
                raise DataError(
                    f"it has {packed:,} bytes that unpack to {total:,}; expected at most "
                    f"{LARGEST_ARCHIVE:,}, and {LARGEST_RATIO} times as many as packed"
                )
            for member in members:
                if member.filename.endswith(".npy"):
                    with archive.open(member) as stream:
                        _check_header(stream, member)
    except zipfile.BadZipFile as error:
        raise DataError(f"{error}; expected what numpy.savez writes") from error
    finally:
        file.seek(0)


def _check_header(stream: IO[bytes], member: zipfile.ZipInfo) -> None:
    """The array that a header declares is as large as the file says."""
    version = np.lib.format.read_magic(stream)  # type: ignore[no-untyped-call]
    if version not in ((1, 0), (2, 0)):  # numpy takes the third for names of structured types only
        raise DataError(
            f"{member.filename} is in version {version[0]}.{version[1]} of the format; expected "
            "1.0 or 2.0, as numpy.savez writes numbers"
        )
    read: Any = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise DataError(f"{member.filename} holds Python objects, which are not read")
    declared = math.prod(shape) * dtype.itemsize
    there = member.file_size - stream.tell()
    if declared != there:
        raise DataError(
            f"{member.filename} declares {declared:,} bytes for the shape {shape}, but has "
            f"{there:,}"
        )
