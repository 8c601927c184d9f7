"""The command ``groupella``.

One file per command: ``_doctor.py`` holds the function ``doctor``, whose arguments and docstring
typer turns into options and help. Commands import torch and escnn inside their functions, so that
``groupella --help`` answers at once. A package above this one (``groupella.experiments``) adds its
commands as entry points of the group ``groupella.commands`` in pyproject.toml.
"""

from __future__ import annotations

import importlib.metadata
from typing import Annotated

import typer

from groupella import __version__

from ._check import check
from ._data import data
from ._demo import demo
from ._doctor import doctor
from ._export import export
from ._inspect import inspect
from ._select import select
from ._sweep import sweep
from .start import main

__all__ = ["app", "main"]

app = typer.Typer(
    name="groupella",
    help="Find out which symmetries labels obey, and train networks that have them.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)

app.command()(check)
app.add_typer(data, name="data")
app.command()(demo)
app.command()(doctor)
app.command()(export)
app.command()(inspect)
app.command()(select)
app.command()(sweep)

for entry in importlib.metadata.entry_points(group="groupella.commands"):
    command = entry.load()
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=entry.name)
    else:
        app.command(entry.name)(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"groupella {__version__}")
        raise typer.Exit


@app.callback()
def _groupella(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass
