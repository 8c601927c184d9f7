"""``groupella select``: which symmetries does this data set want?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupella._files import file_name
from groupella._schema import print_json
from groupella.runs.spelling import ArgumentError, complete_groups, group_set, one_group, seconds

from .errors import plain_errors, printable, saving
from .options import Alpha, AsJson, DataDir, Epochs, Groups, Seed, TrainSize, complete_data

if TYPE_CHECKING:
    from groupella.runs import Done, Job

WIDE = 130  # columns that the full table needs
LEAST_EPOCHS = 4
LONGEST_NAME = 80  # letters of a directory's name, without the digest


def select(
    groups: Groups = "z2,p4",
    data: Annotated[
        str,
        typer.Option(
            help="Data set such as mnist:rotated, .npz or .csv file, or folder of images.",
            autocompletion=complete_data,
        ),
    ] = "digits:quadrants",
    motion: Annotated[
        str | None,
        typer.Option(
            help="Move the images by random elements of this group: a name, or my_groups.py:NAME, "
            "which runs that file.",
            autocompletion=complete_groups,
        ),
    ] = None,
    obeys: Annotated[
        str | None,
        typer.Option(
            help="Subgroup of --motion: labels also tell how an image was moved, up to this group. "
            "By default labels stay the same.",
            autocompletion=complete_groups,
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="classes, regression or multilabel (default: as the targets of the data are)."
        ),
    ] = None,
    paths: Annotated[
        str | None,
        typer.Option(
            help="Train one network with these paths, such as F-FC+CONV+GCONV, and let the "
            "evidence choose (default: impose each group and test it on held-out data)."
        ),
    ] = None,
    confirm: Annotated[
        str,
        typer.Option(
            help="predictions: test what each group costs on held-out data; with --paths, the one "
            "that the evidence names. evidence: decide by the evidence alone, without tests."
        ),
    ] = "predictions",
    budget: Annotated[str, typer.Option(help="Training time: 90s, 5m, 1h30m.")] = "5m",
    out: Annotated[
        Path | None, typer.Option(help="Directory of the run (default: below runs/).")
    ] = None,
    epochs: Epochs = None,
    alpha: Alpha = 4,
    size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Resize images to this side length (default: images of more than 64×64 pixels are "
            "averaged to a size that the budget allows).",
        ),
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(help="How oblong images become square: crop, pad or stretch."),
    ] = None,
    train_size: TrainSize = None,
    data_dir: DataDir = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Find out which of the groups the labels obey, and train a network that obeys it.

    Trains a network for every group and one that obeys nothing, and tests each group on held-out
    data: by averaging predictions over it, and by imposing it. If the data cannot tell, the answer
    is "undecided".

    Examples:

      groupella select --groups z2,p4 --data digits:quadrants

      groupella select --groups z2,p4,flips --data mnist:rotated --budget 20m --out runs/rotated

      groupella select --groups my_groups.py:GROUPS --data my_images.npz --json

      groupella select --groups permutations --data sets.npz --task regression

      groupella select --groups z2,p4,p4m --data digits --motion p4m --obeys p4

    Ctrl-C saves a checkpoint; rerun the command to resume. A finished run is not repeated.
    """
    from groupella.data import FITS, KINDS, most_sites
    from groupella.runs import Job
    from groupella.runs.directory import Assignment
    from groupella.runs.jobs import TRAINING

    moved = "" if motion is None else f" moved by {motion}"
    moved += "" if obeys is None else f" with labels that obey {obeys}"
    with plain_errors("select"):
        limit = seconds(budget)
    search = "confirm" if paths is None else "paths"
    training: dict[str, Any] = dict(TRAINING) if search == "paths" else {}
    if search == "confirm" and confirm != "predictions":
        training["confirm"] = confirm
    job = Job(
        title=f"Which of {groups.replace(',', ', ')} does {data}{moved} obey?",
        data=data,
        groups=groups,
        motion=motion,
        obeys=obeys,
        size=size,
        fitting=fit,
        most=None if size is not None else most_sites(limit),
        train_size=train_size,
        paths=paths,
        increments=paths is None,
        alpha=alpha,
        seed=seed,
        search=search,
        training=training if epochs is None else {**training, "epochs": epochs},
        task=task,
        tested=search == "paths" and confirm == "predictions",
    )
    with plain_errors("select"), _enough_memory(groups):
        place = out or Path("runs") / _name(job, None if epochs is not None else limit)
        with saving(place):
            group_set(groups, points=3)  # only whether they can be understood
            if task is not None and task not in KINDS:
                raise ArgumentError(f"no --task {task}; expected one of {', '.join(KINDS)}")
            if fit is not None and fit not in FITS:
                raise ArgumentError(f"no --fit {fit}; expected one of {', '.join(FITS)}")
            if obeys is not None and motion is None:
                raise ArgumentError(f"--obeys {obeys} requires --motion")
            for one in (motion, obeys):
                if one is not None:
                    one_group(one)
            if confirm not in ("predictions", "evidence"):
                raise ArgumentError(f"no --confirm {confirm}; expected predictions or evidence")
            if search == "confirm":
                check_epochs(epochs)
            work = Assignment(job, place, limit if epochs is None else None, data_dir)
            say = lambda text: None if as_json else typer.echo(printable(text), err=True)  # noqa: E731
            done = work.do(not as_json, say)
    if as_json:
        typer.echo(print_json(answer(done)))
    else:
        show(done)


