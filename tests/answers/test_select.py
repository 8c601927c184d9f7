"""`groupella.select` takes what people have, and answers in one object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import groupella
from groupella import Answer, GroupSet, select
from groupella.answers import _select
from groupella.data import DataError, ImageData
from groupella.groups import Symmetry, p4, permutations, trivial, z2
from groupella.runs import RunError
from groupella.runs.directory import load as open_run
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


def test_saving_replaces_nothing_but_an_earlier_answer(answer: Answer, tmp_path: Path) -> None:
    assert answer.save(answer.save(tmp_path / "mine")) == tmp_path / "mine"
    for name in ("report.html", "network.safetensors"):
        (tmp_path / name).write_text("somebody's")
        with pytest.raises(ValueError, match=f"holds {name}, which is not that of an answer"):
            answer.save(tmp_path)
        assert (tmp_path / name).read_text() == "somebody's"
        (tmp_path / name).unlink()
    (tmp_path / "settings.json").write_text("{}")
    with pytest.raises(ValueError, match="is the directory of a run; save to another one"):
        answer.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "settings.json"]


def test_probabilities_are_those_of_the_temperature_that_held_out_data_ask_for(
    answer: Answer, data: Data, tmp_path: Path
) -> None:
    softer = replace(answer, temperature=2.0, predictive=None)
    wanted = torch.softmax(answer.outputs(data[0]).double() / 2, 1).numpy()
    assert np.allclose(softer.predict_proba(data[0]), wanted)
    assert (softer.predict(data[0]) == answer.predict(data[0])).all()
    softer.save(tmp_path)
    assert np.array_equal(groupella.load(tmp_path).predict_proba(data[0]), wanted)
    found = answer.content.reliability
    assert answer.temperature >= 1
    assert found is not None
    assert abs(sum(found.count) - len(data[0]) / 4) <= 1  # the share that was held out
    assert "How far predictions can be trusted" in (tmp_path / "report.html").read_text("utf-8")


def test_strange_inputs_are_predicted_less_surely(
    answer: Answer, fresh: Data, tmp_path: Path
) -> None:
    """The centre of the bars' images is 5; ten times their contrast is like nothing ever seen."""
    again = groupella.load(answer.save(tmp_path))
    far = 5 + 10 * (fresh[0] - 5)
    for one in (answer, again):
        tempered = replace(one, predictive=None)
        usual, strange = (
            float(np.log(one.predict_proba(x) / tempered.predict_proba(x)).max(1).mean())
            for x in (fresh[0], far)
        )
        assert usual < 0.5
        assert strange > 5  # nats that the less likely class gains
    assert np.array_equal(again.predict_proba(far), answer.predict_proba(far))
    with pytest.raises(DataError, match="interval is for a regression"):
        answer.interval(far)


@pytest.mark.slow
def test_intervals_of_real_targets_cover_what_they_say(tmp_path: Path) -> None:
    def sums(n: int, seed: int) -> tuple[Any, Any]:
        random = np.random.default_rng(seed)
        x = random.normal(size=(n, 4))
        return x, 1000 + 100 * (x.sum(1) + random.normal(size=n))

    answer = groupella.select(*sums(400, 0), "permutations", epochs=20, width=8, looks=1)
    again = groupella.load(answer.save(tmp_path))
    x, y = sums(1000, 1)
    for level in (0.5, 0.9):
        low, high = again.interval(x, level)
        assert np.mean((low <= y) & (y <= high)) == pytest.approx(level, abs=0.05)
        assert low.shape == y.shape
    assert np.array_equal(low, answer.interval(x)[0])
    with pytest.raises(DataError, match="nothing was held out"):
        replace(answer, predictive=None).interval(x)


def test_what_is_not_a_run_is_refused(answer: Answer, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no directory"):
        groupella.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="is not a run"):
        groupella.load(tmp_path)
    answer.save(tmp_path / "one")
    with pytest.raises(RunError, match=r"it has no settings\.json\. Open .* with groupella.load"):
        open_run(tmp_path / "one")
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


