"""``groupella sweep``: seeds × data sets × models, several at a time."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupella.runs.spelling import ArgumentError, complete_groups, group_set

from ._select import LEAVE_OUT, check_memory
from .errors import plain_errors
from .rows import summarising, watched
from .stopping import saving

if TYPE_CHECKING:
    from groupella.runs.engines import Engine
    from groupella.runs.jobs import Job
    from groupella.runs.study import Row

ENGINES = ("local", "ray")
EXAMPLES = """
Select on every combination of seeds, data sets and sets of paths, in local processes or through
Ray.

By default there are as many processes as cores, with one thread each. With --jobs 1, or where there
is one run only, runs are done in this process with all its threads, one after the other.

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
            min=1, help="Runs at a time; by default one a core. 1: in this process, all threads."
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
    from groupella.runs.readiness import make_ready
    from groupella.runs.study import perform, summary, table

    folder = None if data_dir is None else str(data_dir)
    with plain_errors("sweep"):
        group_set(groups)
        numbers = seed_list(seeds)
        _check_different("--data", data)
        _check_different("--paths", paths or [])
        models: list[str | None] = list(paths) if paths else [None]
        rows = [
            _row(name, groups, model, seed, epochs, alpha, train_size)
            for name, model, seed in itertools.product(data, models, numbers)
        ]
        place = address or os.environ.get("RAY_ADDRESS") or None
        chosen = find_engine(engine, jobs, address, place, len(rows))
        elsewhere = engine == "ray" and place is not None

        def check(left: Sequence[Job]) -> None:
            make_ready(left, folder, fetch=not elsewhere)
            if engine == "local":
                for one in {job.data: job for job in left}.values():
                    check_memory(one, folder, LEAVE_OUT.capitalize())

        with saving(out), summarising(rows, out, "Sweep"):
            done = perform(
                rows,
                out,
                engine=watched(chosen, as_json),
                data_dir=folder,
                check=check,
                on_done=lambda r, one: typer.echo(f"{r.name}: {one.report}", err=True),
            )
    found = summary(rows, done)
    typer.echo(json.dumps(found) if as_json else table(found))


sweep.__doc__ = EXAMPLES


def _row(
    data: str,
    groups: str,
    paths: str | None,
    seed: int,
    epochs: int,
    alpha: int,
    train_size: int | None,
) -> Row:
    from groupella.runs.jobs import Job
    from groupella.runs.presets import TRAINING
    from groupella.runs.study import Row

    job = Job(
        title=f"{data}, {paths or groups}, seed {seed}",
        data=data,
        groups=groups,
        paths=paths,
        increments=paths is None,
        alpha=alpha,
        train_size=train_size,
        seed=seed,
        training={**TRAINING, "epochs": epochs},
    )
    return Row(f"{data} {paths or groups} seed {seed}", job)


def _check_different(option: str, given: Sequence[str]) -> None:
    for name in given:
        if given.count(name) > 1:
            raise ArgumentError(f"{option} {name} is given twice; once is enough")


def find_engine(
    name: str, jobs: int | None, address: str | None, place: str | None, runs: int
) -> Engine:
    """What does the runs; nothing is started yet. `place`: the address or that of RAY_ADDRESS."""
    from groupella.runs.engines import here, processes
    from groupella.runs.ray import cluster, is_installed

    if name not in ENGINES:
        raise ArgumentError(f"no engine {name!r}; there are {', '.join(ENGINES)}")
    if name == "local":
        if address is not None:
            raise ArgumentError("--address is of a Ray cluster: add --engine ray")
        workers = jobs or min(runs, os.cpu_count() or 1)
        return here if workers == 1 else processes(workers)
    if not is_installed():
        raise ArgumentError("--engine ray needs Ray: pip install groupella[ray]")
    return cluster(place, jobs)


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
