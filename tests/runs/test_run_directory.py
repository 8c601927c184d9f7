"""A run's directory: claimed first, never somebody else's, and verified when it is opened."""

from __future__ import annotations

import json
import math
import os
import shutil
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from groupella._files import alone, replacing
from groupella._schema import print_json
from groupella.cli.app import app
from groupella.runs import Job, RunError, directory, load, run
from groupella.runs.directory import Assignment, redraw
from groupella.runs.record import Record
from groupella.training import EpochRecord

TINY = Job(
    title="tiny",
    data="digits",
    groups="z2",
    train_size=40,
    alpha=1,
    hidden=2,
    blocks=((1, 2),),
    training={"epochs": 2, "burn_in": 1, "curvature_subset": 10, "method": "map"},
)
SELECT = ["select", "--groups", "z2", "--train-size", "60", "--epochs", "4", "--json"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "tiny"
    run(TINY, place, progress=False)
    return place


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def cli(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def contents(place: Path) -> dict[str, bytes]:
    return {str(p.relative_to(place)): p.read_bytes() for p in place.rglob("*") if p.is_file()}


def test_a_job_that_is_refused_because_another_is_running_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first job's result was later returned as the second's."""
    place = tmp_path / "run"
    monkeypatch.setattr(directory, "alone", partial(alone, patience=0.0))
    refused = []

    def meanwhile(_: EpochRecord) -> None:
        def other() -> None:
            with pytest.raises(RunError, match="is in use"):
                run(replace(TINY, seed=5), place, progress=False)
            refused.append(True)

        if not refused:
            (thread := threading.Thread(target=other)).start()
            thread.join()

    run(TINY, place, progress=False, on_epoch=meanwhile)
    assert refused
    assert load(place).job == TINY
    with pytest.raises(RunError, match=r"holds another run: seed=0 there, 5 here"):
        run(replace(TINY, seed=5), place, progress=False)


def test_select_in_use_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "alone", partial(alone, patience=0.0))
    with alone(tmp_path / "run"):
        result = cli(*SELECT, "--alpha", "1", "--out", str(tmp_path / "run"))
    assert result.exit_code == 2
    assert result.output.endswith("wait until it has ended, or choose another directory\n")
    assert list((tmp_path / "run").iterdir()) == []


def test_every_option_of_select_has_a_default_directory_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    monkeypatch.setattr(Assignment, "do", lambda self, *_: seen.append(self.directory) or 1 / 0)
    base = ["select", "--groups", "z2", "--data", "digits"]
    changes: list[list[str]] = [
        [],
        ["--alpha", "2"],
        ["--epochs", "9"],
        ["--size", "8"],
        ["--paths", "F-FC+CONV"],
        ["--train-size", "50"],
        ["--budget", "7m"],
        ["--seed", "1"],
    ]
    for change in [*changes, []]:
        cli(*base, *change)
    assert len(set(seen)) == len(changes) == len(seen) - 1
    assert all(place.parent == Path("runs") for place in seen)
    assert seen[0] == seen[-1]


@pytest.mark.parametrize(
    "name", ["report.html", "history.json", "figures/mine.png", "notes.txt", "last.safetensors"]
)
def test_somebodys_own_files_are_refused_and_kept(tmp_path: Path, name: str) -> None:
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(RunError, match="is not the directory of a run"):
        run(TINY, tmp_path, progress=False)
    assert contents(tmp_path) == {name: b"mine"}


@pytest.mark.parametrize("target", ["nowhere", "run"])
def test_a_link_to_nothing_is_refused_in_plain_words(tmp_path: Path, target: str) -> None:
    place = tmp_path / "run"
    place.symlink_to(tmp_path / target)
    with pytest.raises(RunError, match="run is a link to nothing; a run needs a directory"):
        run(TINY, place, progress=False)


def test_a_full_disk_is_reported_with_the_file(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match=r"No space left on device: '.*report\.json'"),
        replacing(tmp_path / "report.json"),
    ):
        raise OSError(28, "No space left on device")  # as a write does: without a name
    with pytest.raises(IsADirectoryError, match="expected a file"), replacing(tmp_path):
        pass
    with pytest.raises(OSError, match=r"^cannot write it$"), replacing(tmp_path / "a"):
        raise OSError("cannot write it")


def test_what_a_killed_process_left_before_it_began_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".settings.json.1.0123.tmp").write_text("{")
    assert run(TINY, tmp_path, progress=False).fit is not None


@pytest.mark.parametrize("search", ["paths", "confirm"])
def test_every_epoch_is_told_in_both_searches(tmp_path: Path, search: str) -> None:
    told: list[EpochRecord] = []
    training = {**TINY.training, "epochs": 4}
    run(
        replace(TINY, search=search, training=training),
        tmp_path,
        progress=False,
        on_epoch=told.append,
    )
    recorded = [json.loads(file.read_text()) for file in tmp_path.rglob("history.json")]
    assert len(recorded) == 1 if search == "paths" else len(recorded) > 1
    assert len(told) == sum(map(len, recorded)) > 0


def test_a_run_cut_to_its_budget_is_another_run_for_more_data(tmp_path: Path) -> None:
    asked = replace(TINY, train_size=200)
    cut = replace(TINY, train_size=50)
    tmp_path.joinpath("run").mkdir()
    Record.of(cut, 60.0, asked).save(tmp_path / "run")
    assert Assignment(asked, tmp_path / "run", 60.0).settled == cut
    for size in (400, 50, None):
        with pytest.raises(RunError, match="holds another run: train_size=200 there"):
            _ = Assignment(replace(TINY, train_size=size), tmp_path / "run", 60.0).settled


@pytest.mark.parametrize(
    "name",
    ["settings.json", "history.json", "last.safetensors", "best.safetensors", "report.json"],
)
@pytest.mark.parametrize("damage", ["altered", "emptied", "deleted"])
def test_a_damaged_file_of_a_finished_run_is_named(copy: Path, name: str, damage: str) -> None:
    file = copy / name
    if damage == "altered":
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif damage == "emptied":
        file.write_bytes(b"")
    else:
        file.unlink()
    before = contents(copy)
    for act in (lambda: load(copy), lambda: redraw(copy), lambda: run(TINY, copy, progress=False)):
        with pytest.raises(RunError, match=name.replace(".", r"\.")) as caught:
            act()
        assert "\n" not in str(caught.value)
    assert contents(copy) == before


@pytest.mark.parametrize("name", ["report.html", "selection.json", "figures/curves.png"])
def test_what_can_be_drawn_again_is_named_and_drawn_again(copy: Path, name: str) -> None:
    before = contents(copy)
    (copy / name).unlink()
    result = cli("inspect", str(copy))
    assert result.exit_code == 2
    assert f"{name} is missing. groupella inspect {copy} --redraw writes it again" in result.output
    assert cli("inspect", str(copy), "--redraw").exit_code == 0
    assert (copy / name).exists()
    assert cli("inspect", str(copy), "--json").exit_code == 0
    assert contents(copy).keys() == before.keys()


def test_a_damaged_mark_is_named_and_a_deleted_one_resumes(copy: Path) -> None:
    whole = (copy / "finished.json").read_text()
    for text in ("", "{}", "[]", whole[: len(whole) // 2], whole.replace("groupella-run", "mine")):
        (copy / "finished.json").write_text(text)
        with pytest.raises(RunError, match=r"finished\.json does not mark a finished run"):
            load(copy)
    (copy / "finished.json").unlink()
    with pytest.raises(RunError, match="is not finished; rerun the command to resume"):
        load(copy)
    again = run(TINY, copy, progress=False)
    assert again.fit is not None
    assert load(copy).content.history.as_list() == again.content.history.as_list()


def test_json_answers_are_strict(copy: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    found = cli("inspect", str(copy), "--json")
    assert json.loads(found.stdout, parse_constant=refuse)["job"]["title"] == "tiny"
    for file in copy.rglob("*.json"):
        json.loads(file.read_text(), parse_constant=refuse)
    assert print_json({"a": math.nan, "b": (-math.inf, 1.5)}) == '{"a": null, "b": [null, 1.5]}'


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_temporary_files_are_new_and_their_names_cannot_be_foreseen(tmp_path: Path) -> None:
    file = tmp_path / "a*b.json"
    with replacing(file) as one, replacing(file) as two:
        for temporary in (one, two):
            folder = temporary.parent
            assert folder.parent == tmp_path
            assert folder.stat().st_mode & 0o777 == 0o700
            assert len(folder.name.split(".")[-2]) == 16
            temporary.write_text("1")
        assert one.parent != two.parent
    assert [p.name for p in tmp_path.iterdir()] == [file.name]
    (tmp_path / "plain").touch()
    assert file.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_a_killed_process_left_goes_even_if_its_number_is_in_use_again(tmp_path: Path) -> None:
    place = tmp_path / "run"
    left = place / f".last.safetensors.{os.getppid()}.0123456789abcdef.tmp"
    left.mkdir(parents=True)
    (left / "last.safetensors").write_bytes(b"half")
    run(TINY, place, progress=False)
    assert not left.exists()
