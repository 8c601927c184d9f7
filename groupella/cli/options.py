"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from groupella.runs.spelling import complete_groups

LARGEST_SEED = 2**63 - 1


def complete_data(incomplete: str) -> list[str]:
    """Names of data sets, alone and with each transformation."""
    from groupella.data import BASES, TRANSFORMS

    names = [*BASES, *(f"{b}:{t}" for b in BASES for t in TRANSFORMS)]
    return [name for name in names if name.startswith(incomplete)]


Groups = Annotated[
    str,
    typer.Option(
        help="Groups to choose from: names, or my_groups.py:GROUPS, which runs that file.",
        autocompletion=complete_groups,
    ),
]
Seed = Annotated[
    int,
    typer.Option(min=0, max=LARGEST_SEED, help="Random seed for data, weights and batch order."),
]
Epochs = Annotated[int | None, typer.Option(min=1, help="Number of epochs, instead of a budget.")]
Alpha = Annotated[int, typer.Option(min=1, help="Width of the networks.")]
TrainSize = Annotated[
    int | None, typer.Option(min=1, help="Train on a random subset of this size (default: all).")
]
DataDir = Annotated[
    str | None, typer.Option(help="Data directory (default: $GROUPELLA_DATA, or a cache).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
