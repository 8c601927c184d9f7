"""``groupella doctor``: is this installation sound?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

EXAMPLES = """
Check this installation: versions, hardware, and an equivariance self-check.

Examples:

  groupella doctor

  groupella doctor --json

The exit code is 1 when something is not sound.
"""


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was found as JSON, and nothing else.")
    ] = False,
) -> None:
    from ._installation import examine

    findings = []
    for finding in examine():
        findings.append(finding)
        if not as_json:
            mark = "ok" if finding.ok else "FAILED"
            typer.echo(f"{mark:>6}  {finding.name:<13} {finding.text}")
    failed = [finding.name for finding in findings if not finding.ok]
    if as_json:
        found = [{"name": f.name, "ok": f.ok, "text": f.text} for f in findings]
        typer.echo(json.dumps({"sound": not failed, "findings": found}))
    elif failed:
        typer.echo(f"Not sound: {', '.join(failed)}.", err=True)
    else:
        typer.echo("All is well.")
    if failed:
        raise typer.Exit(1)


doctor.__doc__ = EXAMPLES
