"""Images with labels: as read (``Images``), and as given to a network (``ImageData``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ._augment import Augmentation

CHUNK = 2048


@dataclass(frozen=True, eq=False)
class Images:
    """A data set as read, before any transformation.

    Parameters
    ----------
    train_x, test_x : (n, channels, height, width), ``uint8`` (0…255) or ``float32``; black is 0
    train_y, test_y : (n,), ``int64`` indices into `classes`
    augment : whether the paper augments training batches of this data set
    paper_size : the side to which the paper resizes its images
    """

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    augment: bool = False
    paper_size: int | None = None


@dataclass(frozen=True, eq=False)
class ImageData:
    """A classification problem on images, ready for a network.

    Parameters
    ----------
    train_x, test_x : ``float32`` (n, channels, height, width), normalised per channel to zero mean
        and unit variance over the *training* images
    train_y, test_y : (n,), ``int64`` indices into `classes`
    mean, std : the moments per channel that the normalisation removed
    augmentation : for training batches only; ``None`` where the paper uses none
    obeys : the symmetry of the labels, where the construction fixes it
    remarks : what the construction cannot guarantee
    shown : the values before normalisation that are shown as black and as white
    """

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    name: str
    seed: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation | None = None
    obeys: str | None = None
    remarks: tuple[str, ...] = ()
    shown: tuple[float, float] = (0.0, 1.0)

    @property
    def channels(self) -> int:
        return int(self.train_x.shape[1])

    @property
    def lattice(self) -> tuple[int, int]:
        """(height, width)"""
        return int(self.train_x.shape[2]), int(self.train_x.shape[3])

    def pixels(self, x: Tensor) -> Tensor:
        """Images without the normalisation, to be shown: black is 0, white is 1.

        Values in [0, 1] are returned as they were; others are scaled by `shown`.
        """
        mean, std = (x.new_tensor(m).view(-1, 1, 1) for m in (self.mean, self.std))
        black, white = self.shown
        return (x * std + mean - black) / (white - black)

    def __repr__(self) -> str:
        n, m = len(self.train_y), len(self.test_y)
        size = "×".join(map(str, self.train_x.shape[1:]))
        return f"ImageData({self.name!r}: {n} + {m} images of {size}, {len(self.classes)} classes)"


def chunks(n: int) -> Iterator[slice]:
    """Slices that divide n images into parts of bounded size, for large intermediate results."""
    return (slice(start, start + CHUNK) for start in range(0, n, CHUNK))


def shown_range(x: Tensor) -> tuple[float, float]:
    """The values to show as black and white: 0 and 1 if that suits the values, else their range.

    It suits values in [0, 1], unless all are so small that every image would be nearly black, such
    as masks stored as the bytes 0 and 1.
    """
    low, high = float(x.min()), float(x.max())
    slack = 1e-4  # interpolation rounds
    if (low >= -slack and 0.25 <= high <= 1 + slack) or low == high:
        return 0.0, 1.0
    return low, high


def moments(x: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of (n, channels, height, width), in float64."""
    total = torch.zeros(x.shape[1], dtype=torch.float64)
    squares = torch.zeros_like(total)
    for part in chunks(len(x)):
        values = x[part].double()
        total += values.sum((0, 2, 3))
        squares += values.square().sum((0, 2, 3))
    count = x.numel() / x.shape[1]
    mean = total / count
    std = (squares / count - mean.square()).clamp(min=0).sqrt()
    # A channel without variation carries no information: leave its scale alone.
    std = torch.where(std > 1e-8, std, torch.ones_like(std))
    return tuple(mean.tolist()), tuple(std.tolist())
