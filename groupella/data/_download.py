"""Downloading files: several mirrors, checksums, a progress bar, and resuming where it stopped.

pooch checks the SHA-256 and puts a file in its place only when it is right. What it is given here
is how the bytes come: into ``<file>.part``, continued with an HTTP range request after a break,
even from another mirror, since the checksum covers the whole.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pooch
import requests
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from ._catalogue import Download
from ._errors import DataArgumentError, DataError

if TYPE_CHECKING:
    from rich.progress import TaskID

_CHUNK = 1 << 16
_TIMEOUT = (10, 60)  # seconds to connect, seconds without a byte


def download(item: Download, folder: Path, progress: bool = True) -> Path:
    """``item`` in ``folder``, downloaded unless it is there already with the right checksum."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, "it is read-only")
        with _alone_in(folder):
            return _from_first_good_mirror(item, folder, progress)
    except OSError as error:
        raise DataArgumentError(
            f"cannot write {item.file} to {str(folder)!r}: {error.strerror or error}; name a "
            f"directory that can be written with --data-dir"
        ) from error


def check_mirror(address: str) -> None:
    """Raises unless ``address`` can be the address of a directory on a web server."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half an IPv6 address
        usable = False
    if not usable:
        raise DataArgumentError(
            f"the mirror {address!r} is no web address; expected that of a directory with the "
            f"files, such as https://example.org/mnist"
        )


def _from_first_good_mirror(item: Download, folder: Path, progress: bool) -> Path:
    part = folder / f"{item.file}.part"
    failures = []
    for url in item.urls:
        try:
            resumed = part.exists()
            try:
                return _retrieve(url, item, folder, part, progress)
            except _WrongContentError:
                if not resumed:
                    raise
                # The beginning came from an earlier attempt: give this mirror a clean one.
                return _retrieve(url, item, folder, part, progress)
        except (_WrongContentError, requests.RequestException) as error:
            failures.append(f"  {url}: {_reason(error)}")
    raise DataError(
        f"could not download {item.file}:\n" + "\n".join(failures) + "\n"
        "Put the file in a directory and name that with GROUPELLA_DATA or --data-dir, or try "
        "again: a download continues where it stopped."
    )


class _WrongContentError(Exception):
    """What came is not the file: its checksum is wrong."""


def _retrieve(url: str, item: Download, folder: Path, part: Path, progress: bool) -> Path:
    with _quiet_pooch():
        try:
            path = pooch.retrieve(
                url,
                known_hash=f"sha256:{item.sha256}",
                fname=item.file,
                path=folder,
                downloader=_Resuming(part, item, progress),
            )
        except ValueError as error:  # includes requests' errors about malformed addresses
            if isinstance(error, requests.RequestException):
                raise
            raise _WrongContentError(
                f"what came is not {item.file} (its SHA-256 is wrong)"
            ) from error
    return Path(path)


@dataclass(frozen=True)
class _Resuming:
    """A pooch downloader that keeps what has come in ``part`` and asks for the rest."""

    part: Path
    item: Download
    progress: bool

    def __call__(self, url: str, output_file: str, pooch: Any, check_only: bool = False) -> None:
        with _bar(self.item, url, self.progress) as (bar, task):
            while True:
                before = self._have()
                try:
                    self._stream(url, bar, task)
                    break
                except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
                    # As long as every connection brings something, go on from there.
                    if self._have() <= before:
                        raise
        os.replace(self.part, output_file)

    def _have(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _stream(self, url: str, bar: Progress, task: TaskID) -> None:
        start = self._have()
        if start > self.item.size:
            self.part.unlink()
            start = 0
        if start == self.item.size:
            return
        # The bytes as they lie on the server: a .gz must not be unpacked on the way.
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            if response.status_code == requests.codes.requested_range_not_satisfiable:
                self.part.unlink()
            response.raise_for_status()
            if start and not _continues(response, start):
                start = 0
            with self.part.open("r+b" if start else "wb") as file:
                file.seek(start)
                bar.update(task, completed=start)
                for chunk in _raw_chunks(response):
                    file.write(chunk)
                    bar.advance(task, len(chunk))
        if self._have() < self.item.size:
            raise requests.ConnectionError(
                f"the connection ended after {self._have():,} of {self.item.size:,} bytes"
            )


def _continues(response: requests.Response, start: int) -> bool:
    sent = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return (
        response.status_code == requests.codes.partial_content
        and sent is not None
        and int(sent[1]) == start
    )


def _raw_chunks(response: requests.Response) -> Iterator[bytes]:
    import urllib3.exceptions

    try:
        yield from response.raw.stream(_CHUNK, decode_content=False)
    except urllib3.exceptions.HTTPError as error:
        raise requests.ConnectionError(str(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError) and "ended after" not in str(error):
        return "no connection"
    return str(error)


@contextlib.contextmanager
def _bar(item: Download, url: str, show: bool) -> Iterator[tuple[Progress, TaskID]]:
    console = Console(stderr=True)
    if show and not console.is_terminal:
        size = f"{item.size / 1e6:.1f} MB"
        console.print(f"downloading {item.file} ({size}) from {urlsplit(url).netloc}")
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not (show and console.is_terminal),
    ) as bar:
        yield bar, bar.add_task(item.file, total=item.size)


@contextlib.contextmanager
def _quiet_pooch() -> Iterator[None]:
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One process at a time downloads into ``folder`` (where the system has such locks)."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
