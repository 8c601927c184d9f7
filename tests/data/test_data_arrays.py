"""Arrays of every kind: sequences, voxels, points; classes, regression, several labels; weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, r2_score

from groupella.data import Coding, DataError, axes_of, channels_first, guessed, load, sample_weights
from groupella.groups import GroupSet, Symmetry, p4, permutations, trivial, z2

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("groups", "shape", "wanted"),
    [
        ("z1", (4, 12), (4, 1, 12)),
        ("z1", (4, 3, 12), (4, 3, 12)),
        ("z1", (4, 12, 3), (4, 3, 12)),
        ("z2", (4, 6, 5), (4, 1, 6, 5)),
        ("z3", (4, 6, 6, 6), (4, 1, 6, 6, 6)),
        ("octahedral", (4, 2, 6, 6, 6), (4, 2, 6, 6, 6)),
        ("s7", (4, 7), (4, 1, 7)),
        ("s7", (4, 7, 9), (4, 9, 7)),
        ("s7", (4, 9, 7), (4, 9, 7)),
        ("none", (4, 7), (4, 1, 7)),
        ("none", (4, 7, 7), (4, 1, 7, 7)),
        ("none", (4, 2, 7, 7, 7), (4, 2, 7, 7, 7)),
    ],
)
def test_the_groups_say_what_the_axes_are(
    groups: str, shape: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    x = RNG.random(shape)
    ordered = channels_first(x, axes_of(GroupSet(groups)))
    assert ordered.shape == wanted
    assert sorted(ordered.ravel()) == sorted(x.ravel())


def test_the_channels_of_points_come_last() -> None:
    x = RNG.random((4, 5, 5))
    assert np.array_equal(channels_first(x, (5,)), x.transpose(0, 2, 1))
    assert np.array_equal(channels_first(x, "points"), x.transpose(0, 2, 1))


@pytest.mark.parametrize(
    ("shape", "axes", "words"),
    [
        ((4, 5, 5), 1, "expected .n, length."),
        ((4, 5), 3, "expected .n, d, h, w."),
        ((4, 5), (7,), "samples with 7 sites"),
        ((4,), None, "first of its axes"),
    ],
)
def test_axes_that_cannot_be_told_are_refused(
    shape: tuple[int, ...], axes: Any, words: str
) -> None:
    with pytest.raises(DataError, match=words):
        channels_first(np.zeros(shape), axes)


def test_groups_on_different_axes_are_refused() -> None:
    members: list[Symmetry] = [GroupSet("z1").members[0], z2()]
    with pytest.raises(ValueError, match="z1 on 1, z2 on 2"):
        axes_of(members)
    assert axes_of([trivial(), p4()]) == 2
    assert axes_of([permutations(3)]) == (3,)


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        ([0, 1, 2], "classes"),
        (["a", "b"], "classes"),
        ([True, False], "classes"),
        ([0.0, 1.0, 1.0], "classes"),
        ([[0, 1], [1, 0]], "classes"),
        ([[0, 1], [1, 1]], "multilabel"),
        ([[0.0, 1.0], [0.0, 0.0]], "multilabel"),
        ([0.5, 1.0], "regression"),
        (np.arange(100.0), "regression"),
        ([[0.5, 1.0], [1.0, 2.0]], "regression"),
        ([[0.5], [1.0]], "regression"),
    ],
)
def test_the_kind_of_targets_is_guessed(y: Any, kind: str) -> None:
    assert guessed(np.asarray(y))[0] == kind
    assert Coding.of(np.asarray(y)).kind == kind


@pytest.mark.parametrize(
    ("y", "kind", "words"),
    [
        (np.zeros(5, int), None, "one class, 0: there is nothing to learn"),
        (np.ones(5) * 0.5, None, "the same target"),
        (np.array([0.5, np.nan]), None, "target 1 is NaN"),
        (np.array([0.5, 0.6]), "classes", "real numbers"),
        (np.array(["a", "b"]), "regression", "needs numbers"),
        (np.array([[0, 2], [1, 0]]), "multilabel", "0 and 1"),
        (np.arange(4), "ranking", "no task 'ranking'; expected one of classes"),
        (np.zeros((2, 2, 2)), None, "expected .n,."),
    ],
)
def test_targets_that_cannot_be_learned_are_refused(y: Any, kind: str | None, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Coding.of(y, kind)


def test_targets_are_coded_and_read_back() -> None:
    names = np.array(["cat", "dog", "cat", "eel"])
    coding = Coding.of(names)
    assert coding.encode(names).tolist() == [0, 1, 0, 2]
    assert coding.decode(torch.eye(3)[[0, 1, 0, 2]]).tolist() == names.tolist()
    with pytest.raises(DataError, match="no class 'fox'"):
        coding.encode(np.array(["fox"]))
    y = RNG.normal(5, 3, (50, 2))
    coding = Coding.of(y)
    assert torch.allclose(coding.encode(y).std(0, unbiased=False), torch.ones(2))
    assert np.allclose(coding.decode(coding.encode(y)), y, atol=1e-5)
    assert Coding.of(y[:, 0]).decode(torch.zeros(3, 1)).shape == (3,)
    assert Coding.from_dict({**coding.as_dict(), "mean": list(coding.mean)}) == coding


def test_scores_are_those_of_scikit_learn() -> None:
    y = RNG.normal(5, 3, (50, 2))
    said = y + RNG.normal(0, 1, (50, 2))
    coding = Coding.of(y)
    scores = coding.scores(coding.encode(said), coding.encode(y))
    assert scores["r2"] == pytest.approx(r2_score(y, said), abs=1e-5)
    assert scores["rmse"] == pytest.approx(np.sqrt(((y - said) ** 2).mean()), rel=1e-5)
    labels, logits = RNG.integers(0, 2, (50, 3)), RNG.normal(size=(50, 3))
    coding = Coding.of(labels)
    scores = coding.scores(torch.from_numpy(logits), coding.encode(labels))
    assert scores["f1"] == pytest.approx(f1_score(labels, logits > 0, average="micro"))


def test_weights_of_samples_and_of_classes_multiply() -> None:
    y = np.array([0, 0, 0, 1])
    coding = Coding.of(y)
    assert sample_weights(y) is None
    balanced = sample_weights(y, None, "balanced", coding)
    assert balanced is not None
    assert balanced.tolist() == pytest.approx([2 / 3] * 3 + [2])
    both = sample_weights(y, [1, 1, 2, 2], {0: 1, 1: 3}, coding)
    assert both is not None
    assert (both / both[0]).tolist() == pytest.approx([1, 1, 2, 6])
    for bad, of_classes in (([1, -1, 1, 1], None), ([1, 2], None), (None, [1, 2, 3])):
        with pytest.raises(DataError, match="weights"):
            sample_weights(y, bad, of_classes, coding)


def write(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_an_npz_of_voxels_with_real_targets_and_weights(tmp_path: Path) -> None:
    x, y, weights = RNG.random((50, 4, 4, 4)), RNG.normal(3, 2, 50), RNG.random(50)
    data = load(write(tmp_path / "v.npz", x=x, y=y, weights=weights), axes=3)
    assert data.train_x.shape == (40, 1, 4, 4, 4)
    assert data.targets.kind == "regression"
    assert data.lattice == (4, 4, 4)
    # The same samples, targets and weights still belong together.
    raw = data.train_x.double() * data.std[0] + data.mean[0]
    found = [int(np.abs(x - one.numpy()).sum((1, 2, 3)).argmin()) for one in raw[:, 0]]
    assert np.allclose(data.targets.decode(data.train_y), y[found], atol=1e-5)
    assert data.weights is not None
    assert np.allclose(
        data.weights / data.weights[0], weights[found] / weights[found[0]], rtol=1e-4
    )
    assert torch.allclose(data.inputs(x[found]), data.train_x, atol=1e-5)


def test_weights_that_are_not_one_for_each_sample_are_refused(tmp_path: Path) -> None:
    x, y = RNG.random((50, 6)), np.arange(50) % 2
    with pytest.raises(DataError, match=r"weights of shape \(3,\) for 50 samples"):
        load(write(tmp_path / "w.npz", x=x, y=y, weights=np.ones(3)))


def test_an_npz_of_sequences_with_several_labels(tmp_path: Path) -> None:
    x, y = RNG.random((50, 2, 12)), RNG.integers(0, 2, (50, 3))
    data = load(write(tmp_path / "s.npz", x=x, y=y), axes=1)
    assert (data.train_x.shape, data.test_x.shape) == ((40, 2, 12), (10, 2, 12))
    assert data.targets.kind == "multilabel"
    assert data.train_y.shape == (40, 3)


@pytest.mark.parametrize("head", ["", "a,b,label\n", "label,a,b\n"])
def test_a_csv_of_vectors(tmp_path: Path, head: str) -> None:
    order = [2, 0, 1] if head.startswith("label") else [0, 1, 2]
    rows = [[f"{i}", f"{-i}.5", "even" if i % 2 == 0 else "odd"] for i in range(20)]
    text = head + "\n".join(",".join(row[i] for i in order) for row in rows)
    (tmp_path / "t.csv").write_text(text)
    data = load(tmp_path / "t.csv")
    assert data.classes == ("even", "odd")
    assert (data.train_x.shape, data.test_x.shape) == ((16, 1, 2), (4, 1, 2))
    first = data.train_x[:, 0, 0] * data.std[0] + data.mean[0]
    assert (first.round().long() % 2).tolist() == data.train_y.tolist()


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_csv_with_semicolons_or_tabs(tmp_path: Path, separator: str) -> None:
    rows = [["a", "b", "label"], *([f"{i}", f"{-i}.5", "ab"[i % 2]] for i in range(20))]
    for name, mark in (("one", ","), ("other", separator)):
        (tmp_path / f"{name}.csv").write_text("\n".join(map(mark.join, rows)))
    one, other = (load(tmp_path / f"{name}.csv") for name in ("one", "other"))
    assert torch.equal(one.train_x, other.train_x)
    assert other.classes == ("a", "b")


def test_a_csv_with_real_targets(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join(f"{i},{i * i},{i / 7}" for i in range(20)))
    assert load(tmp_path / "t.csv").targets.kind == "regression"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "two samples"),
        ("1,2,0\n3,x,1\n", "row 2, column 2 holds 'x'"),
        ("1,2,0\n3,1\n", "row 2 has 2 cells, the first has 3"),
        ("1,2,0\n3,1,0\n", "one class"),
    ],
)
def test_a_csv_that_is_no_table_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        load(tmp_path / "t.csv")


def test_options_for_images_are_refused_elsewhere(tmp_path: Path) -> None:
    path = write(tmp_path / "s.npz", x=RNG.random((20, 12)), y=RNG.random(20))
    with pytest.raises(DataError, match="no images"):
        load(path, size=8, axes=1)
    with pytest.raises(DataError, match="real numbers; classes must be"):
        load(path, axes=1, task="classes")
    with pytest.raises(DataError, match="no classes"):
        load(path, axes=1, keep=["0"])
