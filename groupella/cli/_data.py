"""``groupella data``: download data sets and check their files."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .errors import plain_errors
from .options import AsJson, DataDir

data = typer.Typer(help="Download data sets and check their files.", no_args_is_help=True)


def _public_names() -> list[str]:
    from groupella.data import BASES

    return [name for name in BASES if name != "digits"]


Name = Annotated[
    str,
    typer.Argument(
        help="Public data set: mnist, cifar10 or cifar100.", autocompletion=_public_names
    ),
]


@data.command()
def fetch(
    name: Name,
    data_dir: DataDir = None,
    mirror: Annotated[
        str | None,
        typer.Option(help="URL of a directory with the files, tried before the public mirrors."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Download missing or damaged files, and print the directory.

    Example: groupella data fetch mnist --data-dir my-data
    """
    from groupella.data import DataError
    from groupella.data import fetch as download

    with plain_errors("data fetch", no=(DataError,)):
        place = download(name, data_dir, mirror, progress=not as_json)
    typer.echo(json.dumps({"name": name, "directory": str(place)}) if as_json else str(place))


@data.command()
def verify(name: Name, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Compare every file of a data set with its published checksum.

    The exit code is 1 if a file is missing or damaged.

    Example: groupella data verify cifar10 --data-dir my-data
    """
    from groupella.data import DataError
    from groupella.data import verify as check

    with plain_errors("data verify", no=(DataError,)):
        checks = check(name, data_dir)
    sound = all(c.ok for c in checks)
    if as_json:
        files = {c.member: c.problem or None for c in checks}
        typer.echo(json.dumps({"name": name, "sound": sound, "problems": files}))
    else:
        for c in checks:
            typer.echo(f"{'ok' if c.ok else 'BAD':>4}  {c.member}  {c.problem or ''}".rstrip())
    if not sound:
        raise typer.Exit(1)
