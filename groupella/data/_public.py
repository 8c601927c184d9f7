"""Public data sets by name: read them, download them, verify their files."""

from __future__ import annotations

import logging
import os
import shlex
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import torch

from ._cache import cache_directory, store, stored
from ._catalogue import dataset
from ._copies import Copy, FileCheck, locate
from ._download import download as download_file
from ._errors import DataArgumentError, DataError
from ._images import Images

PathLike = str | os.PathLike[str]

_DIGITS_FOR_TRAINING = 1400


def digits() -> Images:
    """The 1,797 handwritten digits of scikit-learn, 8×8: 1,400 to train on, 397 to test on."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    x = torch.from_numpy(bunch.images[order].astype(np.float32) / 16).unsqueeze(1)
    y = torch.from_numpy(bunch.target[order].astype(np.int64))
    n = _DIGITS_FOR_TRAINING
    return Images("digits", x[:n], y[:n], x[n:], y[n:], tuple("0123456789"))


def public(
    name: str, data_dir: PathLike | None = None, download: bool = True, progress: bool = True
) -> Images:
    """A public data set, from the data directory, the cache or the network, in that order.

    Parameters
    ----------
    name : "mnist", "cifar10" or "cifar100"
    data_dir : the data directory (default: ``GROUPELLA_DATA``)
    download : whether to download a data set that is not on this machine
    progress : whether to show the progress of downloads

    Raises
    ------
    DataError
        If the data set is not there or its files are damaged.
    """
    known = dataset(name)
    images = _read(name, data_dir, download, progress)
    return replace(images, augment=known.augment, paper_size=known.paper_size)


def fetch(
    name: str, data_dir: PathLike | None = None, mirror: str | None = None, progress: bool = True
) -> Path:
    """Download missing or damaged files of a public data set; return the directory that has it.

    Parameters
    ----------
    name : "mnist", "cifar10" or "cifar100"
    data_dir : the directory to download to, created if missing (default: ``GROUPELLA_DATA``, or
        else the cache directory); without it, a sound earlier download is enough
    mirror : URL of a directory with the files, tried before the public mirrors
    progress : whether to show the progress of downloads

    Raises
    ------
    DataError
        If a file cannot be downloaded or written.
    """
    dataset(name)
    if mirror is not None:
        _check_mirror(mirror)
    places = _places(data_dir)
    for place in places:
        if any(all(check.ok for check in copy.check()) for copy in locate(name, place)):
            return place
    _download_missing(name, places[0], mirror, progress)
    return places[0]


def verify(name: str, data_dir: PathLike | None = None) -> list[FileCheck]:
    """Compare every file of a public data set with its published checksum.

    Parameters
    ----------
    name : "mnist", "cifar10" or "cifar100"
    data_dir : the directory to look in (default: where `load` looks)

    Returns
    -------
    list of FileCheck
        The files of the first sound copy, which `load` reads; if none is sound, of the first.

    Raises
    ------
    DataError
        If there is no copy.
    """
    dataset(name)
    _existing_directory(data_dir)
    first: list[FileCheck] = []
    for copy in (copy for place in _places(data_dir) for copy in locate(name, place)):
        checks = copy.check()
        if all(check.ok for check in checks):
            _warn_of([check.problem for check in first if not check.ok], copy)
            return checks
        first = first or checks
    if not first:
        places = " or ".join(repr(str(place)) for place in _places(data_dir))
        raise DataError(
            f"no files of {name} in {places}: nothing to verify; download them with "
            f"`{_fetch_command(name, data_dir)}`"
        )
    return first


def named_directory(given: PathLike | None = None) -> Path | None:
    """The user's data directory: as given, else ``GROUPELLA_DATA``, else ``None``."""
    named = os.fspath(given) if given is not None else os.environ.get("GROUPELLA_DATA", "")
    return Path(named).expanduser() if named else None


def _existing_directory(given: PathLike | None) -> Path | None:
    path = named_directory(given)
    if path is not None and not path.is_dir():
        origin = "the data directory" if given is not None else "GROUPELLA_DATA"
        raise DataArgumentError(f"{origin} {str(path)!r} is not a directory")
    return path


def _downloads() -> Path:
    return cache_directory() / "downloads"


def _places(data_dir: PathLike | None) -> list[Path]:
    """The directories to look in: the given one, or else the two in which `load` looks."""
    named = named_directory(data_dir)
    if named is None:
        return [_downloads()]
    return [named] if data_dir is not None else [named, _downloads()]


def _read(name: str, data_dir: PathLike | None, download: bool, progress: bool) -> Images:
    directory = _existing_directory(data_dir)
    copies = locate(name, directory) if directory is not None else []
    copies += [copy for copy in locate(name, _downloads()) if not copy.missing]
    if not copies:
        images = stored(name)
        if images is not None:
            return images
        if not download:
            raise DataError(
                f"{name} is not on this machine; download it with `groupella data fetch {name}`, "
                f"or name a directory that holds it with GROUPELLA_DATA or --data-dir"
            )
        _download_missing(name, _downloads(), None, progress)
        copies = locate(name, _downloads())
    for copy in copies:
        images = None if copy.missing else stored(name, copy.fingerprint())
        if images is not None:
            return images
    problems = []
    for copy in copies:
        try:
            fingerprint = copy.fingerprint()
            images = dataset(name).images(copy.decode())
        except DataError as error:
            problems.append(str(error))
            continue
        store(images, name, fingerprint)
        _warn_of(problems, copy)
        return images
    wrong = "; ".join(problems) or f"{name} was deleted while it was being read"
    raise DataError(f"{wrong}. Download a sound copy with `{_fetch_command(name, data_dir)}`")


def _warn_of(problems: list[str], copy: Copy) -> None:
    """Say that damaged files were passed over for another copy."""
    if problems:
        logger = logging.getLogger(__name__)
        logger.warning("%s; read instead: %s", "; ".join(problems), copy.place)


def _fetch_command(name: str, data_dir: PathLike | None) -> str:
    where = "" if data_dir is None else f" --data-dir {shlex.quote(os.fspath(data_dir))}"
    return f"groupella data fetch {name}{where}"


def _download_missing(name: str, base: Path, mirror: str | None, progress: bool) -> None:
    """Download what is missing or damaged: files beside the others, archives to their folder."""
    known = dataset(name)
    loose = next((copy for copy in locate(name, base) if not copy.is_archive), None)
    sound = {check.member: check.ok for check in loose.check()} if loose else {}
    mirrors = (*([mirror] if mirror else []), *known.mirrors)
    for item in known.downloads:
        if not sound.get(item.file):
            beside = loose is not None and item.file in sound
            folder = loose.place if loose and beside else base / known.folders[0]
            download_file(item, mirrors, folder, progress)


def _check_mirror(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half an IPv6 address
        usable = False
    if not usable:
        raise DataArgumentError(
            f"the mirror {url!r} is not a web address; expected the URL of a directory with the "
            f"files, such as https://example.org/mnist"
        )
