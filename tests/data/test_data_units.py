"""The units of the inputs do not matter: scaled and shifted data are standardised alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from groupella.data import load, moments

UNITS = {
    "1e-30": (1e-30, 0.0),
    "1e-9": (1e-9, 0.0),
    "1e-6": (1e-6, 0.0),
    "1e6": (1e6, 0.0),
    "1e30": (1e30, 0.0),
    "+1e8": (1.0, 1e8),
    "1e-6, +1": (1e-6, 1.0),
}


def pictures() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(40, 6, 6, 2)) * [1.0, 20.0] + [0.0, -5.0]


def written(path: Path, x: np.ndarray) -> Path:
    np.savez(path, x=x, y=np.arange(len(x)) % 2)
    return path


@pytest.mark.parametrize("name", UNITS)
def test_an_npz_of_float64_keeps_its_digits(name: str, tmp_path: Path) -> None:
    factor, offset = UNITS[name]
    plain = load(written(tmp_path / "a.npz", pictures()))
    moved = load(written(tmp_path / "b.npz", pictures() * factor + offset))
    assert moved.train_x.dtype == torch.float32
    # What is left of the digits of float64 after the offset.
    digits = max(1e-6, 1e-15 * abs(offset) / factor)
    torch.testing.assert_close(moved.train_x, plain.train_x, rtol=0, atol=10 * digits)
    torch.testing.assert_close(moved.test_x, plain.test_x, rtol=0, atol=10 * digits)
    fresh = np.random.default_rng(1).normal(size=(3, 6, 6, 2))
    torch.testing.assert_close(
        moved.inputs(fresh * factor + offset), plain.inputs(fresh), rtol=0, atol=10 * digits
    )


def test_a_table_keeps_its_digits(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(30, 4))
    for name, values in (("a", x), ("b", x * 1e-9), ("c", x + 1e8)):
        rows = [
            ",".join([*map(repr, map(float, row)), "ab"[i % 2]]) for i, row in enumerate(values)
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join(rows))
    plain, small, far = (load(tmp_path / f"{name}.csv").train_x for name in "abc")
    torch.testing.assert_close(small, plain, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(far, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e8 + 0.1, 1e-300])
def test_a_constant_channel_has_no_scale(value: float) -> None:
    x = torch.full((5000, 1, 3, 3), value, dtype=torch.float64)
    mean, std = moments(x)
    assert std == (1.0,)
    assert mean == pytest.approx((value,), rel=1e-15)


def test_moments_are_those_of_numpy() -> None:
    x = (
        np.random.default_rng(0).normal(size=(5000, 3, 4)) * 1e-3
        + np.array([0.0, 1.0, 1e4])[:, None]
    )
    mean, std = moments(torch.from_numpy(x))
    np.testing.assert_allclose(mean, x.mean((0, 2)), rtol=1e-12, atol=1e-17)
    np.testing.assert_allclose(std, x.std((0, 2)), rtol=1e-9)
