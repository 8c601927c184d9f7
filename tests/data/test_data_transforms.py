"""Resizing, translating and rotating, each against a definition written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from groupella.data import Resized, Rotated, Translated
from groupella.data._transforms import on_canvas, resize, rotated


def square_symmetries(x: torch.Tensor) -> list[torch.Tensor]:
    turned = [torch.rot90(x, k, (-2, -1)) for k in range(4)]
    return turned + [t.flip(-1) for t in turned]


@pytest.mark.parametrize(("before", "after"), [(28, 32), (28, 16), (8, 16), (9, 4), (100, 32)])
def test_resizing_commutes_with_the_symmetries_of_the_square(before: int, after: int) -> None:
    x = torch.rand(3, 2, before, before)
    for moved, expected in zip(
        square_symmetries(x), square_symmetries(resize(x, after)), strict=True
    ):
        torch.testing.assert_close(resize(moved, after), expected, atol=1e-5, rtol=0)


def test_resizing_is_bilinear() -> None:
    x = torch.rand(1, 1, 7, 7)
    place = np.clip((np.arange(5) + 0.5) * 7 / 5 - 0.5, 0, 6)
    grid = np.stack(np.meshgrid(place, place, indexing="ij"))
    expected = ndimage.map_coordinates(x[0, 0].numpy(), grid, order=1)
    np.testing.assert_allclose(resize(x, 5)[0, 0].numpy(), expected, atol=1e-6)


def test_eight_bit_images_become_fractions_of_white() -> None:
    x = torch.tensor([[[[0, 51], [255, 102]]]], dtype=torch.uint8)
    torch.testing.assert_close(
        resize(x, None), torch.tensor([[[[0.0, 0.2], [1.0, 0.4]]]]), atol=1e-7, rtol=0
    )


def test_a_quadrant_resized_first_or_last_is_the_same_for_28_pixels() -> None:
    x = torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(
        on_canvas(resize(x, 16), 32, corner=True),
        resize(on_canvas(x, 56, corner=True), 32),
        atol=1e-6,
        rtol=0,
    )


def test_a_canvas_must_be_large_enough() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        on_canvas(torch.rand(1, 1, 8, 8), 6)


def test_translated_moves_whole_pixels_uniformly() -> None:
    x = torch.zeros(20_000, 1, 28, 28, dtype=torch.uint8)
    x[:, :, 14, 14] = 255
    moved, y = Translated(8)(x, torch.arange(20_000), None, np.random.default_rng(0))
    assert moved.dtype == torch.float32
    assert torch.equal(y, torch.arange(20_000))
    counts = moved.sum((0, 1))
    assert counts.sum() == 20_000
    inside = counts[6:23, 6:23]
    assert inside.sum() == 20_000
    # 289 places with 69.2 expected in each: χ² has mean 288 and standard deviation 24.
    expected = 20_000 / 289
    assert float(((inside - expected) ** 2 / expected).sum()) < 288 + 5 * 24


def test_translated_loses_what_leaves_and_lets_black_in() -> None:
    x = torch.ones(500, 1, 6, 6)
    moved, _ = Translated(2)(x, torch.zeros(500), None, np.random.default_rng(0))
    areas = {int(a) for a in moved.sum((1, 2, 3))}
    assert areas == {a * b for a in (4, 5, 6) for b in (4, 5, 6)}


@pytest.mark.parametrize("size", [8, 9])
def test_quarter_turns_are_exact(size: int) -> None:
    x = torch.rand(4, 2, size, size)
    angles = torch.arange(4, dtype=torch.float64) * math.pi / 2
    expected = torch.stack([torch.rot90(x[k], k, (1, 2)) for k in range(4)])
    torch.testing.assert_close(rotated(x, angles), expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize(("height", "width"), [(17, 17), (12, 20)])
def test_rotation_equals_an_independent_one(height: int, width: int) -> None:
    x = torch.rand(5, 1, height, width)
    angles = torch.tensor([0.3, 1.0, 2.0, 4.0, 6.0], dtype=torch.float64)
    turned = rotated(x, angles)
    rows, columns = np.mgrid[:height, :width]
    centre = (height - 1) / 2, (width - 1) / 2
    for n in range(5):
        cos, sin = math.cos(angles[n]), math.sin(angles[n])
        down, right = rows - centre[0], columns - centre[1]
        # Counter-clockwise as seen: the source of a pixel is turned back, clockwise.
        source = [cos * down + sin * right + centre[0], cos * right - sin * down + centre[1]]
        expected = ndimage.map_coordinates(
            np.pad(x[n, 0].numpy(), 2), [s + 2 for s in source], order=1, cval=0.0
        )
        np.testing.assert_allclose(turned[n, 0].numpy(), expected, atol=1e-5)


def test_angles_are_uniform_on_the_circle() -> None:
    x = torch.zeros(4000, 1, 33, 33)
    x[:, :, 15:18, 28:31] = 1
    turned, _ = Rotated()(x, torch.zeros(4000), None, np.random.default_rng(0))
    grid = torch.arange(33.0) - 16
    mass = turned.sum((1, 2, 3))
    right = (turned * grid.view(1, 1, 1, -1)).sum((1, 2, 3)) / mass
    down = (turned * grid.view(1, 1, -1, 1)).sum((1, 2, 3)) / mass
    assert torch.allclose(torch.hypot(right, down), torch.tensor(13.0), atol=0.2)
    eighths = torch.histc(torch.atan2(-down, right), 8, -math.pi, math.pi)
    assert ((eighths - 500).abs() < 5 * 21).all()


def test_a_canvas_keeps_corners() -> None:
    x = torch.ones(200, 1, 8, 8)
    turned, _ = Rotated(canvas=16)(x, torch.zeros(200), None, np.random.default_rng(0))
    assert turned.shape == (200, 1, 16, 16)
    torch.testing.assert_close(turned.sum((1, 2, 3)), torch.full((200,), 64.0), atol=1.5, rtol=0)


def test_many_images_are_treated_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from groupella.data import _pixels

    x = torch.rand(30, 1, 8, 8)
    whole = [t(x, x[:, 0], 12, np.random.default_rng(3))[0] for t in (Translated(2), Rotated())]
    monkeypatch.setattr(_pixels, "CHUNK", 7)
    parts = [t(x, x[:, 0], 12, np.random.default_rng(3))[0] for t in (Translated(2), Rotated())]
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def test_resized_is_no_motion() -> None:
    x = torch.rand(3, 1, 8, 8)
    same, _ = Resized()(x, torch.zeros(3), None, np.random.default_rng(0))
    assert torch.equal(same, x)
