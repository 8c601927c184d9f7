"""docs/evidence.md and docs/training.md run as written, and print what they say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["evidence.md", "training.md"])
def test_guide_runs_and_prints_what_it_says(name: str) -> None:
    text = (DOCS / name).read_text("utf-8")
    namespace: dict[str, object] = {}
    printed = ""
    for kind, code in re.findall(r"```(python|text)\n(.*?)```", text, re.DOTALL):
        if kind == "text":
            assert printed == code
            continue
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, name, "exec"), namespace)
        printed = output.getvalue()


def test_the_loop_of_the_guide_is_ten_lines() -> None:
    text = (DOCS / "evidence.md").read_text("utf-8")
    loop = re.search(r"The loop:\n\n```python\n(.*?)```", text, re.DOTALL)
    assert loop is not None
    assert len(loop[1].strip().splitlines()) <= 10
