"""Whatever arrays `select` is given: a right answer or one clear line; no NaN, no rash verdict."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import groupella
from groupella.data import DataError

RNG = np.random.default_rng(0)
Y = np.arange(40) % 2
NOISE = RNG.normal(size=(40, 4, 4))
# Bright and dark images: every symmetry leaves the signal alone.
X = 0.1 * NOISE + 3 * Y[:, None, None] + 5
ONE = np.arange(40) == 0


class Evil:
    """What must never be used as a number or a class."""

    def __reduce__(self) -> Any:
        raise AssertionError("it was unpickled")


def objects(*values: Any) -> np.ndarray:
    found = np.empty(40, dtype=object)
    found[:] = [values[i % len(values)] for i in range(40)]
    return found


def with_one(value: Any) -> np.ndarray:
    x = X.astype(object)
    x[0, 0, 0] = value
    return x


Change = dict[str, Any]
REFUSED: dict[str, tuple[Change, str]] = {
    # samples
    "no data": ({"x": X[:0], "y": Y[:0]}, "expected samples along the first"),
    "one datum": ({"x": X[:1], "y": Y[:1]}, "all data have one class"),
    "two data": ({"x": X[:2], "y": Y[:2]}, "no class has two"),
    "a number": ({"x": 3.0}, "x is float; expected an array"),
    "nothing": ({"x": None}, "x is NoneType; expected an array"),
    "text": ({"x": "images.npz"}, "x is str; expected an array"),
    "text alone": ({"x": "images.npz", "y": None}, "y is missing, and x is str"),
    "samples of several shapes": ({"x": [[1.0], [1.0, 2.0]], "y": [0, 1]}, "different shapes"),
    "other lengths": ({"y": Y[:3]}, "first axes must agree"),
    "no channels": ({"x": np.zeros((40, 4, 4, 0))}, "expected samples along the first"),
    "no pixels": ({"x": np.zeros((40, 0, 4))}, "expected samples along the first"),
    "NaN": ({"x": np.where(X > 8, np.nan, X)}, "NaN or infinity, first in sample"),
    "infinity": ({"x": np.where(X > 8, -np.inf, X)}, "NaN or infinity, first in sample"),
    "1e200": ({"x": X * 1e200}, r"largest number of x is 8e\+200; expected one between"),
    "1e-200": ({"x": X * 1e-200}, r"largest number of x is 8e-200; expected one between"),
    "complex": ({"x": X * 1j}, "type complex128; expected real numbers"),
    "objects": ({"x": with_one(Evil())}, "type object; expected real numbers"),
    "an integer of 400 digits": ({"x": with_one(10**400)}, "type object; expected real numbers"),
    "None among numbers": ({"x": with_one(None)}, "NaN or infinity, first in sample 0"),
    "a tensor without values": ({"x": torch.empty(40, 4, 4, device="meta")}, "x is not an array"),
    "a sparse tensor": ({"x": torch.zeros(40, 4, 4).to_sparse()}, "x is not an array"),
    "one value as a terabyte": (
        {"x": np.broadcast_to(1.0, (40, 60_000, 60_000))},
        r"x of shape \(40, 60000, 60000\) takes 1,073 GiB of memory, and this machine has",
    ),
    "one byte as a terabyte": (
        {"x": np.broadcast_to(np.uint8(1), (40, 160_000, 160_000))},
        "takes 954 GiB of memory",
    ),
    "masked samples": ({"x": np.ma.masked_greater(X, 8)}, "x has [0-9]+ masked entries"),
    "a list of masked samples": ({"x": [*np.ma.masked_greater(X, 8)]}, "x has [0-9]+ masked"),
    "a list of masked pairs": (
        {"x": [*zip(np.ma.masked_greater(X, 8), Y, strict=True)], "y": None},
        "x has [0-9]+ masked entries",
    ),
    # targets
    "masked targets": ({"y": np.ma.array(Y, mask=ONE)}, "y has 1 masked entries"),
    "one class": ({"y": np.zeros(40, int)}, "all data have one class, 0"),
    "one target": ({"y": np.full(40, 1.5)}, "all data have the same target"),
    "a class per datum": ({"y": np.arange(40)}, "no class has two"),
    "NaN targets": ({"y": np.where(Y, np.nan, 0.5)}, "target 1 is NaN"),
    "NaN objects": ({"y": objects(0, float("nan"))}, "target 1 is NaN"),
    "huge targets": ({"y": X.mean((1, 2)) * 1e200}, r"beyond 1e\+150"),
    "numbers and strings": ({"y": objects(0, "a")}, "targets hold int, str; expected all numbers"),
    "None as a class": ({"y": objects(0, None)}, "targets hold NoneType, int"),
    "objects as classes": ({"y": objects(Evil(), Evil())}, "targets hold Evil"),
    "bytes of no text": ({"y": np.array([b"a", b"\xff"])[Y]}, "not UTF-8"),
    "dates": ({"y": np.array(["2020", "2021"], "M8[Y]")[Y]}, "expected numbers or strings"),
    "a class that clears the screen": ({"y": np.array(["a", "\x1b[2J"])[Y]}, "a class is named"),
    "a class of two lines": ({"y": np.array(["a", "b\nc"])[Y]}, "a class is named"),
    "half a character": ({"y": np.array(["a", "\ud800"])[Y]}, "a class is named"),
    "an endless name": ({"y": np.array(["a", "b" * 5000])[Y]}, "a class is named"),
    "lists of several lengths": ({"y": [[0], [0, 1]] * 20}, "y is not an array"),
    # the test part
    "NaN to test on": ({"test": (np.full((4, 4, 4), np.nan), Y[:4])}, "NaN or infinity"),
    "huge to test on": ({"test": (X[:4] * 1e200, Y[:4])}, "largest number of x is 8e"),
    "other images to test on": ({"test": (np.zeros((4, 5, 5)), Y[:4])}, "x of shape"),
    "unknown classes to test on": ({"test": (X[:4], [0, 1, 2, 3])}, "no class '2'; known are 0, 1"),
    "three things to test on": ({"test": (X, Y, Y)}, "must be a pair"),
    # weights
    "masked weights": ({"weights": np.ma.array(Y + 1, mask=ONE)}, "weights has 1 masked"),
    "NaN weights": ({"weights": np.full(40, np.nan)}, "weights contains NaN"),
    "negative weights": ({"weights": -np.ones(40)}, "not negative"),
    "weights of nothing": ({"weights": np.zeros(40)}, "not all zero"),
    "words for weights": ({"weights": "heavy"}, "weights is str"),
    # groups and settings
    "unknown group": ({"groups": "zz"}, "no group 'zz'"),
    "groups of sequences": ({"groups": "z1"}, "x of shape"),
    "groups of other sizes": ({"groups": "s9"}, "samples with 9 sites"),
    "sets of one point": ({"x": NOISE[:, :1, :], "groups": "permutations"}, "has one point per"),
    "no epochs": ({"epochs": 0}, "epochs must be"),
    "epochs for ever": ({"epochs": 10**9}, "takes at least [0-9]+ days"),
    "longer for ever": ({"longer": 1e12}, r"takes at least [0-9,]+ days"),
    "a seed of 65 bits": ({"seed": 2**64}, "seed must be at most 9223372036854775807"),
    "a huge width": ({"width": 10**7}, "width 10,000,000 needs at least"),
    "too many points": (
        {"x": np.zeros((10, 5000)), "y": Y[:10], "groups": "permutations"},
        "on 5,000 sites",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_one_line_before_any_training(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a training began")

    monkeypatch.setattr("groupella.training._candidates.fit", refuse)
    change, words = REFUSED[name]
    given: Change = {"x": X, "y": Y, "groups": "z2", **change}
    with pytest.raises((DataError, ValueError, TypeError), match=words) as caught:
        groupella.select(given.pop("x"), given.pop("y"), given.pop("groups"), **given)
    assert str(caught.value).isprintable()


def test_units_and_types_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a network learns from is the same, up to what the type can hold."""

    class CaughtError(Exception):
        pass

    def learned_from(x: Any) -> torch.Tensor:
        def find(data: Any, *_: Any, **__: Any) -> None:
            raise CaughtError(data)

        monkeypatch.setattr("groupella.answers._select.find", find)
        with pytest.raises(CaughtError) as caught:
            groupella.select(x, Y, "z2")
        found: torch.Tensor = caught.value.args[0].train_x
        assert found.dtype == torch.float32
        return found

    wanted = learned_from(X)
    whole = np.round(1000 * X).astype(np.int64)
    same: list[tuple[Any, float]] = [
        *((X * factor, 1e-6) for factor in (1e-140, 1e-30, 1e-9, 1e30, 1e140)),
        (X + 1e8, 1e-6),
        (X.astype(np.float32), 1e-6),
        (X.astype(np.float16), 1e-2),
        (torch.tensor(X).bfloat16(), 1e-1),
        (torch.tensor(X, requires_grad=True), 1e-6),
        (X.astype(np.longdouble), 1e-6),
        (X.astype(object), 1e-6),
        (whole, 1e-3),
        (whole + 10**15, 1e-3),
    ]
    for x, digits in same:
        torch.testing.assert_close(learned_from(x), wanted, rtol=0, atol=digits)


