"""docs/custom-paths.md runs as written, and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "custom-paths.md"


def test_guide_runs_and_prints_what_it_says() -> None:
    blocks = re.findall(r"```(python|text)\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert sum(kind == "text" for kind, _ in blocks) == 3
    namespace: dict[str, object] = {}
    printed = ""
    for kind, code in blocks:
        if kind == "text":
            assert printed == code
            continue
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, str(GUIDE), "exec"), namespace)
        printed = output.getvalue()
