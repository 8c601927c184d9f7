"""The guides run as written, and print what they say.

The python blocks of a page run one after the other in one namespace; a text block shows what the
python block before it printed.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from groupella.networks.__main__ import main as print_networks

DOCS = Path(__file__).parents[2] / "docs"
SHOWN = {
    "bases.md": 7,
    "continuous-groups.md": 11,
    "curvature.md": 3,
    "custom-groups.md": 6,
    "custom-paths.md": 3,
    "data.md": 5,
    "evidence.md": 5,
    "groups.md": 4,
    "layers.md": 11,
    "networks.md": 5,
    "planted.md": 1,
    "python.md": 4,
    "selecting.md": 4,
    "training.md": 2,
}


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


@pytest.mark.parametrize("name", SHOWN)
def test_the_guide_runs_and_prints_what_it_says(name: str) -> None:
    blocks = re.findall(r"```(python|text)\n(.*?)```", page(name), re.DOTALL)
    assert sum(kind == "text" for kind, _ in blocks) == SHOWN[name]
    namespace: dict[str, object] = {}
    printed = ""
    for kind, code in blocks:
        if kind == "text":
            assert printed == code
            continue
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, name, "exec"), namespace)
        printed = output.getvalue()


@pytest.mark.slow
def test_the_first_lines_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert "The labels obey s4" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "network"}


def test_the_testing_guide_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", page("equivariance-testing.md"), re.DOTALL)
    assert len(blocks) == 5
    exec("\n".join(blocks), {})


def test_the_table_of_networks_is_the_one_that_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_networks([])
    printed = capsys.readouterr().out
    assert f"$ python -m groupella.networks\n{printed}```" in page("networks.md")


def test_the_loop_of_the_evidence_guide_is_ten_lines() -> None:
    loop = re.search(r"The loop:\n\n```python\n(.*?)```", page("evidence.md"), re.DOTALL)
    assert loop is not None
    assert len(loop[1].strip().splitlines()) <= 10