NOTHING: dict[str, tuple[Any, Any]] = {
    "constant": (np.full((40, 4, 4), 7.0), Y),
    "duplicates": (np.repeat(NOISE[:1], 40, 0), Y),
    "noise": (NOISE, Y),
    "twenty classes of two": (NOISE, np.arange(40) % 20),
    "three data": (NOISE[:3], Y[:3]),
    "contradictions": (np.concatenate([X[:20], X[:20]]), np.concatenate([Y[:20], 1 - Y[:20]])),
    "one target far away": (NOISE, np.where(ONE, 1e30, X.mean((1, 2)))),
    "two targets": (NOISE[:2], np.array([0.5, 0.7])),
    "one sample far away": (np.where(ONE[:, None, None], 1e30, NOISE), Y),
}
SIGNAL: dict[str, tuple[Any, Any]] = {
    "one pixel": (X[:, :1, :1], Y),
    "one row": (X[:, :1], Y),
    "booleans": (X > 6.5, Y),
    "a class without examples": (X, np.eye(3, dtype=int)[Y]),
    "names with markup": (X, np.array(["<script>alert(1)</script>", "[/bold]$\\frac$"])[Y]),
    "bytes": (X, np.array([b"a", b"b"])[Y]),
    "labels of 62 bits": (X, Y * 2**62),
    "a constant target": (X, np.stack([X.mean((1, 2)), np.ones(40)], 1)),
    "several labels, one of them never": (X, np.stack([Y, 1 - Y, 0 * Y], 1)),
}


