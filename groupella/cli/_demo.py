"""``groupella demo``: the method at work on embedded data, in under three minutes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from groupella._schema import print_json
from groupella.runs import Job

from ._select import answer, tell
from .errors import plain_errors, saving
from .options import AsJson, Seed

TASKS = {"which digit?": "p4", "which digit, turned how?": "z2"}
# Without 0, 1 and 8, which are nearly their own half turns, and 9, which is nearly that of 6.
DIGITS = "2,3,4,5,6,7"


def demo(
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Output directory (default: runs/demo-SEED).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell apart two tasks that differ only in the symmetry of their labels.

    Handwritten digits are shifted and turned by multiples of 90 degrees. One task asks for the
    digit, which shifts and turns do not change; the other also asks for the turn, which shifts do
    not change. The candidates are z2 (shifts) and p4 (shifts and quarter turns). The verdicts come
    from the training data alone.

    Examples:

      groupella demo

      groupella demo --seed 3 --json

    The exit code is 1 if a verdict is not the symmetry that the labels were made with.
    """
    import torch

    from groupella.report import obeys, write_report
    from groupella.runs.directory import Assignment
    from groupella.runs.record import check_ours

    # The networks are small: on a busy machine threads would only wait for each other.
    torch.set_num_threads(1)
    started = time.perf_counter()
    place = out or Path("runs") / f"demo-{seed}"
    done = []
    with plain_errors("demo"):
        check_ours(place, ["report.html"])
        for job in demo_jobs(seed):
            if not as_json:
                typer.echo(f"\n{job.title}  (labels obey {job.obeys})")
            with saving(place / str(job.obeys)):
                done.append(Assignment(job, place / str(job.obeys)).do(progress=not as_json))
            if not as_json:
                tell(done[-1])
    verdicts = {str(one.job.obeys): one.content.selection.verdict for one in done}
    right = all(found == wanted for wanted, found in verdicts.items())
    digit, turn = verdicts.values()
    words = f"Asked only which digit it is, the network {obeys(digit)}. "
    words += f"Asked also how it was turned, it {obeys(turn)}."
    with plain_errors("demo"):
        report = write_report([one.content for one in done], place / "report.html", words)
    taken = time.perf_counter() - started
    if as_json:
        found = {
            "seed": seed,
            "verdicts": verdicts,
            "right": right,
            "seconds": round(taken, 1),
            "tasks": [answer(one) for one in done],
            "report": str(report),
        }
        typer.echo(print_json(found))
    else:
        typer.echo(f"\n{words}")
        made = "That is how the labels were made." if right else "The labels were made differently!"
        typer.echo(f"{made}\nreport: {report}   ({taken:.0f} s)")
    if not right:
        raise typer.Exit(1)


def demo_jobs(seed: int) -> list[Job]:
    """Two tasks on the same turned and shifted digits, whose labels have different symmetries."""
    return [
        Job(
            title=f"Turned digits: {question}",
            data="digits",
            groups="trivial,z2,p4",
            motion="p4",
            obeys=obeys,
            keep=DIGITS,
            seed=seed,
            search="confirm",
        )
        for question, obeys in TASKS.items()
    ]
