"""Data with targets: as read (``Images``), and as given to a network (``ImageData``)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from groupella.nn.standardise import moments as moments_of_parts

from ._augment import Augmentation
from ._coding import Coding
from ._inputs import Inputs
from ._pixels import chunks
from ._sizes import Size


@dataclass(frozen=True, eq=False)
class Images:
    """A data set as read, before any transformation: images, or arrays on another lattice.

    Parameters
    ----------
    train_x, test_x : (n, channels, height, width), ``uint8`` (0…255), ``float32`` or
        ``float64``; black is 0;
        (n, channels, *lattice) for sequences, voxels and points
    train_y, test_y : (n,), ``int64`` indices into `classes`; what `coding` gives for other targets
    augment : whether the paper augments training batches of this data set
    paper_size : the side to which the paper resizes its images
    coding : how targets are coded, where they are not classes
    weights : (n,), the weight of each training sample; ``None`` where all are equal
    """

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    augment: bool = False
    paper_size: int | None = None
    coding: Coding | None = None
    weights: Tensor | None = None


@dataclass(frozen=True, eq=False)
class ImageData:
    r"""A problem on images, sequences, voxels or points, ready for a network.

    Parameters
    ----------
    train_x, test_x : ``float32`` (n, channels, \*lattice), normalised per channel to zero mean and
        unit variance over the training data
    train_y, test_y : (n,), ``int64`` indices into `classes`; what `coding` gives for other targets
    mean, std : the moments per channel that the normalisation removed
    augmentation : for training batches only; ``None`` where the paper uses none
    obeys : the symmetry of the labels, where the construction fixes it
    remarks : what the construction cannot guarantee
    shown : the values before normalisation that are shown as black and as white
    coding : how targets are coded, where they are not classes
    weights : (n,), the weight of each training sample; ``None`` where all are equal
    scale : what integers were divided by before normalisation
    size : how the images were brought to the lattice, where they were larger
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
    coding: Coding | None = None
    weights: Tensor | None = None
    scale: float = 1.0
    size: Size | None = None

    @property
    def channels(self) -> int:
        return int(self.train_x.shape[1])

    @property
    def lattice(self) -> tuple[int, ...]:
        """(height, width); (length,) of sequences and points, (depth, height, width) of voxels."""
        return tuple(int(n) for n in self.train_x.shape[2:])

    @property
    def targets(self) -> Coding:
        """How targets are coded."""
        return self.coding or Coding("classes", self.classes)

    @property
    def inputs(self) -> Inputs:
        """How arrays become inputs."""
        return Inputs(self.lattice, self.mean, self.std, self.scale, self.size)

    @property
    def described(self) -> str:
        """The task and the data in a few words."""
        size = "×".join(map(str, self.train_x.shape[1:]))
        kind, k = self.targets.kind, self.targets.outputs
        of = f"{k} classes" if kind == "classes" else f"{k} target{'s' if k > 1 else ''}"
        return f"task {kind}: {of}, {len(self.train_y)} training samples of {size}"

    def in_fields(self, size: int, centre: bool) -> ImageData:
        """The same data with one mean and one standard deviation for every `size` channels.

        These are the components of a field on which a group acts. Without `centre` the mean is 0
        and the standard deviation measured from there: a mean would break a change of sign.
        """
        old_mean, old_std = (torch.tensor(m).double() for m in (self.mean, self.std))
        fields = old_mean.view(-1, size)
        mean = fields.mean(1, keepdim=True) if centre else torch.zeros_like(fields[:, :1])
        squares = old_std.view(-1, size).square() + (fields - mean).square()
        std = squares.mean(1, keepdim=True).sqrt().expand_as(fields).flatten()
        mean = mean.expand_as(fields).flatten()
        if torch.equal(mean, old_mean) and torch.equal(std, old_std):
            return self
        shape = (-1, *[1] * len(self.lattice))
        factor, offset = (v.view(shape).float() for v in (old_std / std, (old_mean - mean) / std))
        return replace(
            self,
            train_x=self.train_x * factor + offset,
            test_x=self.test_x * factor + offset,
            mean=tuple(mean.tolist()),
            std=tuple(std.tolist()),
        )

    def pixels(self, x: Tensor) -> Tensor:
        """Images without the normalisation, to be shown: black is 0, white is 1.

        Values in [0, 1] are returned as they were; others are scaled by `shown`.
        """
        mean, std = (torch.tensor(m).double().view(-1, 1, 1) for m in (self.mean, self.std))
        black, white = self.shown
        return ((x.double() * std + mean - black) / (white - black)).to(x)

    def __repr__(self) -> str:
        n, m = len(self.train_y), len(self.test_y)
        size = "×".join(map(str, self.train_x.shape[1:]))
        what = "images" if len(self.lattice) == 2 else "samples"
        said = f"{len(self.classes)} {'classes' if self.targets.kind == 'classes' else 'targets'}"
        return f"ImageData({self.name!r}: {n} + {m} {what} of {size}, {said})"


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
    """Mean and standard deviation per channel of (n, channels, *lattice), in float64.

    Those of `groupella.nn.standardise.moments`: a constant channel has the standard deviation 1.
    """
    mean, std = moments_of_parts(x[part] for part in chunks(len(x)))
    return tuple(mean.tolist()), tuple(std.tolist())
