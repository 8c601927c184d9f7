"""Tasks of `select` have the symmetry that they claim, and verdicts are counted rightly."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from groupella.cli.app import app
from groupella.decide.claims import Consequence
from groupella.experiments.planted import (
    PRESETS,
    CaseResult,
    Planted,
    headline,
    select_table,
    summary,
)
from groupella.experiments.planted import _select as select
from groupella.experiments.planted import _select_tasks as tasks
from groupella.experiments.planted._presets import Tasks
from groupella.groups import GroupSet, flips, p4, p4m, z2

Image = Any
MOTIONS: dict[str, Callable[[Image], Image]] = {
    "down": lambda x: np.roll(x, 1, 1),
    "right": lambda x: np.roll(x, 1, 2),
    "mirror": lambda x: x[:, :, ::-1],
    "turn": lambda x: np.rot90(x, axes=(1, 2)),
    "glide": lambda x: np.roll(x[:, :, ::-1], 1, 1),
}
OBEYED = {
    "z2": {"down", "right"},
    "flips": {"down", "right", "mirror", "glide"},
    "p4": {"down", "right", "turn"},
    "p4m": {"down", "right", "mirror", "turn", "glide"},
    "glide": {"right", "glide"},
}


def obeyed(
    x: Image, key: Callable[[Image], list[Any]], labels: Any, motions: set[str] | None = None
) -> set[str]:
    """The motions that keep the label of every image, found by looking moved images up by `key`."""
    known = dict(zip(key(x), labels, strict=True))
    found = set()
    for name in motions or MOTIONS:
        pairs = zip(key(MOTIONS[name](x)), labels, strict=True)
        seen = [known[k] == label for k, label in pairs if k in known]
        assert len(seen) > 0.9 * len(x)
        if all(seen):
            found.add(name)
    return found


def wave(x: Image) -> list[tuple[int, int]]:
    """The wave vector of each grating, from its spectrum, up to its sign."""
    side = x.shape[-1]
    spectrum = np.abs(np.fft.fft2(x))[:, : side // 2].reshape(len(x), -1)
    return [divmod(int(k), side) for k in spectrum.argmax(1)]


def up_to_shifts(x: Image) -> list[bytes]:
    """A name for each mask that does not depend on its position on the torus."""
    side = x.shape[-1]
    shifts = [(a, b) for a in range(side) for b in range(side)]
    return [min(np.roll(m, s, (0, 1)).tobytes() for s in shifts) for m in x]


@pytest.mark.parametrize("truth", ["z2", "flips", "p4", "p4m"])
def test_labels_of_textures_obey_the_truth_and_no_more(truth: str) -> None:
    x, y = tasks.textures(truth, np.random.default_rng(0), n=300, noise=0.0)
    assert obeyed(x, wave, y) == OBEYED[truth]


@pytest.mark.parametrize("truth", ["z2", "flips", "glide"])
def test_labels_of_footprints_obey_the_truth_and_no_more(truth: str) -> None:
    x, y = tasks.footprints(truth, np.random.default_rng(0), n=3000, noise=0.0)
    motions = set(MOTIONS) - {"turn"}  # turned shapes are not in the data
    assert obeyed(x, lambda images: [i.tobytes() for i in images], y, motions) == OBEYED[truth]


@pytest.mark.parametrize(
    ("kinds", "told", "truth"),
    [
        (tasks.HANDED, tasks.ALL_HANDED, "p4"),
        (tasks.HANDED, frozenset(), "p4m"),
        (tasks.FEW, tasks.ALL_HANDED, "p4"),
    ],
    ids=["handed", "mirrored", "few handed"],
)
def test_labels_of_shapes_obey_the_truth_and_no_more(kinds: Any, told: Any, truth: str) -> None:
    x, y = tasks.shapes(kinds, told, np.random.default_rng(0), n=150, side=8, noise=0.0)
    masks = x[..., 0] > 105
    assert obeyed(masks, up_to_shifts, y) == OBEYED[truth]
    assert len(set(y)) == {"p4m": 4}.get(truth, 8 if kinds is tasks.HANDED else 10)


def test_sequences_are_reversed_as_often_as_not() -> None:
    rng = np.random.default_rng(0)
    x, y = tasks.sequences("z1", rng, n=600, noise=0.0)
    rows = {row.tobytes(): label for row, label in zip(x[:, 0], y, strict=True)}
    backward = [rows.get(np.roll(row[::-1], s).tobytes()) for row in x[:40, 0] for s in range(32)]
    met = [
        (label, other)
        for label, other in zip(np.repeat(y[:40], 32), backward, strict=True)
        if other is not None
    ]
    assert len(met) > 100
    assert all(other == label ^ 1 for label, other in met)
    same = tasks.sequences("line_reflections", np.random.default_rng(0), n=600, noise=0.0)
    assert np.array_equal(same[0], x)
    assert np.array_equal(same[1], y // 2 * 2)


def test_labels_of_sets_obey_the_truth_and_no_more() -> None:
    x = np.random.default_rng(0).standard_normal((400, 1, 8))
    rolled, swapped = np.roll(x, 1, 2), x[..., [1, 0, *range(2, 8)]]
    for truth, keeps in (("s8", (True, True)), ("cyclic8", (True, False)), ("none", (False,) * 2)):
        y = tasks.set_labels(truth, x)
        assert np.bincount(y).min() > 20
        same = tuple(bool((tasks.set_labels(truth, m) == y).all()) for m in (rolled, swapped))
        assert same == keeps


def test_equal_seeds_give_equal_files(tmp_path: Path) -> None:
    made = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / name).mkdir()
        job = tasks.TASKS["footprints-glide"].job
        assert job is not None
        options = job(tmp_path / name, seed)
        with np.load(options["data"]) as file:
            made.append(file["x"])
        assert options["groups"].endswith("my_groups.py:GROUPS")
    assert np.array_equal(made[0], made[1])
    assert not np.array_equal(made[0], made[2])


def result(truth: str, verdict: str, grid: str, probability: float = 0.9) -> CaseResult:
    groups = GroupSet(z2(), flips(), p4(), p4m())
    details = {
        "true_members": select.true_members(truth, groups),
        "probabilities": {} if verdict == "undecided" else {verdict: probability},
        "reason": "",
        "findings": [],
        "consequences": [],
        "grid_verdict": grid,
        "accuracy": 0.9,
        "grid_accuracy": 0.7,
        "plain_accuracy": 0.8,
        "select_seconds": 20.0,
        "grid_seconds": 10.0,
        "final_seconds": 3.0,
        "plain_seconds": 5.0,
    }
    key = f"select-{truth}-{verdict}-s0"
    return CaseResult("select", key, (truth,), (verdict,), (True,), 100, 0.0, 0, 25.0, details)


@pytest.mark.parametrize(
    ("truth", "verdict", "kind"),
    [
        ("p4", "p4", "right"),
        ("p4", "z2", "weaker"),
        ("p4", "none", "weaker"),
        ("p4", "p4m", "wrong"),
        ("p4", "flips", "wrong"),
        ("p4", "p4 and flips", "wrong"),
        ("p4m", "p4 and flips", "weaker"),
        ("p4", "undecided", "undecided"),
        ("none", "none", "right"),
        ("none", "z2", "wrong"),
        ("undecided", "undecided", "right"),
        ("undecided", "z2", "wrong"),
        ("undecided", "none", "weaker"),
    ],
)
def test_a_verdict_is_right_wrong_weaker_or_undecided(truth: str, verdict: str, kind: str) -> None:
    found = result(truth, verdict, verdict)
    assert select.outcome(found) == kind
    assert found.wrong == (kind == "wrong",)
    if verdict != "undecided":
        assert select.outcome(found, grid=True) == kind


def test_the_headline_counts_verdicts_and_compares_with_grid_and_plain_network() -> None:
    results = [
        result("p4", "p4", "p4m"),
        result("p4", "undecided", "p4"),
        result("p4m", "p4", "p4m"),
        result("undecided", "undecided", "z2"),
    ]
    found = headline(results)
    counted = {k: found[k] for k in ("right", "wrong", "weaker", "undecided")}
    assert counted == {"right": 2, "wrong": 0, "weaker": 1, "undecided": 1}
    assert (found["grid_right"], found["grid_wrong"]) == (2, 2)
    assert found["accuracy_vs_plain"] == pytest.approx(0.1)
    assert found["counts"] == {"select": {"cases": 4, **counted}}
    assert found["cpu_seconds"] == {"select": 80, "grid": 40, "final": 12, "plain": 20}
    # Two decided cases at 0.9, one of them right.
    assert found["select_calibration_error"] == pytest.approx(0.4)
    low, high = found["intervals"]["right"]
    assert low < 0.5 < high
    assert "linear_right" not in found
    text = select_table(results)
    assert "| p4m-p4-s0 | p4m | p4 (weaker) | 0.900 | p4m |" in text
    assert "| 0.7 to 0.9 | 2 | 0.900 | 1 of 2" in text
    content = json.loads(json.dumps(summary(results, "quick")))
    assert [case["verdict"] for case in content["select"]["cases"]] == [
        "p4",
        "undecided",
        "p4",
        "undecided",
    ]


def test_the_grid_takes_the_network_of_highest_held_out_likelihood() -> None:
    rows = [
        Consequence("chance", accuracy=0.9, nll=0.1),
        Consequence("free", accuracy=0.5, nll=1.0),
        Consequence("z2", accuracy=0.4, nll=0.9),
        Consequence("p4", accuracy=0.8, nll=1.2),
    ]
    assert select.best_row(rows).name == "z2"


def test_the_plain_network_learns_what_is_easy_and_keeps_the_random_state() -> None:
    x, y = tasks.textures("p4m", np.random.default_rng(0), n=240, side=8, noise=0.1)
    inputs, labels = (
        torch.from_numpy(x)[:, None],
        torch.from_numpy(np.unique(y, return_inverse=True)[1]),
    )
    data = (inputs[:200], labels[:200], inputs[200:], labels[200:])
    before = torch.get_rng_state()
    assert select.plain_accuracy(data, 30.0, 0) > 0.9
    assert torch.equal(torch.get_rng_state(), before)


def test_mnist_is_run_only_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupella.experiments.planted._presets.has_mnist", lambda: True)
    with_it = {case.key for case in PRESETS["full"].cases()}
    monkeypatch.setattr("groupella.experiments.planted._presets.has_mnist", lambda: False)
    without = {case.key for case in PRESETS["full"].cases()}
    assert without < with_it
    assert all("mnist" in key for key in with_it - without)


def test_the_command_runs_the_part_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = partial(tasks._own, partial(tasks.random_labels, n=40, side=4), "z2")
    points = partial(tasks.sets, "s8", n=60)
    small = {
        "images": tasks.Task("undecided", noise),
        "points": tasks.Task("s8", arrays=points, groups=tasks._points),
    }
    monkeypatch.setattr(select, "TASKS", small)
    monkeypatch.setattr(select, "MOST_EPOCHS", 2)
    monkeypatch.setattr("groupella.training._candidates.STEPS", 5)
    presets = {"quick": Planted(select=Tasks(tuple(small), (7,)))}
    monkeypatch.setattr("groupella.experiments.planted.PRESETS", presets)
    words = ["planted", "--part", "select", "--json", "--jobs", "1", "--directory", str(tmp_path)]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout.splitlines()[-1])
    assert found["right"] + found["wrong"] + found["weaker"] + found["undecided"] == 2
    assert "| images-s7 | undecided | undecided |" in first.stderr
    assert (tmp_path / "select-images-s7" / "run" / "report.html").is_file()

    def never(*_: object) -> None:
        raise AssertionError("finished cases are not repeated")

    monkeypatch.setattr(select.SelectCase, "run", never)
    second = CliRunner().invoke(app, words)
    assert second.stdout == first.stdout
