"""``groupella sweep``: seeds × data sets × models, several at a time."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupella._schema import print_json
from groupella.runs.spelling import ArgumentError, group_set

from ._select import check_epochs
from .errors import plain_errors, saving
from .options import LARGEST_SEED, Alpha, AsJson, DataDir, Groups, TrainSize, complete_data

if TYPE_CHECKING:
    from groupella.runs.engines import Engine

ENGINES = ("local", "ray")
SEARCHES = ("confirm", "paths")
MOST_SEEDS = 10_000


def sweep(
    data: Annotated[
        list[str],
        typer.Option(help="Data set, as for select. Repeatable.", autocompletion=complete_data),
    ],
    groups: Groups = "z2,p4",
    paths: Annotated[
        list[str] | None,
        typer.Option(help="Paths, as for select (default: one per group). Repeatable."),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            help="confirm: impose each group and test it on held-out data, as select does. paths: "
            "train one network with a path per group, as select --paths does (default: confirm "
            "without --paths).",
            autocompletion=lambda: list(SEARCHES),
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Random seeds, such as 0-4 or 0,3,7.")] = "0",
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of epochs (default: by the number of data; with paths, 30)."
        ),
    ] = None,
    alpha: Alpha = 4,
    train_size: TrainSize = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Runs at a time (default: one per core). 1 runs in this process on all threads.",
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="local or ray.", autocompletion=lambda: list(ENGINES))
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="Address of a Ray cluster, such as auto (default: $RAY_ADDRESS)."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Output directory.")] = Path("runs/sweep"),
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Run select on all combinations of seeds, data sets and paths, and say what most runs say.

    The table has one line per data set, with the verdict of more than half of the runs, and mean
    and standard deviation over seeds.

    By default there is one process per core, with one thread each. With --jobs 1, or if there is
    only one run, runs are done one after the other in this process, on all threads.

    Examples:

      groupella sweep --data digits:quadrants --data digits:rot90 --seeds 0-4

      groupella sweep --data my.npz --groups z2,p4 --search paths --seeds 0-4 --epochs 30

      groupella sweep --data mnist:rotated --paths F-FC+CONV --paths CONV --seeds 0,1 --jobs 2

      groupella sweep --data mnist:rotated --seeds 0-9 --engine ray --address auto --out /shared/out

    With --engine ray (pip install groupella\\[ray]) runs go to the Ray cluster at --address or
    $RAY_ADDRESS; without either, Ray is started on this machine. All machines of a cluster must see
    the output directory and the data.

    A failing run does not abort the others. Finished runs are not repeated, and interrupted ones
    resume.
    """
    from groupella.runs import Job
    from groupella.runs.consensus import consensus, swept
    from groupella.runs.engines import counted
    from groupella.runs.jobs import TRAINING
    from groupella.runs.study import Row, make_ready, perform, summarising, summary

    with plain_errors("sweep"):
        group_set(groups, points=3)  # only whether they can be understood
        kind = _search(search, paths, epochs)
        numbers = seed_list(seeds)
        _check_different("--data", data)
        _check_different("--paths", paths or [])
        models: Sequence[str | None] = paths if paths else [None]
        training: dict[str, Any] = {} if kind == "confirm" else {**TRAINING, "epochs": 30}
        if epochs is not None:
            training["epochs"] = epochs
        rows = []
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
                search=kind,
                training=training,
            )
            task = f"{name} {model or groups}"
            rows.append(Row(f"{task} seed {seed}", job, task=task))
        place = address or os.environ.get("RAY_ADDRESS") or None
        chosen = find_engine(engine, jobs, address, place, len(rows))
        elsewhere = engine == "ray" and place is not None
        with saving(out), summarising(rows, out, "Sweep", shown=swept):
            done = perform(
                rows,
                out,
                engine=counted(chosen, not as_json),
                data_dir=data_dir,
                check=lambda left: make_ready(left, data_dir, fetch=not elsewhere),
                on_done=lambda r, one: typer.echo(f"{r.name}: {one.report}", err=True),
            )
    found = summary(rows, done)
    if as_json:
        typer.echo(print_json({"runs": found, "consensus": consensus(found)}))
    else:
        typer.echo(swept(found))


def _search(given: str | None, paths: Sequence[str] | None, epochs: int | None) -> str:
    """What each run does; raise if the options contradict each other."""
    if given is not None and given not in SEARCHES:
        raise ArgumentError(f"no --search {given}; choose {' or '.join(SEARCHES)}")
    if given == "confirm" and paths:
        raise ArgumentError("--paths requires --search paths")
    kind = given or ("paths" if paths else "confirm")
    if kind == "confirm":
        check_epochs(epochs)
    return kind


def _check_different(option: str, given: Sequence[str]) -> None:
    for name in given:
        if given.count(name) > 1:
            raise ArgumentError(f"{option} {name} is given twice")


def find_engine(
    name: str, jobs: int | None, address: str | None, place: str | None, runs: int
) -> Engine:
    """The engine for the runs, not started yet; `place` is `address` or that of $RAY_ADDRESS."""
    from groupella.runs.engines import here, processes
    from groupella.runs.ray import cluster, is_installed

    if name not in ENGINES:
        raise ArgumentError(f"no engine {name!r}; choose {' or '.join(ENGINES)}")
    if name == "local":
        if address is not None:
            raise ArgumentError("--address requires --engine ray")
        workers = jobs or min(runs, os.cpu_count() or 1)
        return here if workers == 1 else processes(workers)
    if not is_installed():
        raise ArgumentError("--engine ray requires Ray: pip install groupella[ray]")
    return cluster(place, jobs)


def seed_list(text: str) -> list[int]:
    """The seeds in "0-4" or "0,3,7"."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise ArgumentError(f"expected seeds such as 0-4 or 0,3,7; got {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last > LARGEST_SEED:
            raise ArgumentError(f"a seed is at most {LARGEST_SEED}, got {last}")
        if len(found) + last - first >= MOST_SEEDS:
            raise ArgumentError(f"--seeds {text} are more than {MOST_SEEDS:,} runs per data set")
        found += range(first, last + 1)
    if not found or len(set(found)) != len(found):
        raise ArgumentError(f"seeds must be different numbers; got {text!r}")
    return found
