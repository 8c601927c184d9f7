"""`groupella.select` takes what people have, and answers in one object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import groupella
from groupella import Answer, GroupSet, select
from groupella.answers import _select
from groupella.data import DataError, ImageData
from groupella.groups import Symmetry, p4, permutations, trivial, z2
from groupella.testing import assert_equivariant

Data = tuple[Any, Any]


def test_the_answer_says_what_the_labels_obey(answer: Answer) -> None:
    assert answer.verdict == "z2"
    assert answer.groups == ("z2",)
    assert answer.confidence is not None
    assert answer.confidence > 0.9
    assert set(answer.layers.values()) <= {"z2", "p4"}  # first layers may obey more
    assert [row.name for row in answer.table] == ["chance", "free", "z2", "p4"]
    assert "The labels obey z2" in str(answer)
    assert repr(answer).startswith("Answer('z2', confidence 0.9")


def test_its_network_has_the_symmetry_and_predicts(answer: Answer, fresh: Data) -> None:
    space = GroupSet(z2()).space((8, 8), 1, "trivial")
    assert_equivariant(answer.network, space, None, z2())
    x, y = fresh
    assert answer.score(x, y) > 0.95
    assert (answer.predict(x) == y).mean() == answer.score(x, y)
    p = answer.predict_proba(x)
    assert np.allclose(p.sum(1), 1)
    assert (np.array(["lying", "standing"])[p.argmax(1)] == answer.predict(x)).all()
    # Shifted images are the same to it, in any layout.
    assert np.allclose(answer.predict_proba(np.roll(x, 3, 1)), p, atol=1e-5)
    assert np.array_equal(answer.predict_proba(torch.from_numpy(x)[:, None]), p)
    assert np.array_equal(answer.predict_proba(x[..., None]), p)


def test_saved_and_loaded_it_is_the_same(answer: Answer, data: Data, tmp_path: Path) -> None:
    answer.save(tmp_path / "run")
    again = groupella.load(tmp_path / "run")
    assert np.array_equal(again.predict_proba(data[0]), answer.predict_proba(data[0]))
    assert (again.verdict, again.confidence, again.layers, again.table) == (
        answer.verdict,
        answer.confidence,
        answer.layers,
        answer.table,
    )
    assert again.score(*data) == answer.score(*data)
    page = again.report(tmp_path / "page.html").read_text("utf-8")
    assert "obey z2" in page


def test_what_is_not_a_run_is_refused(answer: Answer, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no directory"):
        groupella.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="is not a run"):
        groupella.load(tmp_path)
    answer.save(tmp_path / "one")
    with pytest.raises(FileNotFoundError, match="several runs: load one of one"):
        groupella.load(tmp_path)
    network = tmp_path / "one" / "network.safetensors"
    network.write_bytes(network.read_bytes()[:-100])
    with pytest.raises(ValueError, match="truncated"):
        groupella.load(tmp_path / "one")


class CaughtError(Exception):
    """Carries what `select` would search."""

    def __init__(self, data: ImageData, groups: GroupSet) -> None:
        self.data, self.groups = data, groups


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls `select` and returns its data and groups, without the search."""

    def find(data: ImageData, groups: GroupSet, *_: Any, **__: Any) -> None:
        raise CaughtError(data, groups)

    monkeypatch.setattr(_select, "find", find)

    def call(*args: Any, **options: Any) -> CaughtError:
        with pytest.raises(CaughtError) as found:
            select(*args, **options)
        return found.value

    return call


X, Y = np.random.default_rng(0).random((12, 8, 8)), np.arange(12, dtype=np.int32) % 3


@pytest.mark.parametrize("kind", ["list", "tensor", "dataset", "loader", "dictionaries"])
def test_data_come_in_every_form(caught: Any, kind: str) -> None:
    tensors = torch.from_numpy(X), torch.from_numpy(Y)
    forms: dict[str, tuple[Any, Any]] = {
        "list": (X.tolist(), Y.tolist()),
        "tensor": tensors,
        "dataset": (TensorDataset(*tensors), None),
        "loader": (DataLoader(TensorDataset(*tensors), batch_size=5), None),
        "dictionaries": ([{"image": x, "label": y} for x, y in zip(X, Y, strict=True)], None),
    }
    found = caught(*forms[kind], "z2")
    assert found.data.train_x.shape == (12, 1, 8, 8)
    assert found.data.train_y.tolist() == Y.tolist()
    assert torch.allclose(found.data.train_x, caught(X, Y, "z2").data.train_x)


