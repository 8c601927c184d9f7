"""One small search that most tests here look at."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from groupella import Answer, select

Data = tuple[npt.NDArray[np.float64], npt.NDArray[np.str_]]


def bars(n: int, seed: int) -> Data:
    """Bars at random places of an 8×8 image; the label is their direction."""
    random = np.random.default_rng(seed)
    labels = random.integers(2, size=n)
    images = 5 + 0.4 * random.standard_normal((n, 8, 8))
    for image, label in zip(images, labels, strict=True):
        bar = np.zeros((8, 8))
        bar[0, :3] = 4
        image += np.roll(bar.T if label else bar, random.integers(8, size=2), axis=(0, 1))
    return images, np.array(["lying", "standing"])[labels]


@pytest.fixture(scope="session")
def data() -> Data:
    return bars(240, 0)


@pytest.fixture(scope="session")
def answer(data: Data) -> Answer:
    return select(*data, "z2,p4", epochs=8, width=16)


@pytest.fixture(scope="session")
def fresh() -> Data:
    return bars(100, 1)
