"""The benchmark as a study of `groupella reproduce`: its presets, and its summary in two files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from groupella._files import write_text
from groupella.runs.record import versions

from ._outcome import Outcome
from ._report import markdown_table, summary
from ._runner import Case
from ._store import saved

# The scales of a study, as presets of the benchmark.
SCALES = {"quick": "quick", "hour": "hour", "paper": "full"}


def finished(cases: Sequence[Case], directory: Path) -> list[Outcome]:
    """The outcomes of those cases that are finished there."""
    found = (saved(directory, case.key, case.recipe) for case in cases)
    return [outcome for outcome in found if outcome is not None]


def write_summary(
    directory: Path, outcomes: Sequence[Outcome], preset: str, title: str
) -> dict[str, Any]:
    """summary.json and summary.md, with the versions that made them; what the first holds."""
    content = {**summary(outcomes, preset), "versions": versions()}
    parts = [f"# {title}", markdown_table(outcomes)]
    for heading in ("not_right", "dropped"):
        if content[heading]:
            lines = "\n".join(f"- {line}" for line in content[heading])
            parts.append(f"{heading.replace('_', ' ').capitalize()}:\n\n{lines}")
    parts.append(", ".join(f"{name} {number}" for name, number in content["versions"].items()))
    text = json.dumps(content, indent=1, ensure_ascii=False)
    write_text(directory / "summary.json", text + "\n")
    write_text(directory / "summary.md", "\n\n".join(part.strip() for part in parts) + "\n")
    return content