UNEQUAL = [(x[:, : 4 + i % 2], i % 2) for i, x in enumerate(X)]
PAIRS = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


class Stream(IterableDataset[Any]):
    """A data set without an index."""

    def __iter__(self) -> Iterator[Any]:
        return zip(X, Y, strict=True)


@pytest.mark.parametrize("kind", ["list", "tensor", "dataset", "loader", "dictionaries", "stream"])
def test_data_come_in_every_form(caught: Any, kind: str) -> None:
    tensors = torch.from_numpy(X), torch.from_numpy(Y)
    forms: dict[str, tuple[Any, Any]] = {
        "list": (X.tolist(), Y.tolist()),
        "tensor": tensors,
        "dataset": (TensorDataset(*tensors), None),
        "loader": (DataLoader(TensorDataset(*tensors), batch_size=5), None),
        "stream": (Stream(), None),
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
        ((12, 6, 6, 6), ["trivial", "z3", "octahedral"]),
        ((12, 3, 6, 6), ["trivial", "z2", "p4"]),
        ((12, 6, 6, 3), ["trivial", "z2", "p4"]),
    ],
)
def test_groups_are_suggested_by_the_shape(caught: Any, shape: Any, names: list[str]) -> None:
    assert [g.name for g in caught(np.random.default_rng(0).random(shape), Y).groups] == names


def test_read_only_arrays_are_taken_in_silence(caught: Any) -> None:
    x, y = np.random.default_rng(0).random((12, 8, 8), dtype=np.float32), Y.copy()
    for array in (x, y):
        array.setflags(write=False)  # as a memory map, or in a worker of scikit-learn
    assert caught(x, y, "z2").data.train_x.shape == (12, 1, 8, 8)


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
        ((X, Y, p4), {}, r"got function: call it, p4\(\)"),
        ((X, Y, "C4"), {}, "did you mean 'c4'"),
        ((X, "z2,p4"), {}, "y is str; expected an array"),
        ((X, Y, "z2"), {"say": True}, "say must be a function"),
        ((X, Y, "z2"), {"test": X}, "test must be a pair .* got a ndarray"),
        ((X, Y, ""), {}, "name at least one group"),
        ((X, Y, "z1,z2"), {}, "different numbers of axes|act on"),
        ((X[:, :, :6], Y, "p4"), {}, 'p4 exchanges axes of different length.*fit="crop"'),
        ((X, Y[:5], "z2"), {}, "first axes must agree"),
        ((X, None, "z2"), {}, "y is missing"),
        ((X, Y * 0, "z2"), {}, "one class"),
        ((X * np.nan, Y, "z2"), {}, "NaN or infinity, first in sample 0"),
        ((np.full((12, 8, 8), "a"), Y, "z2"), {}, "expected real numbers"),
        ((X, Y, "z2"), {"learning_rate": 1}, "no setting 'learning_rate'; did you mean 'lr'"),
        ((X, Y, "z2"), {"group": "p4"}, "no setting 'group'; did you mean 'groups'"),
        ((X, Y, "z2"), {"sample_weight": Y}, "no setting 'sample_weight'; did you mean 'weights'"),
        ((X, Y, "z2"), {"fit": "pads"}, "no fit 'pads'; expected one of crop, pad, stretch"),
        ((X, Y, "z2"), {"size": 0}, "size must be a number of pixels, or height and width, got 0"),
        ((X, Y, "z2"), {"size": 7.5}, "size must be a number of pixels, .* got 7.5"),
        ((X, Y, "z2"), {"size": (8, 8, 8)}, r"size must be .* got \(8, 8, 8\)"),
        ((X, Y, "z2"), {"size": "8"}, "size must be a number of pixels, .* got '8'"),
        ((X, Y, "z2"), {"task": "ranking"}, "no task 'ranking'"),
        ((X, Y, "z2"), {"weights": [1, 2]}, "weights of shape"),
        ((X, Y, "z3"), {}, "expected .n, d, h, w."),
        ((X, Y, "z2"), {"epochs": 0}, "epochs must be a whole number, at least 1, got 0"),
        ((X, Y, "z2"), {"epochs": 2.5}, "epochs must be a whole number, at least 1, got 2.5"),
        ((X, Y, "z2"), {"epochs": "5"}, "epochs must be a whole number, at least 1, got '5'"),
        ((X, Y, "z2"), {"width": 0}, "width must be a whole number, at least 1, got 0"),
        ((X, Y, "z2"), {"batch_size": 0}, "batch_size must be a whole number, at least 1"),
        ((X, Y, "z2"), {"seed": -1}, "seed must be a whole number, at least 0, got -1"),
        ((X, Y, "z2"), {"lr": "high"}, "lr must be positive, got 'high'"),
        ((X, Y, "z2"), {"lr": np.inf}, "lr must be positive, got inf"),
        (([[1, 2], [1]], [0, 1], "z1"), {}, "x is not an array: its samples have different"),
        ((X[:2], [[1], [1, 0]], "z2"), {}, "y is not an array"),
        ((X, Y, "z2"), {"test": (X,)}, "test must be a pair .x, y. or a Dataset, got a tuple of 1"),
        ((UNEQUAL, None, "z2"), {}, r"x has shape \(8, 4\) in an example .* \(8, 5\) in another"),
        (([(X[0], 1, 2)], None, "z2"), {}, "an example of the data set is tuple of 3; expected"),
        ((PAIRS, Y, "z2"), {}, "holds its own targets: leave out y"),
        ((PAIRS, "z2"), {}, "holds its own targets: leave out y"),
    ],
)
def test_bad_input_is_refused_before_any_work(
    monkeypatch: pytest.MonkeyPatch, arguments: Any, options: Any, words: str
) -> None:
    monkeypatch.setattr(_select, "find_symmetry", lambda *_, **__: pytest.fail("it trains"))
    with pytest.raises((TypeError, ValueError, DataError), match=words):
        select(*arguments, **options)


