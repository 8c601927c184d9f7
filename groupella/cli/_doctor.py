"""``groupella doctor``: is this installation sound?"""

from __future__ import annotations

import typer


def doctor() -> None:
    """Check this installation: versions, hardware, and an equivariance self-check."""
    from groupella.doctor import examine

    failed = []
    for finding in examine():
        mark = "ok" if finding.ok else "FAILED"
        typer.echo(f"{mark:>6}  {finding.name:<13} {finding.text}")
        if not finding.ok:
            failed.append(finding.name)
    if failed:
        typer.echo(f"Not sound: {', '.join(failed)}.", err=True)
        raise typer.Exit(1)
    typer.echo("All is well.")
