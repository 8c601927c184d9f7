"""What people pass to `fit` is understood, or refused with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from groupella.curvature import check_coverage, curvature
from groupella.evidence.likelihoods import Categorical
from groupella.training import fit

X = np.random.default_rng(0).standard_normal((12, 3))
Y = np.arange(12) % 2


def train(data: Any, **changes: Any) -> nn.Module:
    torch.manual_seed(0)
    options = {"epochs": 2, "method": "map", "progress": False, **changes}
    return fit(nn.Linear(3, 2), data, **options).network  # type: ignore[arg-type]


def test_read_only_arrays_are_taken_in_silence() -> None:
    x, y = X.astype(np.float32), Y.copy()
    for array in (x, y):
        array.setflags(write=False)
    train((x, y))


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.int16, np.int64])
def test_numpy_pairs_train_as_tensors_do(kind: type) -> None:
    wanted = train((torch.from_numpy(X).float(), torch.from_numpy(Y)))
    assert torch.equal(train((X, Y.astype(kind))).weight, wanted.weight)  # type: ignore[arg-type]
    small = torch.from_numpy(Y.astype(kind))
    assert torch.equal(train((torch.from_numpy(X).float(), small)).weight, wanted.weight)  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [("x", "y"), ("image", "label"), ("inputs", "targets")])
def test_a_dataset_of_dictionaries_trains_as_one_of_pairs(names: tuple[str, str]) -> None:
    pairs = [(torch.tensor(x).float(), int(y)) for x, y in zip(X, Y, strict=True)]
    dictionaries = [dict(zip(names, pair, strict=True)) for pair in pairs]
    assert torch.equal(train(dictionaries).weight, train(pairs).weight)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([{"left": 1, "label": 2}], "a dictionary with 'left', 'label'; expected one of x, image"),
        ([(1, 2, 3)], "tuple of 3; expected a pair"),
        ((X, np.array(["a"] * 12)), "arrays of numbers, got <U1"),
        ((X, None), "arrays of numbers"),
        ((X, np.ones(12, int)), "all 12 examples have the class 1: there is nothing to learn"),
        ((X[:, :2], Y), r"network fails on x of shape \(2, 2\)"),
        ({"x": X, "y": Y}, "must be a pair"),
        ((np.ma.masked_greater(X, 1), Y), "data has [0-9]+ masked entries: fill them in"),
        ((X, np.ma.masked_equal(Y, 1)), "data has 6 masked entries"),
        ([*zip(np.ma.array(X, mask=True), Y, strict=True)], "an example of data has 3 masked"),
    ],
)
def test_other_data_are_refused(data: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        train(data)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("learning_rate", "lr"), ("num_epochs", "epochs"), ("batchsize", "batch_size")],
)
def test_a_setting_by_another_name_is_answered_with_ours(name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"no setting '{name}'; did you mean '{meant}'"):
        train((X, Y), **{name: 1})


@pytest.mark.parametrize("outputs", [lambda f: (f, None), lambda f: {"logits": f}])
def test_a_network_that_returns_no_tensor_is_refused(outputs: Any) -> None:
    class Other(nn.Linear):
        def forward(self, input: Tensor) -> Any:
            return outputs(super().forward(input))

    network, data = Other(4, 3), (torch.zeros(6, 4), torch.arange(6) % 3)
    for refused in (
        lambda: fit(network, data, epochs=1, progress=False),
        lambda: curvature(network, Categorical(), data),
        lambda: check_coverage(network, data[0]),
    ):
        with pytest.raises(TypeError, match=r"the network returns .*expected a tensor"):
            refused()
