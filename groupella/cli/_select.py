"""``groupella select``: which symmetries does this data set want?"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupella.runs.spelling import ArgumentError, complete_groups, group_set, one_group, seconds

from .errors import plain_errors
from .stopping import saving

if TYPE_CHECKING:
    from groupella.runs.run import Done

EXAMPLES = """
Train a network that may use every group in every layer, and say what each layer obeys.

Examples:

  groupella select --groups z2,p4 --data digits:quadrants

  groupella select --groups z2,p4,flips --data mnist:rotated --budget 20m --out runs/rotated

  groupella select --groups my_groups.py:GROUPS --data my_images.npz --json

  groupella select --groups z2,p4,p4m --data digits --motion p4m --obeys p4

Ctrl-C saves; the same command goes on from there. A finished run is not run again.
"""
LEAVE_OUT = "leave out one of two groups without shifts"
LESS = f"Give a smaller --size, or {LEAVE_OUT}"
WIDE = 130


def _complete_data(incomplete: str) -> list[str]:
    from groupella.data import BASES, TRANSFORMS

    names = [*BASES, *(f"{b}:{t}" for b in BASES for t in TRANSFORMS)]
    return [name for name in names if name.startswith(incomplete)]


def select(
    groups: Annotated[
        str,
        typer.Option(
            help="Groups to choose among: names, or my_groups.py:GROUPS. 'none' is always there.",
            autocompletion=complete_groups,
        ),
    ] = "z2,p4",
    data: Annotated[
        str,
        typer.Option(
            help="A name such as mnist:rotated, an .npz file, or a folder of images.",
            autocompletion=_complete_data,
        ),
    ] = "digits:quadrants",
    motion: Annotated[
        str | None,
        typer.Option(
            help="Move the images by random elements of this group: a name, or my_groups.py:NAME.",
            autocompletion=complete_groups,
        ),
    ] = None,
    obeys: Annotated[
        str | None,
        typer.Option(
            help="With --motion, of which it is a subgroup: labels also say how an image was "
            "moved, as far as this group does not. By default labels stay as they are.",
            autocompletion=complete_groups,
        ),
    ] = None,
    paths: Annotated[
        str | None,
        typer.Option(help="Such as F-FC+CONV+GCONV; by default one path for every group."),
    ] = None,
    budget: Annotated[str, typer.Option(help="Time for training: 90s, 5m, 1h30m.")] = "5m",
    out: Annotated[
        Path | None, typer.Option(help="The run's directory; by default under runs/.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Train this long instead of --budget.")
    ] = None,
    alpha: Annotated[int, typer.Option(min=1, help="Channels of the first layer.")] = 4,
    size: Annotated[int | None, typer.Option(min=1, help="Resize images to this side.")] = None,
    train_size: Annotated[
        int | None, typer.Option(min=1, help="Train on a random part of the data.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where data sets lie; else GROUPELLA_DATA.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of data, weights and order.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the answer as JSON, and nothing else.")
    ] = False,
) -> None:
    from groupella.runs.budget import with_budget
    from groupella.runs.engines import Task
    from groupella.runs.jobs import Job
    from groupella.runs.presets import TRAINING

    moved = "" if motion is None else f" moved by {motion}"
    moved += "" if obeys is None else f" with labels that obey {obeys}"
    place = out or Path("runs") / _name(data, groups, seed, motion, obeys)
    folder = None if data_dir is None else str(data_dir)
    with plain_errors("select"), _enough_memory(groups):
        group_set(groups)
        limit = seconds(budget)
        if obeys is not None and motion is None:
            raise ArgumentError(f"--obeys {obeys} says what labels obey under a --motion: give it")
        for one in (motion, obeys):
            if one is not None:
                one_group(one)
        job = Job(
            title=f"Which of {groups.replace(',', ', ')} does {data}{moved} obey?",
            data=data,
            groups=groups,
            motion=motion,
            obeys=obeys,
            size=size,
            train_size=train_size,
            paths=paths,
            increments=paths is None,
            alpha=alpha,
            seed=seed,
            training=TRAINING,
        )
        check_memory(job, folder)
        task = Task(job, place, limit) if epochs is None else Task(job.for_epochs(epochs), place)
        settled = task.settled
        if settled is None:
            _say(f"measuring how many epochs fit into {budget} …", as_json)
            with saving(place):
                settled = with_budget(job, limit, folder)
            _say(f"{settled.training['epochs']} epochs", as_json)
        done = perform(settled, place, folder, as_json, task.budget)
    if as_json:
        typer.echo(json.dumps(answer(done)))
    else:
        show(done)


select.__doc__ = EXAMPLES


@contextmanager
def _enough_memory(groups: str) -> Iterator[None]:
    """Advice where memory ends although `check_memory` foresaw nothing; torch says so in words."""
    from groupella.data import DataError

    try:
        yield
    except DataError:
        raise
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        raise ArgumentError(
            f"the networks for {groups} do not fit into memory ({error}). {LESS}, or a smaller "
            "--alpha"
        ) from error


def check_memory(job: Any, data_dir: str | None, advice: str = LESS) -> None:
    """Refuse groups whose bases this machine cannot hold; data are looked at only in doubt."""
    from groupella.runs.memory import largest_need, memory_of_machine

    groups, there = job.group_set(), memory_of_machine()
    if job.paths is not None or there is None or largest_need(groups, None) is None:
        return
    lattice = job.load(data_dir, progress=False).lattice
    need = largest_need(groups, lattice)
    if need is not None and need.bytes > there:
        size, machine = (f"{b / 2**30:.0f} GiB" for b in (need.bytes, there))
        raise ArgumentError(
            f"on {'×'.join(map(str, lattice))} images the maps that obey {need.group} and not "
            f"{' or '.join(need.larger)} take {size}, and this machine has {machine}. {advice}"
        )


def perform(
    job: Any, place: Path, data_dir: str | None, quiet: bool, budget: float | None = None
) -> Done:
    """Run, and turn Ctrl-C and SIGTERM into a message and an exit code."""
    from groupella.runs.run import run

    with saving(place):
        return run(job, place, budget=budget, data_dir=data_dir, progress=not quiet)


def show(done: Done) -> None:
    """The table, the sentence, and where the report is."""
    tell(done)
    typer.echo(f"report: {done.report}")


def tell(done: Done) -> None:
    """The table, with all numbers where the terminal is wide enough for them, and the sentence."""
    from rich.console import Console

    from groupella.report import sentence, shares_table

    console = Console()
    selection = done.content.selection
    console.print(selection.table() if console.width >= WIDE else shares_table(selection))
    console.print(f"[bold]{sentence(selection)}[/bold]", highlight=False)


def answer(done: Done) -> dict[str, Any]:
    """The answer for machines."""
    content = done.content
    log_evidence = content.selection.log_evidence
    return {
        "verdict": content.selection.verdict,
        "layers": content.selection.verdicts,
        "expected": content.expected,
        "log_evidence": log_evidence if math.isfinite(log_evidence) else None,
        "accuracy": content.outcome.accuracy,
        "nll": content.outcome.nll,
        "epochs": len(content.history),
        "directory": str(done.directory),
        "report": str(done.report),
    }


def _name(data: str, groups: str, seed: int, *moved: str | None) -> str:
    stem = Path(data).stem if "/" in data else data
    text = "-".join([stem, *filter(None, moved), groups, str(seed)])
    return "".join(c if c.isalnum() or c in "-+" else "-" for c in text)


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        typer.echo(text, err=True)