@pytest.mark.parametrize(
    "groups", ["z2,p4", ["z2", p4()], [z2(), p4()], GroupSet(trivial(), "z2", "p4")]
)
def test_groups_come_in_every_form(caught: Any, groups: Any) -> None:
    assert list(caught(X, Y, groups).groups) == [trivial(), z2(), p4()]


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        ((12, 6), ["trivial", "s6"]),
        ((12, 1), ["trivial"]),
        ((12, 8, 8), ["trivial", "z2", "p4"]),
        ((12, 8, 6), ["trivial", "z2", "p2"]),
        ((12, 2, 6, 6, 6), ["trivial", "z3", "octahedral"]),
    ],
)
def test_groups_are_suggested_by_the_shape(caught: Any, shape: Any, names: list[str]) -> None:
    assert [g.name for g in caught(np.random.default_rng(0).random(shape), Y).groups] == names


def test_points_take_their_number_from_the_data(caught: Any) -> None:
    x = np.random.default_rng(0).random((12, 5, 3))
    found = caught(x, Y, "permutations,cyclic")
    assert [g.name for g in found.groups] == ["trivial", "s5", "cyclic5"]
    assert found.data.train_x.shape == (12, 3, 5)
    assert caught(x, Y, permutations(5)).data.train_x.shape == (12, 3, 5)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((X, Y, "p5"), {}, "no group 'p5'; did you mean"),
        ((X, Y, 3), {}, "groups must be a GroupSet"),
        ((X, Y, ""), {}, "name at least one group"),
        ((X, Y, "z1,z2"), {}, "different numbers of axes|act on"),
        ((X[:, :, :6], Y, "p4"), {}, "p4 exchanges axes of different length"),
        ((X, Y[:5], "z2"), {}, "first axes must agree"),
        ((X, None, "z2"), {}, "y is missing"),
        ((X, Y * 0, "z2"), {}, "one class"),
        ((X * np.nan, Y, "z2"), {}, "NaN or infinity, first in sample 0"),
        ((np.full((12, 8, 8), "a"), Y, "z2"), {}, "expected real numbers"),
        ((X, Y, "z2"), {"learning_rate": 1}, "no setting 'learning_rate'; did you mean 'lr'"),
        ((X, Y, "z2"), {"task": "ranking"}, "no task 'ranking'"),
        ((X, Y, "z2"), {"weights": [1, 2]}, "weights of shape"),
        ((X, Y, "z3"), {}, "expected .n, d, h, w."),
    ],
)
def test_bad_input_is_refused_before_any_work(
    monkeypatch: pytest.MonkeyPatch, arguments: Any, options: Any, words: str
) -> None:
    monkeypatch.setattr(_select, "find_symmetry", lambda *_, **__: pytest.fail("it trains"))
    with pytest.raises((TypeError, ValueError, DataError), match=words):
        select(*arguments, **options)


def test_other_inputs_than_those_of_training_are_refused(answer: Answer) -> None:
    with pytest.raises(DataError, match="the groups act on 8, 8 points"):
        answer.predict(np.zeros((3, 7, 8)))
    with pytest.raises(DataError, match="has 2 channels; expected 1"):
        answer.predict(np.zeros((3, 2, 8, 8)))
    with pytest.raises(DataError, match="no class 'round'"):
        answer.score(np.zeros((1, 8, 8)), ["round"])


def test_a_symmetry_of_ones_own_survives_saving(tmp_path: Path) -> None:
    swap = Symmetry.from_generators("swap", 4, [[1, 0, 2, 3]])
    x = np.random.default_rng(0).standard_normal((60, 4))
    answer = select(x, (x[:, 0] + x[:, 1] > 0).astype(int), swap, epochs=4, width=8)
    again = groupella.load(answer.save(tmp_path))
    assert np.array_equal(again.predict_proba(x), answer.predict_proba(x))
