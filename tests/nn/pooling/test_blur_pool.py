"""BlurPool: the phase of PolyphasePool, of means with binomial weights, for every element."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from groupella.groups import (
    GroupSet,
    LatticeElement,
    Symmetry,
    flips,
    line_reflections,
    octahedral,
    p4m,
    translations,
    z2,
)
from groupella.nn.pooling import BlurPool, PolyphasePool
from groupella.testing import assert_equivariant

SPACES = [
    pytest.param(p4m(), (8, 8), "regular", id="p4m"),
    pytest.param(p4m(), (6, 6), "trivial", id="p4m-odd-half"),
    pytest.param(p4m(), (2, 2), "regular", id="p4m-smallest"),
    pytest.param(flips(), (4, 6), "regular", id="oblong"),
    pytest.param(line_reflections(), (8,), "regular", id="line"),
    pytest.param(line_reflections(), (2,), "regular", id="shortest-line"),
    pytest.param(octahedral(), (4, 4, 4), "trivial", id="voxels"),
]


def by_loops(x: Tensor) -> Tensor:
    """One sample, one kept site and one neighbour at a time."""
    dim = x.dim() - 2
    sides = x.shape[2:]
    pooled = []
    for sample in x:
        norms = {
            phase: float(sample[(slice(None), *(slice(a, None, 2) for a in phase))].abs().max())
            for phase in itertools.product((0, 1), repeat=dim)
        }
        best = max(norms, key=lambda phase: norms[phase])
        y = x.new_zeros(len(sample), *(n // 2 for n in sides))
        for site in itertools.product(*(range(n // 2) for n in sides)):
            for offset in itertools.product((-1, 0, 1), repeat=dim):
                weight = 1.0
                for step in offset:
                    weight *= 0.25 if step else 0.5
                where = [
                    (2 * s + a + o) % n
                    for s, a, o, n in zip(site, best, offset, sides, strict=True)
                ]
                y[(slice(None), *site)] += weight * sample[(slice(None), *where)]
        pooled.append(y)
    return torch.stack(pooled)


@pytest.mark.parametrize("sides", [(8,), (2,), (4, 6), (2, 2), (4, 2, 6)])
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_equals_the_mean_with_binomial_weights_around_the_kept_sites(
    sides: tuple[int, ...], last: bool
) -> None:
    pool = BlurPool(GroupSet(translations(len(sides))).space(sides, 3))
    x = torch.randn(4, 3, *sides, dtype=torch.float64)
    expected = by_loops(x)
    if last:
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    torch.testing.assert_close(pool(x), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("symmetry", "lattice", "fibre"), SPACES)
def test_commutes_with_every_element(
    symmetry: Symmetry, lattice: tuple[int, ...], fibre: str
) -> None:
    space = GroupSet(symmetry).space(lattice, 2, fibre)
    pool = BlurPool(space)
    half = pool.space_out
    x = torch.randn(3, *space.shape, dtype=torch.float64)
    y = pool(x)
    axes = tuple(range(2, y.dim()))
    zero = (0,) * len(lattice)
    elements = list(space.elements(symmetry))
    for g in elements[:: max(len(elements) // 200, 1)]:
        moved = pool(space.act(g, x))
        turned = half.act(LatticeElement(g.point, zero, half.lattice.shape), y)
        if all(t % 2 == 0 for t in g.shift):
            shifted = torch.roll(turned, tuple(t // 2 for t in g.shift), axes)
            torch.testing.assert_close(moved, shifted, rtol=1e-13, atol=1e-13)
        else:
            shifts = itertools.product(*map(range, half.lattice.shape))
            gaps = [(torch.roll(turned, s, axes) - moved).abs().flatten(1).amax(1) for s in shifts]
            assert float(torch.stack(gaps).amin(0).max()) < 1e-13, g


@pytest.mark.parametrize(("symmetry", "lattice", "fibre"), SPACES)
def test_equivariant_up_to_a_translation(
    symmetry: Symmetry, lattice: tuple[int, ...], fibre: str
) -> None:
    pool = BlurPool(GroupSet(symmetry).space(lattice, 2, fibre))
    for dtype in (torch.float32, torch.float64):
        assert_equivariant(
            pool, pool.space_in, pool.space_out, symmetry, up_to_translation=True, dtype=dtype
        )


def test_the_phase_is_that_of_polyphase_pooling_and_constants_stay() -> None:
    space = GroupSet(z2()).space((6, 6), 2)
    x = torch.randn(5, *space.shape)
    assert torch.equal(BlurPool(space).choose(x), PolyphasePool(space).choose(x))
    assert torch.equal(
        BlurPool(space)(torch.full((1, 2, 6, 6), 3.0)), torch.full((1, 2, 3, 3), 3.0)
    )


def test_gradients_reach_every_site() -> None:
    pool = BlurPool(GroupSet(z2()).space((4, 4), 1))
    x = torch.randn(2, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(pool, [x])
    (gradient,) = torch.autograd.grad(pool(x).sum(), x)
    torch.testing.assert_close(gradient, torch.full_like(x, 0.25))


def test_odd_sides_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must be even; got \(4, 5\)"):
        BlurPool(GroupSet(z2()).space((4, 5), 1))