def check_epochs(epochs: int | None) -> None:
    """Raise if a search of so many epochs per training could not learn anything."""
    if epochs is not None and epochs < LEAST_EPOCHS:
        raise ArgumentError(
            f"--epochs {epochs} is too short to learn anything: give at least {LEAST_EPOCHS}"
        )


@contextmanager
def _enough_memory(groups: str) -> Iterator[None]:
    """Advise where memory ends unforeseen; torch raises RuntimeError for it."""
    from groupella.data import DataError

    try:
        yield
    except DataError:
        raise
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        raise ArgumentError(
            f"the networks for {groups} do not fit into memory ({error}). Give a smaller --size or "
            "--alpha, or leave out one of two groups without translations"
        ) from error


def show(done: Done) -> None:
    """Print the table, the sentence, and where the report is."""
    tell(done)
    typer.echo(printable(f"report: {done.report}"))


def tell(done: Done) -> None:
    """Print the table, with all numbers if the terminal is wide enough, and the sentence."""
    from rich.console import Console
    from rich.text import Text

    from groupella.report import consequences_table, sentence, shares_table

    console = Console()
    selection = done.content.selection
    if done.content.consequences:
        console.print(consequences_table(done.content.consequences))
    if done.job.search == "paths" or not done.content.consequences:
        console.print(selection.table() if console.width >= WIDE else shares_table(selection))
    console.print(Text(sentence(selection), style="bold"))


def answer(done: Done) -> dict[str, Any]:
    """The answer for JSON."""
    from groupella.report import next_steps

    content = done.content
    judgement = content.selection.judgement
    log_evidence = content.selection.log_evidence
    return {
        "verdict": content.selection.verdict,
        "probability": None if judgement is None else judgement.probability,
        "reason": None if judgement is None else judgement.reason,
        "consequences": [asdict(row) for row in content.consequences],
        "layers": content.selection.verdicts,
        "size": content.settings.get("size"),
        "remarks": list(content.remarks),
        "expected": content.expected,
        "log_evidence": log_evidence if math.isfinite(log_evidence) else None,
        "accuracy": content.held_out.accuracy,
        "nll": content.held_out.nll,
        "scores": dict(content.held_out.scores),
        "next": list(next_steps(content)),
        "epochs": len(content.history),
        "directory": str(done.directory),
        "report": str(done.report),
    }


def _name(job: Job, budget: float | None) -> str:
    """What the job is about, in words, and a digest that differs between jobs."""
    stem = Path(job.data).stem if "/" in job.data else job.data
    words = (stem, job.motion, job.obeys, job.groups, str(job.seed))
    text = "-".join(word for word in words if word)[:LONGEST_NAME]
    return file_name(f"{text}-{job.digest(budget)}")
