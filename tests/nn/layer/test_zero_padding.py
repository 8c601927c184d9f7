"""Zeros around the image: stock convolutions; exact turns; shifts away from the border."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from groupella.groups import GroupSet, c4, p4, trivial, z2
from groupella.harden import harden
from groupella.nn.layer import ResidualPathway
from groupella.testing import assert_equivariant, equivariance_error

GROUPS = GroupSet(trivial(), z2(), p4())
BEFORE, AFTER = GROUPS.space((8, 8), 2, "trivial"), GROUPS.space((8, 8), 2)
X = torch.randn(3, *BEFORE.shape, dtype=torch.float64, generator=torch.manual_seed(0))


def layer(paths: str | None = "CONV+GCONV+F-FC") -> ResidualPathway:
    torch.manual_seed(1)
    return ResidualPathway(BEFORE, AFTER, GROUPS, paths, padding="zeros").double()


def test_paths_are_stock_convolutions_with_zero_padding() -> None:
    made = layer()
    for name in ("CONV", "GCONV"):
        path = made.paths[name]
        torch.testing.assert_close(path(X), F.conv2d(X, path.filter(), padding=1))
    hardened = harden(made.only(["CONV", "GCONV"]))
    assert isinstance(hardened, torch.nn.Conv2d)
    assert hardened.padding_mode == "zeros"


@pytest.mark.parametrize("paths", [None, "CONV+GCONV+F-FC", "GCONV/pointwise+CONV"])
def test_a_hardened_layer_is_the_same(paths: str | None) -> None:
    if paths is not None and "pointwise" in paths:
        made = ResidualPathway(AFTER, AFTER, GROUPS, paths, padding="zeros").double()
        x = torch.randn(2, *AFTER.shape, dtype=torch.float64)
    else:
        made, x = layer(paths), X
    torch.testing.assert_close(harden(made)(x), made(x))


def test_the_point_group_is_obeyed_exactly_and_shifts_up_to_the_border() -> None:
    strict = layer().strict("p4")
    assert_equivariant(strict, BEFORE, AFTER, c4(), dtype=torch.float64)
    assert float(equivariance_error(strict, BEFORE, AFTER, p4(), dtype=torch.float64)) > 0.1
    inside = torch.zeros_like(X)
    inside[..., 2:5, 2:5] = X[..., 2:5, 2:5]
    moved = inside.roll((1, 1), (2, 3))
    bias = strict(torch.zeros_like(X))
    torch.testing.assert_close(
        strict(moved) - bias, (strict(inside) - bias).roll((1, 1), (2, 3)), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("paths", ["S-CONV", "GCONV/separable", "S-GCONV"])
def test_paths_on_the_torus_are_refused(paths: str) -> None:
    with pytest.raises(ValueError, match="padding='zeros' is for CONV, GCONV"):
        layer(paths)


def test_other_words_and_even_windows_are_refused() -> None:
    with pytest.raises(ValueError, match="padding must be 'circular' or 'zeros', got 'reflect'"):
        ResidualPathway(BEFORE, AFTER, GROUPS, padding="reflect")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a window of even size has no centre"):
        ResidualPathway(BEFORE, AFTER, GROUPS, "CONV", kernel_size=4)
