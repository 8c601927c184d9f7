"""``groupella demo``: the method at work on embedded data, in under three minutes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from ._select import answer, perform, tell
from .errors import plain_errors

EXAMPLES = """
Watch groupella tell two tasks apart that differ only in the symmetry of their labels.

Handwritten digits are shifted and turned by multiples of 90 degrees. One network is asked for the
digit, which shifts and turns leave alone; another also for how far it was turned, which only shifts
leave alone. Both may use no symmetry, z2 (shifts) or p4 (shifts and turns) in every layer, and
both must find out from the training data.

Examples:

  groupella demo

  groupella demo --seed 3 --json

The exit code is 1 when a verdict is not what the labels were made with.
"""


def demo(
    seed: Annotated[int, typer.Option(min=0, help="Of data, weights and order.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Where the runs go; by default runs/demo-SEED.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the two verdicts and 'right' as JSON.")
    ] = False,
) -> None:
    import torch

    from groupella.report import obeys, write_report
    from groupella.runs.presets import demo_jobs

    # The networks are small: on a busy machine threads would only wait for each other.
    torch.set_num_threads(1)
    started = time.perf_counter()
    place = out or Path("runs") / f"demo-{seed}"
    done = []
    with plain_errors("demo"):
        for job in demo_jobs(seed):
            if not as_json:
                typer.echo(f"\n{job.title}  (labels obey {job.obeys})")
            one = perform(job, place / str(job.obeys), None, as_json)
            done.append(one)
            if not as_json:
                tell(one)
    verdicts = {str(one.job.obeys): one.content.selection.verdict for one in done}
    right = all(found == wanted for wanted, found in verdicts.items())
    turned, asked = (one.content.selection.verdict for one in done)
    words = (
        f"Asked only which digit it is, the network {obeys(turned)}. "
        f"Asked also how it was turned, it {obeys(asked)}."
    )
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
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"\n{words}")
        typer.echo(
            "That is how the labels were made." if right else "The labels were made otherwise!"
        )
        typer.echo(f"report: {report}   ({taken:.0f} s)")
    if not right:
        raise typer.Exit(1)


demo.__doc__ = EXAMPLES
