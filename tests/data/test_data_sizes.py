"""Large images are averaged to a size that a search can afford, exactly and as it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from groupella.data import (
    DataError,
    Fit,
    Inputs,
    Size,
    chosen_size,
    load,
    most_sites,
    needs_square,
)
from groupella.groups import GroupSet, c4, flips, p2, p4, p4m, trivial, z2


@pytest.mark.parametrize(
    ("images", "square", "expected"),
    [
        ((224, 224), True, (32, 32)),
        ((96, 96), False, (32, 32)),
        ((100, 75), False, (32, 24)),  # the same aspect ratio
        ((640, 480), False, (32, 24)),
        ((100, 75), True, (32, 32)),
        ((50, 50), True, (48, 48)),  # 25×25 cannot be halved
        ((31, 31), True, (28, 28)),
    ],
)
def test_what_is_chosen(images: tuple[int, int], square: bool, expected: tuple[int, int]) -> None:
    size = chosen_size(images, most_sites(), square)
    assert size is not None
    assert (size.images, size.lattice) == (images, expected)


@pytest.mark.parametrize("images", [(8, 8), (28, 28), (32, 32), (64, 64), (15, 15), (48, 64)])
def test_small_images_stay_as_they_are(images: tuple[int, int]) -> None:
    assert chosen_size(images, most_sites()) is None


@pytest.mark.parametrize("lattice", [(), (500,), (64, 64, 64)])
def test_only_images_are_resized(lattice: tuple[int, ...]) -> None:
    assert chosen_size(lattice, most_sites()) is None


def test_a_longer_budget_allows_larger_images() -> None:
    sides = []
    for seconds in (1.0, 300.0, 1800.0, 3600.0, 1e9):
        size = chosen_size((224, 224), most_sites(seconds))
        assert size is not None
        sides.append(size.lattice[0])
    assert sides[0] == sides[1] == 32
    assert sides == sorted(sides)
    assert sides[-1] == 128


def test_small_oblong_images_become_square_only_where_that_is_asked_for() -> None:
    assert chosen_size((20, 12), most_sites(), square=True) is None
    for fit, side in (("crop", 12), ("pad", 20), ("stretch", 12)):
        size = chosen_size((20, 12), most_sites(), True, fit)  # type: ignore[arg-type]
        assert size is not None
        assert size.lattice == (side, side)


def test_which_groups_need_squares() -> None:
    assert [needs_square(GroupSet(g)) for g in (z2(), p2(), flips(), trivial())] == [False] * 4
    assert all(needs_square(GroupSet(z2(), g)) for g in (p4(), p4m(), c4()))


def test_whole_factors_are_average_pooling() -> None:
    x = torch.rand(3, 2, 12, 20)
    size = Size.fitting((12, 20), (4, 5), "stretch")
    torch.testing.assert_close(size(x), F.avg_pool2d(x, (3, 4)))


def test_other_factors_weigh_by_area() -> None:
    """Three pixels to two: each cell covers one and a half. The mean of the image stays."""
    x = torch.tensor([[[[1.0, 2.0, 4.0]]]])
    size = Size.fitting((1, 3), (1, 2), "stretch")
    expected = torch.tensor([[[[(1 + 2 / 2) / 1.5, (2 / 2 + 4) / 1.5]]]])
    torch.testing.assert_close(size(x), expected)
    images = torch.rand(4, 1, 97, 61, dtype=torch.float64)
    small = Size.fitting((97, 61), (32, 24), "stretch")(images)
    torch.testing.assert_close(small.mean((2, 3)), images.mean((2, 3)))


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_it_commutes_with_the_symmetries_of_the_square(fit: Fit) -> None:
    x = torch.rand(2, 1, 37, 37, dtype=torch.float64)
    size = Size.fitting((37, 37), (16, 16), fit)
    for moved, same in (
        (x.rot90(1, (2, 3)), lambda y: y.rot90(1, (2, 3))),
        (x.flip(3), lambda y: y.flip(3)),
    ):
        torch.testing.assert_close(size(moved), same(size(x)))


def test_crop_and_pad_keep_the_aspect_ratio() -> None:
    x = torch.ones(1, 1, 100, 80)
    x[..., :10, :] = 5  # outside of the central square
    crop = Size.fitting((100, 80), (16, 16), "crop")
    torch.testing.assert_close(crop(x), torch.ones(1, 1, 16, 16))
    pad = Size.fitting((100, 80), (20, 20), "pad")(torch.ones(1, 1, 100, 80))
    torch.testing.assert_close(pad[..., 2:18], torch.ones(1, 1, 20, 16))
    assert not pad[..., [0, 1, 18, 19]].any()
    assert str(crop) == "images of 100×80 were cut to the central 80×80 and averaged to 16×16"
    with pytest.raises(DataError, match="expected one of crop, pad, stretch"):
        Size.fitting((4, 4), (2, 2), "squash")  # type: ignore[arg-type]


def test_inputs_take_images_of_the_original_size() -> None:
    size = Size.fitting((40, 30), (8, 6), "stretch")
    inputs = Inputs((8, 6), (0.5,), (2.0,), 255.0, size)
    x = np.random.default_rng(0).integers(0, 256, (3, 40, 30), dtype=np.uint8)
    expected = (x.reshape(3, 8, 5, 6, 5).mean((2, 4)) / 255 - 0.5) / 2
    np.testing.assert_allclose(inputs(x).numpy()[:, 0], expected, atol=1e-6)
    again = Inputs.from_dict(inputs.as_dict())
    assert again == inputs
    assert "size" not in Inputs((8, 6), (0.5,), (2.0,)).as_dict()
    with pytest.raises(DataError, match="40, 30"):
        inputs(x[:, :8, :6])


def test_files_are_averaged_before_they_become_floats(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (20, 96, 72), dtype=np.uint8)
    np.savez(tmp_path / "large.npz", x=x, y=np.arange(20) % 2)
    data = load(tmp_path / "large.npz", most=most_sites())
    assert data.lattice == (32, 24)
    assert data.size == Size((96, 72), (96, 72), (32, 24))
    assert data.remarks == ("images of 96×72 were averaged to 32×24",)
    assert data.inputs.taken == (96, 72)
    torch.testing.assert_close(data.inputs(x).std(), torch.tensor(1.0), atol=0.1, rtol=0)
    square = load(tmp_path / "large.npz", most=most_sites(), square=True)
    assert square.lattice == (32, 32)
    assert load(tmp_path / "large.npz").lattice == (96, 72)
    assert load(tmp_path / "large.npz", size=16, fit="pad").lattice == (16, 16)
    moved = load(tmp_path / "large.npz:rot90", most=most_sites(), square=True)
    assert moved.size is None
    assert max(moved.lattice) <= 64
