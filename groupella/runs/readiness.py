"""What can be known to fail before the first of many runs is begun, and not hours later.

Data sets must have a known name or be there, public ones are downloaded if need be, and the names
of paths must be those of paths.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .jobs import Job


def make_ready(jobs: Iterable[Job], data_dir: str | None = None, fetch: bool = True) -> None:
    """Raise for what one of the jobs cannot do, and get the public data sets that are not there.

    fetch: False where the jobs are done on other machines, whose data are their own affair.
    """
    chosen = list(jobs)
    for groups, paths in dict.fromkeys((j.groups, j.paths) for j in chosen if j.preset is None):
        _check_paths(groups, paths)
    for name in dict.fromkeys(job.source for job in chosen):
        _check_data(name)
    if fetch:
        for name in dict.fromkeys(job.source for job in chosen):
            _get(name, data_dir)


def _check_paths(groups: str, paths: str | None) -> None:
    from groupella.runs.spelling import group_set
    from groupella.nn.layer import planned

    members = group_set(groups)
    if paths is not None:
        planned(paths, members)


def _check_data(name: str) -> None:
    from groupella.data import BASES, TRANSFORMS, DataError

    path = Path(name).expanduser()
    if name in BASES or path.is_dir() or (path.is_file() and path.suffix == ".npz"):
        return
    if path.is_file():
        raise DataError(f"{name!r}: expected an .npz file or a folder of images")
    raise DataError(
        f"no data set {name!r}: neither one of {', '.join(BASES)} (with :{', :'.join(TRANSFORMS)} "
        f"if wanted) nor an .npz file nor a folder of images"
    )


def _get(name: str, data_dir: str | None) -> None:
    """Read a public data set once as runs will, which finds, downloads, verifies and caches it."""
    from groupella.data import BASES, public

    if name in BASES and name != "digits":
        public(name, data_dir)