def searched(x: Any, y: Any, place: Path, **settings: Any) -> groupella.Answer:
    """The answer, after all that it says was found to be finite and survived being saved."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = groupella.select(x, y, "z2", epochs=4, width=8, looks=1, layers=False, **settings)
        predicted = found.predict(x)
        if predicted.dtype.kind == "f":
            assert np.isfinite(predicted).all()
        if found.targets.kind != "regression":
            assert np.isfinite(found.predict_proba(x)).all()
        assert np.isfinite(list(found.scores(x, y).values())).all()
        found.save(place)
    text = (place / "report.json").read_text("utf-8")
    assert '"nan"' not in text
    json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert "<script>alert" not in (place / "report.html").read_text("utf-8")
    assert groupella.load(place).verdict == found.verdict
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTHING)
def test_where_there_is_nothing_to_learn_nothing_is_claimed(name: str, tmp_path: Path) -> None:
    assert searched(*NOTHING[name], tmp_path).verdict == "undecided"


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNAL)
def test_unusual_data_give_finite_answers(name: str, tmp_path: Path) -> None:
    x, y = SIGNAL[name]
    found = searched(x, y, tmp_path)
    assert found.verdict in ("z2", "none", "undecided")
    if found.targets.kind == "classes" and x.shape[1:] == (4, 4):
        assert found.score(x, y) > 0.9
