"""``groupella export``: the network of a run, for use without groupella."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .errors import plain_errors


def export(
    run: Annotated[Path, typer.Argument(help="Directory of a run.")],
    form: Annotated[str, typer.Option("--format", help="torch, safetensors or onnx.")] = "torch",
    out: Annotated[
        Path | None, typer.Option(help="Output directory (default: NAME-network for a run NAME).")
    ] = None,
) -> None:
    """Write the trained network of a run so that it loads without groupella.

    Writes the weights, and network.py with a module of nothing but torch. The network takes raw
    inputs (n, channels, *lattice); its outputs are logits, or targets in their own units.

    Examples:

      groupella export runs/rotated

      groupella export runs/rotated --format safetensors --out model

    The weights load with torch.load(weights_only=True), or with safetensors.
    """
    from groupella.answers import load

    with plain_errors("export"):
        answer = load(run)
        for file in answer.export(out or Path(f"{run.resolve().name}-network"), form):
            typer.echo(file)
