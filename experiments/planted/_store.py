"""Finished cases, one JSON file each, so that a benchmark that was interrupted goes on.

A file is used again only when it was written by the same recipe: the settings that decide a
case's outcome.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupella._files import write_text

from ._outcome import Outcome


def saved(directory: Path, key: str, recipe: Mapping[str, Any]) -> Outcome | None:
    """The outcome of a finished case; None when there is none of this recipe."""
    path = directory / f"{key}.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    if content.get("recipe") != json.loads(json.dumps(recipe)):
        return None
    return Outcome.from_dict(content["outcome"])


def save(directory: Path, outcome: Outcome, recipe: Mapping[str, Any]) -> None:
    content = {"recipe": recipe, "outcome": outcome.as_dict()}
    write_text(directory / f"{outcome.key}.json", json.dumps(content, indent=1) + "\n")
