"""Images moved by random elements of a group, and labels that obey a subgroup of it.

Let G move the images and let N ≤ G be the symmetry that the labels should obey. Each image is moved
by its own uniform g ∈ G, and labelled with what it shows together with the right coset Ng. Moving
the result by h ∈ G gives the element hg, and Nhg = Ng for every g exactly when h ∈ N: the labels
are invariant under N and under nothing else of G. N = G gives the ordinary labels; N trivial tells
every element of G apart. There are [G : N] times as many classes.

With ``place="quadrant"`` an image takes one quadrant of the lattice (as in the paper's toy problem)
and the translations of G are those by half of each side, so that there are four of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from groupella.groups import (
    Element,
    FeatureSpace,
    GroupSet,
    LatticeElement,
    Symmetry,
    idle,
    is_inside,
)

from ._pixels import chunks
from ._transforms import Task, Transform, on_canvas, resize

_MOST_COSETS = 100
_QUADRANTS = (("top left", "top right"), ("bottom left", "bottom right"))


@dataclass(frozen=True)
class Moved(Transform):
    """Moves each image by its own random element of a group; labels obey a subgroup.

    All motions are exact: pixels are exchanged on the torus, never interpolated.

    Parameters
    ----------
    group : the group that moves the images
    obeys : the symmetry of the labels; ``None`` is the whole group, which leaves labels unchanged
    place : where images are before they move: "full" (they fill the lattice), "centre" or
        "quadrant" (at half its size, in its middle or top left)
    everywhere : whether elements of `obeys` include all its translations, not only those by half of
        each side
    """

    group: Symmetry
    obeys: Symmetry | None = None
    place: Literal["full", "centre", "quadrant"] = "full"
    everywhere: bool = False

    def __post_init__(self) -> None:
        if self.obeys is not None and not is_inside(self.obeys, self.group):
            raise ValueError(
                f"labels cannot obey {self.obeys}: it is no subgroup of {self.group}, which moves "
                "the images"
            )
        if idle(GroupSet(self.group)):
            raise ValueError(f"{self.group} acts on values, and motions move the pixels of images")
        if self.place == "quadrant" and not self.group.is_catalogue:
            raise ValueError(
                f"place='quadrant' needs a catalogue group, but {self.group} has generators"
            )

    @property
    def name(self) -> str:
        if self.obeys is None or self.obeys.key == self.group.key:
            return self.group.name
        return f"{self.group.name}→{self.obeys.name}"

    def __call__(
        self, x: Tensor, y: Tensor, size: int | None, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        x = self._placed(x, size)
        lattice = (int(x.shape[-2]), int(x.shape[-1]))
        space = GroupSet(self.group).space(lattice, int(x.shape[1]), fibre="trivial")
        drawn, label = self._drawn(space, len(x), rng), y
        if self.obeys is not None:
            number = self._coset_numbers(lattice)
            coset = torch.tensor([number[g] for g in drawn])
            label = y * (1 + max(number.values())) + coset
        if self.everywhere:
            seed = int(rng.integers(2**31))
            inside = space.sample(self.obeys or self.group, len(x), seed)
            drawn = [n * g for n, g in zip(inside, drawn, strict=True)]
        return act_each(space, drawn, x), label

    def task(self, classes: tuple[str, ...], lattice: tuple[int, int]) -> Task:
        obeyed = self.obeys or self.group
        number = self._coset_numbers(lattice) if self.obeys is not None else {}
        names = {k: self._coset_name(g, lattice) for g, k in reversed(number.items())}
        if len(names) > 1:
            classes = tuple(f"{c}, {names[k]}" for c in classes for k in range(len(names)))
        return Task(classes, obeyed.name, _look_alikes(self.group, obeyed))

    def _placed(self, x: Tensor, size: int | None) -> Tensor:
        if self.place == "full":
            return resize(x, size)
        size = 2 * max(x.shape[-2:]) if size is None else size
        if size % 2:
            raise ValueError(
                f"half of size={size} is not a whole number of pixels; give an even size"
            )
        # Resizing before placing keeps the edges of an image out of the other quadrants.
        return on_canvas(resize(x, size // 2), size, corner=self.place == "quadrant")

    def _elements(self, symmetry: Symmetry, lattice: tuple[int, int]) -> list[Element]:
        """The elements that `place` admits: for quadrants, translations by half a side only."""
        everything = GroupSet(self.group).space(lattice, 1, fibre="trivial").elements(symmetry)
        if self.place != "quadrant":
            return list(everything)
        catalogued = [g for g in everything if isinstance(g, LatticeElement)]
        return [g for g in catalogued if not any(np.mod(np.multiply(2, g.shift), g.shape))]

    def _drawn(self, space: FeatureSpace, n: int, rng: np.random.Generator) -> list[Element]:
        """n random elements, whatever the labels obey."""
        seed = int(rng.integers(2**31))
        if self.place != "quadrant":
            return space.sample(self.group, n, seed)
        height, width = space.lattice.shape
        few = self._elements(self.group, (height, width))
        return [few[k] for k in np.random.default_rng(seed).integers(len(few), size=n)]

    def _coset_numbers(self, lattice: tuple[int, int]) -> dict[Element, int]:
        """The number of the right coset Ng of each element; N itself has number 0."""
        obeyed = self._elements(self.obeys or self.group, lattice)
        number: dict[Element, int] = {}
        cosets = 0
        for g in self._elements(self.group, lattice):
            if g not in number:
                number |= {n * g: cosets for n in obeyed}
                cosets += 1
            if cosets > _MOST_COSETS:
                raise ValueError(
                    f"{self.obeys} has more than {_MOST_COSETS} cosets in {self.group} on "
                    f"{lattice}, too many classes; place the images in a quadrant, or choose a "
                    f"smaller group"
                )
        return number

    def _coset_name(self, g: Element, lattice: tuple[int, int]) -> str:
        if self.place == "quadrant" and isinstance(g, LatticeElement) and len(self.group.point) < 2:
            down, right = (2 * t // n for t, n in zip(g.shift, lattice, strict=True))
            return _QUADRANTS[down][right]
        return "unmoved" if g.is_identity else g.name


def act_each(space: FeatureSpace, elements: Sequence[Element], x: Tensor) -> Tensor:
    """The batch with sample n moved by `elements[n]`."""
    number = {g: i for i, g in enumerate(dict.fromkeys(elements))}
    which = torch.tensor([number[g] for g in elements])
    actions = [space.action(g).signed() for g in number]
    out = torch.empty_like(x)
    if any(action is None for action in actions):
        for g, i in number.items():  # general orthogonal maps are no gather
            out[which == i] = space.act(g, x[which == i])
        return out
    target = np.stack([action[0] for action in actions if action is not None])
    signs = np.stack([action[1] for action in actions if action is not None])
    source = np.empty_like(target)
    np.put_along_axis(source, target, np.arange(target.shape[1])[None], axis=1)
    gather = torch.from_numpy(source)
    factor = torch.from_numpy(np.take_along_axis(signs, source, axis=1)).to(x.dtype)
    signed = bool((factor < 0).any())
    for part in chunks(len(x)):
        flat = x[part].flatten(2)
        moved = flat.gather(2, gather[which[part]].unsqueeze(1).expand_as(flat))
        if signed:
            moved = moved * factor[which[part]].unsqueeze(1)
        out[part] = moved.view_as(x[part])
    return out


def _look_alikes(group: Symmetry, obeyed: Symmetry) -> tuple[str, ...]:
    """Remarks on images that look alike after rotations or reflections."""
    if len(group.point) < 2:
        return ()
    remarks = []
    if len(obeyed.point) < len(group.point):
        remarks.append(
            "Nearly symmetric images do not always show how they were moved: among the digits "
            "0, 1 and 8 and, mirrored top to bottom, 3. No network can recover all of these "
            "labels; choose other classes with keep=."
        )
    if len(obeyed.point) > 1:
        remarks.append(
            "After rotations or reflections, images of different classes can look alike: among "
            "the digits some 6 and 9 (turned by 180 degrees) or 2 and 5 (mirrored); choose other "
            "classes with keep=."
        )
    return tuple(remarks)
