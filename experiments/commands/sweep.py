"""``groupella sweep``: seeds × data sets × models, several at a time."""

from __future__ import annotations

import itertools
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupella._arguments import ArgumentError, complete_groups, group_set

from .reproduce import summarising
from .select import LEAVE_OUT, check_memory, saving

if TYPE_CHECKING:
    from groupella.experiments._engines import Engine

ENGINES = ("local", "ray")
EXAMPLES = """
Select on every combination of seeds, data sets and sets of paths, in local processes or through
Ray.

Examples:

  groupella sweep --data digits:quadrants --data digits:rot90 --seeds 0-4 --epochs 30

  groupella sweep --data mnist:rotated --paths F-FC+CONV --paths CONV --seeds 0,1 --jobs 2

  groupella sweep --data mnist:rotated --seeds 0-9 --engine ray --address auto --out /shared/sweep

With --engine ray (pip install groupella[ray]) runs go to the Ray cluster at --address, or at
RAY_ADDRESS; without either, Ray is started here. Its machines must see --out and the data.

Finished runs are not run again, an interrupted sweep goes on.
"""


def sweep(
    data: Annotated[list[str], typer.Option(help="A data set, as for select. Repeatable.")],
    groups: Annotated[
        str, typer.Option(help="As for select.", autocompletion=complete_groups)
    ] = "z2,p4",
    paths: Annotated[
        list[str] | None, typer.Option(help="As for select. Repeatable; by default one a group.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Such as 0-4 or 0,3,7.")] = "0",
    epochs: Annotated[int, typer.Option(min=1, help="How long to train.")] = 30,
    alpha: Annotated[int, typer.Option(min=1, help="Channels of the first layer.")] = 4,
    train_size: Annotated[
        int | None, typer.Option(min=1, help="Train on a random part of the data.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Runs at a time, one thread each; by default 1, with Ray one a core."
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="local or ray.", autocompletion=lambda: list(ENGINES))
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster, such as auto; else RAY_ADDRESS.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where runs go.")] = Path("runs/sweep"),
    data_dir: Annotated[
        Path | None, typer.Option(help="Where data sets lie; else GROUPELLA_DATA.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    from groupella.experiments._jobs import Job
    from groupella.experiments._presets import TRAINING
    from groupella.experiments._record import RunError
    from groupella.experiments._study import Row, perform, summary, table
    from groupella.experiments.data import DataError

    try:
        group_set(groups)
        numbers = seed_list(seeds)
        chosen = find_engine(engine, jobs, address)
    except ArgumentError as error:
        typer.echo(f"groupella sweep: {error}", err=True)
        raise typer.Exit(2) from error
    rows = []
    models: list[str | None] = list(paths) if paths else [None]
    for name, model, seed in itertools.product(data, models, numbers):
        job = Job(
            title=f"{name}, {model or groups}, seed {seed}",
            data=name,
            groups=groups,
            paths=model,
            increments=model is None,
            alpha=alpha,
            train_size=train_size,
            seed=seed,
            training={**TRAINING, "epochs": epochs},
        )
        rows.append(Row(f"{name} {model or groups} seed {seed}", job))
    folder = None if data_dir is None else str(data_dir)
    try:
        if engine == "local":
            for of_data in {r.job.data: r.job for r in rows}.values():
                check_memory(of_data, folder, LEAVE_OUT.capitalize())
        with saving(out), summarising(rows, out, "Sweep"):
            done = perform(
                rows,
                out,
                engine=chosen,
                data_dir=folder,
                on_done=lambda r, one: typer.echo(f"{r.name}: {one.report}", err=True),
            )
    except (RunError, DataError, ValueError, OSError, MemoryError) as error:
        typer.echo(f"groupella sweep: {error}", err=True)
        raise typer.Exit(2) from error
    found = summary(rows, done)
    typer.echo(json.dumps(found) if as_json else table(found))


sweep.__doc__ = EXAMPLES


def find_engine(name: str, jobs: int | None, address: str | None) -> Engine:
    """What runs the rows; nothing is started yet."""
    from groupella.experiments._engines import here, processes
    from groupella.experiments._ray import cluster, is_installed

    if name not in ENGINES:
        raise ArgumentError(f"no engine {name!r}; there are {', '.join(ENGINES)}")
    if name == "local":
        if address is not None:
            raise ArgumentError("--address is of a Ray cluster: add --engine ray")
        return here if jobs is None or jobs == 1 else processes(jobs)
    if not is_installed():
        raise ArgumentError("--engine ray needs Ray: pip install groupella[ray]")
    return cluster(address or os.environ.get("RAY_ADDRESS") or None, jobs)


def seed_list(text: str) -> list[int]:
    """From "0-4" or "0,3,7"."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise ArgumentError(f"seeds are such as 0-4 or 0,3,7; got {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        found += range(first, last + 1)
    if not found or len(set(found)) != len(found):
        raise ArgumentError(f"seeds must be different numbers; got {text!r}")
    return found
