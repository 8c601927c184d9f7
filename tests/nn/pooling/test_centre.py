"""Centre: shifts leave the rolled sample alone, point-group elements move it along."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from groupella.groups import (
    GroupSet,
    Symmetry,
    cyclic,
    flips,
    line_reflections,
    octahedral,
    p4,
    p4m,
    pmm,
    translations,
    z2,
)
from groupella.harden import harden
from groupella.nn.pooling import Centre

CASES: list[tuple[Symmetry, tuple[int, ...]]] = [
    (z2(), (6, 4)),
    (z2(), (5, 3)),
    (flips(), (6, 6)),
    (p4(), (6, 6)),
    (p4(), (5, 5)),
    (p4m(), (6, 6)),
    (p4m(), (5, 5)),
    (pmm(), (4, 6)),
    (translations(1), (7,)),
    (line_reflections(), (8,)),
    (line_reflections(), (7,)),
    (octahedral(), (4, 4, 4)),
]


def generic(space_shape: tuple[int, ...], n: int = 3) -> Tensor:
    return torch.randn(n, *space_shape, dtype=torch.float64)


def by_hand(x: Tensor) -> tuple[int, ...]:
    """The shift of one sample (channels, *lattice), straight from the definition."""
    sides = x.shape[1:]
    energy = (x - x.mean(tuple(range(1, x.dim())), keepdim=True)).square().sum(0)
    scores = {}
    for a in itertools.product(*map(range, sides)):
        total = 0.0
        for s in itertools.product(*map(range, sides)):
            weight = 1.0
            for n, site, shift in zip(sides, s, a, strict=True):
                weight *= 1 + math.cos(2 * math.pi * (site - shift - (n - 1) / 2) / n)
            total += float(energy[s]) * weight
        scores[a] = total
    return max(scores, key=lambda a: scores[a])


@pytest.mark.parametrize("sides", [(5,), (4, 3), (3, 5, 4)], ids=str)
def test_the_shift_is_that_of_the_definition(sides: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    centre = Centre(GroupSet(translations(len(sides))).space(sides, 2))
    x = generic(centre.space_in.shape)
    for sample, rolled in zip(x, centre(x), strict=True):
        back = tuple(-a for a in by_hand(sample))
        assert torch.equal(rolled, sample.roll(back, tuple(range(1, sample.dim()))))


def test_a_spot_goes_to_the_centre() -> None:
    centre = Centre(GroupSet(z2()).space((7, 9), 1))
    x = torch.zeros(1, 1, 7, 9)
    x[0, 0, 6, 1] = 1.0
    assert centre(x)[0, 0].nonzero().tolist() == [[3, 4]]


@pytest.mark.parametrize(("symmetry", "sides"), CASES, ids=str)
def test_only_the_point_group_is_left_of_any_element(
    symmetry: Symmetry, sides: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    space = GroupSet(symmetry).space(sides, 2, "trivial")
    centre = Centre(space)
    x = generic(space.shape)
    rolled = centre(x)
    points = symmetry.point_in(len(sides))
    about = list(space.elements(Symmetry("point", len(sides), False, points)))
    turned = [space.act(k, rolled) for k in about]
    for g in space.sample(symmetry, 60):
        assert any(torch.equal(centre(space.act(g, x)), one) for one in turned)


@pytest.mark.parametrize("symmetry", [p4(), p4m()], ids=str)
def test_tied_samples_differ_by_an_element_of_the_point_group(symmetry: Symmetry) -> None:
    space = GroupSet(symmetry).space((6, 6), 1, "trivial")
    centre = Centre(space)
    torch.manual_seed(1)
    blank = torch.zeros(1, 1, 6, 6, dtype=torch.float64)
    two, ell = blank.clone(), blank.clone()
    two[0, 0, 0, 0] = two[0, 0, 0, 1] = 1.0
    ell[0, 0, [0, 1, 2, 2], [0, 0, 0, 1]] = 1.0
    stripes = blank + torch.arange(6.0) % 2
    about = list(space.elements(Symmetry("point", 2, False, symmetry.point_in(2))))
    for x in (two, ell, stripes, blank + 0.3, two + two.flip(3), ell + ell.roll((3, 3), (2, 3))):
        turned = [space.act(k, centre(x)) for k in about]
        for g in space.sample(symmetry, 40):
            found = centre(space.act(g, x))
            assert any(torch.equal(found, one) for one in turned)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_plain_module_rolls_alike(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    centre = Centre(GroupSet(p4()).space((6, 6), 2, "trivial"))
    x = torch.randn(20, 2, 6, 6, dtype=dtype)
    x[10:] = (x[10:] > 1).to(dtype)
    assert torch.equal(harden(centre)(x), centre(x))


def test_what_cannot_be_centred_is_refused() -> None:
    with pytest.raises(ValueError, match="trivial fibre"):
        Centre(GroupSet(p4()).space((6, 6), 1))
    with pytest.raises(ValueError, match="catalogue group on a lattice"):
        Centre(GroupSet(cyclic(6)).space((6,), 1))
