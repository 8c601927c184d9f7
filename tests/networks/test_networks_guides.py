"""docs/networks.md and docs/equivariance-testing.md run as written, and print what they say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from groupella.networks.__main__ import main

DOCS = Path(__file__).parents[2] / "docs"


def test_the_networks_guide_runs_and_prints_what_it_says() -> None:
    text = (DOCS / "networks.md").read_text("utf-8")
    blocks = re.findall(r"```(python|text)\n(.*?)```", text, re.DOTALL)
    assert sum(kind == "text" for kind, _ in blocks) == 2
    namespace: dict[str, object] = {}
    printed = ""
    for kind, code in blocks:
        if kind == "text":
            assert printed == code
            continue
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, namespace)
        printed = output.getvalue()


def test_the_table_in_the_guide_is_the_one_that_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (DOCS / "networks.md").read_text("utf-8")
    main([])
    assert f"$ python -m groupella.networks\n{capsys.readouterr().out}```" in text


def test_the_testing_guide_runs() -> None:
    text = (DOCS / "equivariance-testing.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    exec("\n".join(blocks), {})
