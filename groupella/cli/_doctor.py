"""``groupella doctor``: check the installation."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

EXAMPLES = """
Check the installation: packages, hardware, and an equivariance test.

Examples:

  groupella doctor

  groupella doctor --json

The exit code is 1 if a check fails; the command that repairs it is printed.
"""


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the findings as JSON and nothing else.")
    ] = False,
) -> None:
    from ._installation import examine

    findings = []
    for finding in examine():
        findings.append(finding)
        if not as_json:
            mark = "ok" if finding.ok else "FAILED"
            typer.echo(f"{mark:>6}  {finding.name:<13} {finding.text}")
    failed = [finding for finding in findings if not finding.ok]
    if as_json:
        typer.echo(json.dumps({"sound": not failed, "findings": [asdict(f) for f in findings]}))
    elif failed:
        typer.echo(f"Failed: {', '.join(finding.name for finding in failed)}.", err=True)
        for finding in failed:
            if finding.remedy:
                typer.echo(f"To repair: {finding.remedy}", err=True)
    else:
        typer.echo("All checks passed.")
    if failed:
        raise typer.Exit(1)


doctor.__doc__ = EXAMPLES
