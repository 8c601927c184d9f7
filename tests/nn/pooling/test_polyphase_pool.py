"""Polyphase pooling commutes with every element, sample by sample."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from groupella.groups import (
    FeatureSpace,
    GroupSet,
    LatticeElement,
    Symmetry,
    flips,
    line_reflections,
    octahedral,
    p4,
    p4m,
    permutations,
    translations,
    z2,
)
from groupella.nn.pooling import PolyphasePool, choose_phase, take_phase

SPACES = [
    pytest.param(p4m(), (8, 8), "regular", id="p4m"),
    pytest.param(p4m(), (8, 8), "trivial", id="p4m-trivial"),
    pytest.param(p4m(), (6, 6), "irrep:1,1", id="p4m-signed-irrep"),
    pytest.param(p4(), (6, 6), "regular", id="p4-odd-half"),
    pytest.param(flips(), (4, 6), "regular", id="oblong"),
    pytest.param(line_reflections(), (8,), "regular", id="line"),
    pytest.param(flips(0, dim=3), (4, 4, 4), "regular", id="voxels"),
]


def all_shifts(space: FeatureSpace, y: Tensor) -> Tensor:
    """Every translation of each sample: (shifts, *y.shape)."""
    shifts = itertools.product(*map(range, space.lattice.shape))
    axes = tuple(range(2, y.dim()))
    return torch.stack([torch.roll(y, shift, axes) for shift in shifts])


@pytest.mark.parametrize(("symmetry", "lattice", "fibre"), SPACES)
@pytest.mark.parametrize("norm", ["inf", "l1", "l2"])
def test_exact_for_every_element(
    symmetry: Symmetry, lattice: tuple[int, ...], fibre: str, norm: str
) -> None:
    space = GroupSet(symmetry).space(lattice, 2, fibre)
    pool = PolyphasePool(space, norm)
    half = pool.space_out
    x = torch.randn(3, *space.shape)
    y = pool(x)
    zero = (0,) * len(lattice)
    # The maximum is exact by construction, the sums are so unless rounding decides a tie.
    seen = list(space.elements(symmetry))[:: 1 if norm == "inf" else 7]
    for g in seen:
        moved = pool(space.act(g, x))
        turned = half.act(LatticeElement(g.point, zero, half.lattice.shape), y)
        if not any(g.shift):
            assert torch.equal(moved, turned), g
        elif all(t % 2 == 0 for t in g.shift):
            shift = tuple(t // 2 for t in g.shift)
            assert torch.equal(moved, torch.roll(turned, shift, tuple(range(2, y.dim())))), g
        else:
            same = (all_shifts(half, turned) == moved).flatten(2).all(2)
            assert same.any(0).all(), g
    assert norm != "inf" or len(seen) == symmetry.order(lattice)


def test_a_fibre_that_turns_is_measured_by_its_norm() -> None:
    space = GroupSet(octahedral()).space((4, 4, 4), 3)
    irreps = space.fibre.representation.group.irreps()
    space = space.with_fibre(next(rho for rho in irreps if rho.size == 2))
    pool = PolyphasePool(space)
    x = torch.randn(4, *space.shape, dtype=torch.float64)
    y = pool(x)
    for g in space.elements(octahedral()):
        if not any(g.shift):
            half = LatticeElement(g.point, g.shift, pool.space_out.lattice.shape)
            torch.testing.assert_close(pool(space.act(g, x)), pool.space_out.act(half, y))
    norms = x.reshape(4, 3, 2, 4, 4, 4).norm(dim=2)
    assert torch.equal(pool.choose(x), choose_phase(norms))


def naive(x: Tensor, norm: str) -> tuple[Tensor, list[int]]:
    """One sample at a time, one phase at a time."""
    pooled, chosen = [], []
    for sample in x:
        phases = [
            sample[(slice(None), *(slice(a, None, 2) for a in phase))]
            for phase in itertools.product((0, 1), repeat=sample.dim() - 1)
        ]
        order = {"inf": float("inf"), "l1": 1, "l2": 2}[norm]
        norms = [float(torch.linalg.vector_norm(p.double(), order)) for p in phases]
        best = max(range(len(phases)), key=lambda k: norms[k])
        pooled.append(phases[best])
        chosen.append(best)
    return torch.stack(pooled), chosen


@settings(max_examples=30, deadline=None)
@given(
    sides=st.lists(st.integers(1, 4).map(lambda n: 2 * n), min_size=1, max_size=3),
    channels=st.integers(1, 5),
    batch=st.integers(1, 4),
    norm=st.sampled_from(["inf", "l1", "l2"]),
    last=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_equals_the_naive_choice(
    sides: list[int], channels: int, batch: int, norm: str, last: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, channels, *sides, generator=generator, dtype=torch.float64)
    if last:
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    expected, chosen = naive(x, norm)
    phase = choose_phase(x, norm)
    assert phase.tolist() == chosen
    assert torch.equal(take_phase(x, phase), expected)


def test_ties_go_to_the_larger_energy_then_to_the_first() -> None:
    x = torch.zeros(3, 1, 4, 4)
    x[0, 0, 0, 0] = x[0, 0, 1, 1] = x[0, 0, 3, 3] = -1.0  # phases 0 and 3 tie; 3 has more
    x[1, 0, 0, 1] = x[1, 0, 1, 0] = 2.0  # phases 1 and 2 tie twice
    assert choose_phase(x).tolist() == [3, 1, 0]


def test_a_sample_does_not_see_the_others() -> None:
    pool = PolyphasePool(GroupSet(z2()).space((8, 8), 5))
    x = torch.randn(64, 5, 8, 8)
    alone = torch.cat([pool(sample) for sample in x.split(1)])
    assert torch.equal(pool(x), alone)
    x[0] *= 1000
    assert torch.equal(pool(x)[1:], alone[1:])


@pytest.mark.parametrize("last", [False, True])
def test_gradients_of_both_orders(last: bool) -> None:
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    if last:
        x = x.to(memory_format=torch.channels_last)
    x.requires_grad_()
    phase = torch.tensor([2, 1])
    assert torch.autograd.gradcheck(lambda a: take_phase(a, phase), [x])
    assert torch.autograd.gradgradcheck(lambda a: take_phase(a, phase), [x])
    (gradient,) = torch.autograd.grad(take_phase(x, phase).sum(), x)
    expected = torch.zeros_like(x)
    expected[0, :, 1::2, 0::2] = 1
    expected[1, :, 0::2, 1::2] = 1
    assert torch.equal(gradient, expected)


# Torch's own forward-mode code warns about its own use of torch.jit.script.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_functional_transforms() -> None:
    pool = PolyphasePool(GroupSet(z2()).space((4, 4), 2))
    x = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    jacobian = torch.func.jacrev(pool)(x).sum((1, 2, 3))
    assert torch.equal(torch.func.jacfwd(pool)(x).sum((1, 2, 3)), jacobian)
    per_sample = torch.func.vmap(lambda a: pool(a[None])[0])(x)
    assert torch.equal(per_sample, pool(x))


def test_what_cannot_be_pooled_is_refused() -> None:
    space = GroupSet(z2()).space
    with pytest.raises(ValueError, match=r"must be even; got \(4, 5\)"):
        PolyphasePool(space((4, 5), 1))
    with pytest.raises(ValueError, match="must be even"):
        PolyphasePool(space((), 1))
    with pytest.raises(ValueError, match="norm must be one of"):
        PolyphasePool(space((4, 4), 1), "max")
    with pytest.raises(ValueError, match="defined by generators"):
        PolyphasePool(GroupSet(permutations(4)).space((4,), 1))
    with pytest.raises(ValueError, match="expected a tensor of shape"):
        PolyphasePool(GroupSet(translations(1)).space((4,), 1))(torch.zeros(1, 2, 4))
    with pytest.raises(ValueError, match="must be even"):
        take_phase(torch.zeros(1, 1, 3), torch.zeros(1, dtype=torch.long))


@pytest.mark.parametrize(
    ("lattice", "stride"), [((8,), 2), ((6, 4), 2), ((6, 9), 3), ((4, 2, 6), 2)]
)
def test_the_largest_entry_decides_in_either_memory_layout(
    lattice: tuple[int, ...], stride: int
) -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 3, *lattice)
    starts = list(itertools.product(range(stride), repeat=len(lattice)))
    norms = [
        x[(..., *(slice(a, None, stride) for a in s))].abs().flatten(1).amax(1) for s in starts
    ]
    expected = torch.stack(norms, 1).argmax(1)
    assert len(expected.unique()) == len(starts)
    last = x.movedim(1, -1).contiguous().movedim(-1, 1)
    for layout in (x, last):
        assert torch.equal(choose_phase(layout, stride=stride), expected)