def test_other_inputs_than_those_of_training_are_refused(answer: Answer) -> None:
    with pytest.raises(DataError, match=r"samples with 8×8 sites: expected \(n, 8, 8\)"):
        answer.predict(np.zeros((3, 7, 8)))
    with pytest.raises(DataError, match="has 2 channels; expected 1"):
        answer.predict(np.zeros((3, 2, 8, 8)))
    with pytest.raises(DataError, match="no class 'round'"):
        answer.score(np.zeros((1, 8, 8)), ["round"])


def test_curvature_that_is_too_large_costs_only_the_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As for octahedral layers of voxels: the evidence decides nothing, and no training is lost."""
    monkeypatch.setattr("groupella.nn.shared_maps._basis.LARGEST_INPUT", 1)
    random = np.random.default_rng(0)
    y = random.integers(2, size=240)
    x = 0.1 * random.standard_normal((240, 4, 4)) + y[:, None, None]
    answer = select(x, y, "p4", epochs=8, width=8)
    assert answer.verdict == "p4"
    assert set(answer.layers.values()) == {"p4"}
    assert not answer.content.selection.is_measured
    answer = groupella.load(answer.save(tmp_path))
    assert "What each layer obeys" in (tmp_path / "report.html").read_text("utf-8")
    assert answer.verdict == "p4"


def test_a_symmetry_of_ones_own_survives_saving(tmp_path: Path) -> None:
    swap = Symmetry.from_generators("swap", 4, [[1, 0, 2, 3]])
    x = np.random.default_rng(0).standard_normal((60, 4))
    answer = select(x, (x[:, 0] + x[:, 1] > 0).astype(int), swap, epochs=4, width=8)
    again = groupella.load(answer.save(tmp_path))
    assert np.array_equal(again.predict_proba(x), answer.predict_proba(x))
