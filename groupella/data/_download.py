"""Downloads: from several mirrors, checked, with a progress bar, resumed where they stopped.

pooch compares the SHA-256 with its registry and moves a file into place only if it is right. Its
downloaders cannot resume, so it is given one that can: bytes are kept in `<file>.part` and
continued with an HTTP range request, even from another mirror, since the checksum covers all.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pooch
import requests
import urllib3.exceptions
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TaskID, TransferSpeedColumn

from groupella._files import alone

from ._catalogue import Download
from ._errors import DataArgumentError, DataError

_CHUNK = 1 << 16
_TIMEOUT = (10, 60)  # seconds to connect, seconds without a byte
_CONNECTIONS = 20  # per mirror
_SLOWEST = 5_000  # bytes per second, on average
_PATIENCE = 60.0  # seconds before a mirror is called too slow


class _TooMuchError(requests.RequestException):
    """A mirror sends more than the file has."""


class _TooSlowError(requests.RequestException):
    """A mirror sends so few bytes that the file would take hours."""


def download(item: Download, mirrors: Iterable[str], folder: Path, progress: bool = True) -> Path:
    """The path of `item` in `folder`, downloaded unless it is there with the right checksum."""
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with alone(folder, patience=math.inf):
            if not os.access(folder, os.W_OK):
                raise PermissionError(errno.EACCES, "it is read-only")
            return _from_first_good_mirror(item, list(mirrors), folder, progress)
    except OSError as error:
        raise DataArgumentError(
            f"cannot write {item.file} to {str(folder)!r}: {error.strerror or error}; choose a "
            f"writable directory with --data-dir"
        ) from error
    finally:
        logger.setLevel(level)


def _from_first_good_mirror(
    item: Download, mirrors: list[str], folder: Path, progress: bool
) -> Path:
    downloader = _Resuming(folder / f"{item.file}.part", item, progress)
    failures = []
    while mirrors:
        source = pooch.create(folder, mirrors[0], registry={item.file: item.sha256})
        resumed = downloader.part.exists()
        try:
            return Path(source.fetch(item.file, downloader=downloader))
        except requests.RequestException as error:
            reason = _reason(error)
        except ValueError:  # the checksum is wrong
            if resumed:
                continue  # perhaps only the beginning was bad, which is now deleted
            reason = f"the content is not {item.file} (its SHA-256 is wrong)"
        failures.append(f"  {source.get_url(item.file)}: {reason}")
        mirrors.pop(0)
    raise DataError(
        f"could not download {item.file}:\n" + "\n".join(failures) + "\n"
        "Try again (downloads resume where they stopped), or put the file in a directory and name "
        "that directory with GROUPELLA_DATA or --data-dir."
    )


class _Deadline:
    """A mirror may take a minute, and then as long as the slowest connection for its bytes."""

    def __init__(self, there: int) -> None:
        self.there, self.started = there, time.monotonic()

    def check(self, received: int) -> None:
        """Raise if the bytes since the start, over all connections, came too slowly."""
        passed = time.monotonic() - self.started
        if passed > _PATIENCE + max(received - self.there, 0) / _SLOWEST:
            raise _TooSlowError(
                f"it sent {received - self.there:,} bytes in {passed:.0f} s, less than "
                f"{_SLOWEST:,} a second"
            )


@dataclass(frozen=True)
class _Resuming:
    """A pooch downloader that keeps the bytes received in `part` and requests only the rest."""

    part: Path
    item: Download
    progress: bool

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        with _bar(self.item, url, self.progress) as (bar, task):
            left, deadline = _CONNECTIONS, _Deadline(self._received())
            while (before := self._received()) != self.item.size:
                try:
                    self._stream(url, bar, task, deadline)
                    break
                except requests.ConnectionError:
                    left -= 1
                    # Continue while each connection brings bytes, but not for ever.
                    if self._received() <= before or not left:
                        raise
        os.replace(self.part, output_file)

    def _received(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _stream(self, url: str, bar: Progress, task: TaskID, deadline: _Deadline) -> None:
        start = self._received() if self._received() < self.item.size else 0
        # Ask for the stored bytes: a .gz must not be unpacked on the way.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            if response.status_code == requests.codes.requested_range_not_satisfiable:
                self.part.unlink()
            response.raise_for_status()
            if not re.match(f"bytes {start}-", response.headers.get("Content-Range", "")):
                start = 0
            with self.part.open("r+b" if start else "wb") as file:
                file.seek(start)
                bar.update(task, completed=start)
                try:
                    for chunk in iter(
                        partial(response.raw.read1, _CHUNK, decode_content=False), b""
                    ):
                        deadline.check(file.tell() + len(chunk))
                        if file.tell() + len(chunk) > self.item.size:
                            self.part.unlink()
                            raise _TooMuchError(f"it sends more than {self.item.size:,} bytes")
                        file.write(chunk)
                        bar.advance(task, len(chunk))
                except urllib3.exceptions.HTTPError as error:
                    raise requests.ConnectionError(str(error)) from error
        if self._received() < self.item.size:
            raise requests.ConnectionError(
                f"the connection ended after {self._received():,} of {self.item.size:,} bytes"
            )


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError) and "ended after" not in str(error):
        return "no connection"
    return str(error)


@contextmanager
def _bar(item: Download, url: str, show: bool) -> Iterator[tuple[Progress, TaskID]]:
    console = Console(stderr=True)
    if show and not console.is_terminal:
        size = f"{item.size / 1e6:.1f} MB"
        console.print(f"downloading {item.file} ({size}) from {urlsplit(url).netloc}")
    columns = (*Progress.get_default_columns(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, disable=not (show and console.is_terminal)) as bar:
        yield bar, bar.add_task(item.file, total=item.size)
