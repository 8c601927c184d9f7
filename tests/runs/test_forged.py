"""Files that are sound but not what we wrote: their digests match, their values make no sense."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import groupella
from groupella.cli.app import app
from groupella.runs import Job, RunError, load, run
from groupella.runs.marker import mark
from groupella.training import Checkpoint, load_checkpoint, save_checkpoint

TINY = Job(
    title="tiny",
    data="digits",
    groups="z2",
    train_size=40,
    alpha=1,
    hidden=2,
    blocks=((1, 2),),
    training={"epochs": 2, "batch_size": 20, "method": "map", "checkpoint_every": 1},
)
WRONG = (None, True, -1, 1e300, 10**30, "nan", "\x1b[2J", [], {}, [[1]], {"a": 1})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("forged") / "run"
    run(TINY, place, progress=False)
    return place


def places(value: Any, found: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in JSON: of a list, its first element."""
    if not isinstance(value, dict | list):
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value[:1]):
        yield (*found, key)
        yield from places(inner, (*found, key))


def replaced(text: str, where: tuple[Any, ...], value: Any) -> str:
    content = json.loads(text)
    inner = content
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    return json.dumps(content)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["settings.json", "report.json", "finished.json"])
def test_every_wrong_value_in_json_is_one_line_or_harmless(
    done: Path, tmp_path: Path, name: str
) -> None:
    """The forger also writes the digests again, so that only the values can give it away."""
    copy = Path(shutil.copytree(done, tmp_path / "run"))
    text = (copy / name).read_text("utf-8")
    refused = []
    for number, where in enumerate(list(places(json.loads(text)))):
        (copy / name).write_text(replaced(text, where, WRONG[number % len(WRONG)]))
        if name != "finished.json":
            mark(copy)
        try:
            load(copy)
        except RunError as error:
            refused.append(str(error))
    assert len(refused) > 10
    assert not [words for words in refused if "\n" in words]


def test_a_forged_report_says_nothing_to_the_terminal(done: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(done, tmp_path / "run"))
    file = copy / "report.json"
    file.write_text(replaced(file.read_text("utf-8"), ("title",), "\x1b]0;mine\x07"))
    mark(copy)
    result = CliRunner().invoke(app, ["inspect", str(copy)])
    assert result.exit_code == 2
    assert "title must be text without control characters" in result.output
    assert "\x1b" not in result.output


def test_names_of_files_reach_the_terminal_without_control_characters(tmp_path: Path) -> None:
    place = tmp_path / "\x1b[2Jrun"
    place.mkdir()
    for arguments in (["inspect", str(place)], ["select", "--data", f"{place}.npz"]):
        result = CliRunner().invoke(app, [*arguments])
        assert result.exit_code == 2
        assert r"\x1b[2Jrun" in result.output
        assert "\x1b" not in result.output


Forge = Callable[[dict[str, torch.Tensor], dict[str, Any]], object]
FORGED: dict[str, Forge] = {
    "nothing": lambda tensors, state: (tensors.clear(), state.clear()),
    "no counters": lambda tensors, state: state.pop("counters"),
    "counters of text": lambda tensors, state: state.update(counters="three"),
    "epoch -1": lambda tensors, state: state["counters"].update(epoch=-1),
    "epoch 1e9": lambda tensors, state: state["counters"].update(epoch=10**9),
    "a huge integer": lambda tensors, state: state["counters"].update(epoch=10**30),
    "no history": lambda tensors, state: state.update(history=[]),
    "history of numbers": lambda tensors, state: state.update(history=[1, 2]),
    "no optimisers": lambda tensors, state: state.update(optimisers={}),
    "optimisers of lists": lambda tensors, state: state.update(optimisers=[[]]),
    "random of numbers": lambda tensors, state: state.update(random=[1]),
    "threads of text": lambda tensors, state: state.update(threads="two"),
    "fingerprint of null": lambda tensors, state: state.update(fingerprint=None),
    "other settings": lambda tensors, state: state.update(settings={"epochs": "two"}),
    "fewer tensors": lambda tensors, state: tensors.pop(
        next(name for name in tensors if name.startswith("network/"))
    ),
    "other shapes": lambda tensors, state: tensors.update(
        {n: torch.zeros(1, 1) for n in tensors if n.startswith("network/")}
    ),
    "other types": lambda tensors, state: tensors.update(
        {n: torch.zeros(3, dtype=torch.bool) for n in tensors if n.startswith("random/")}
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_checkpoint_is_refused_in_one_line(done: Path, tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(done, tmp_path / "run"))
    (copy / "finished.json").unlink()
    file = copy / "last.safetensors"
    sound = load_checkpoint(file)
    tensors, state = dict(sound.tensors), json.loads(json.dumps(dict(sound.state)))
    FORGED[name](tensors, state)
    save_checkpoint(file, Checkpoint(tensors, state))
    before = file.read_bytes()
    with pytest.raises(RunError) as caught:
        run(TINY, copy, progress=False)
    assert "\n" not in str(caught.value)
    assert "last.safetensors" in str(caught.value)
    assert file.read_bytes() == before


STATES: dict[str, Forge] = {
    "no recipe": lambda tensors, state: state.pop("recipe"),
    "a recipe of text": lambda tensors, state: state.update(recipe="cake"),
    "a recipe of nothing": lambda tensors, state: state.update(recipe={}),
    "inputs of a list": lambda tensors, state: state.update(inputs=[1]),
    "inputs of text": lambda tensors, state: state["inputs"].update(mean="zero"),
    "targets of nothing": lambda tensors, state: state.update(targets=None),
    "targets of another kind": lambda tensors, state: state["targets"].update(kind="colours"),
    "a temperature of text": lambda tensors, state: state.update(temperature="hot"),
    "no temperature above zero": lambda tensors, state: state.update(temperature=-1.0),
    "no tensors": lambda tensors, state: tensors.clear(),
    "uncertainty of text": lambda tensors, state: state.update(uncertainty="much"),
    "uncertainty of nothing": lambda tensors, state: state.update(uncertainty={}),
}


@pytest.mark.parametrize("name", STATES)
def test_a_forged_network_is_refused_in_one_line(done: Path, tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(done, tmp_path / "run"))
    file = copy / "network.safetensors"
    sound = load_checkpoint(file)
    tensors, state = dict(sound.tensors), json.loads(json.dumps(dict(sound.state)))
    STATES[name](tensors, state)
    save_checkpoint(file, Checkpoint(tensors, state))
    with pytest.raises(ValueError, match=r"network\.safetensors") as caught:
        groupella.load(copy)
    assert "\n" not in str(caught.value)
