"""The action: a homomorphism, exact, and the one that numpy's own rot90, flip and roll perform."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from groupella.groups import (
    FeatureSpace,
    GroupSet,
    LatticeElement,
    Symmetry,
    axial,
    c2,
    c4,
    cm,
    cmm,
    cyclic,
    d2,
    d4,
    diagonal,
    flips,
    inversion,
    line_reflections,
    mirror,
    octahedral,
    octahedral_point,
    p2,
    p4,
    p4m,
    patch_fibre,
    permutations,
    pmm,
    translations,
    trivial,
    z2,
)
from groupella.groups._points import escnn_group
from groupella.groups.gate import load_group

LINE = [translations(1), line_reflections(), mirror(0, dim=1)]
PLANE = [
    *(z2(), p2(), p4(), p4m(), flips(1), flips(0), pmm(), cm(), cm(anti=True), cmm()),
    *(c2(), c4(), d4(), d2(), d2(diagonal=True), mirror(1), mirror(0), diagonal()),
    diagonal(anti=True),
]
VOXELS = [
    *(translations(3), octahedral(), octahedral(mirrors=True), octahedral_point()),
    *(octahedral_point(mirrors=True), inversion(), inversion(translations=True)),
    *(flips(0, dim=3), mirror(2, dim=3), axial(4, 0), axial(2, 1), axial(4, 2, translations=False)),
]
CASES: list[tuple[Symmetry, tuple[int, ...]]] = [
    *((s, shape) for s in LINE for shape in ((5,), (6,))),
    *((s, shape) for s in PLANE for shape in ((4, 4), (5, 5))),
    *((s, (3, 3, 3)) for s in VOXELS),
    *((s, (2, 2, 2)) for s in VOXELS),
    (flips(0), (3, 4)),
    (p2(), (2, 5)),
    (pmm(), (4, 3)),
    (trivial(), (3, 2)),
    (trivial(), ()),
    (p4(), ()),
    (permutations(5), (5,)),
    (cyclic(6), (6,)),
]


def fibres(symmetry: Symmetry) -> list[Any]:
    """Trivial, regular, every irrep, a quotient where escnn has one, and a mixture."""
    if not symmetry.is_catalogue or len(symmetry.point) <= 1:
        return [None]
    group, _ = escnn_group(symmetry.point)
    irreps = list(group.irreps())
    chosen: list[Any] = ["trivial", "regular", *irreps]
    if symmetry.dim == 2 and group.order() == 8:
        chosen.append(group.quotient_representation((0, 1)))
        chosen.append(load_group().directsum([irreps[2], group.regular_representation, irreps[1]]))
    elif symmetry.dim == 2 and group.order() == 4 and group.name == "C4":
        chosen.append(group.quotient_representation(2))
        chosen.append(irreps[1] + irreps[0] + irreps[2])
    return chosen


def generic(space: FeatureSpace, batch: int = 2) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((batch, *space.shape))


def image_of(g: LatticeElement, x: np.ndarray) -> np.ndarray:
    """The action on scalars, written out site by site from the definition."""
    shape = x.shape
    y = np.empty_like(x)
    for s in itertools.product(*map(range, shape)):
        centred = np.array(s) - (np.array(shape) - 1) / 2
        moved = np.array(g.point) @ centred + (np.array(shape) - 1) / 2 + np.array(g.shift)
        y[tuple(np.rint(moved).astype(int) % np.array(shape))] = x[s]
    return y


@pytest.mark.parametrize(("symmetry", "shape"), CASES, ids=str)
def test_action_is_a_homomorphism(symmetry: Symmetry, shape: tuple[int, ...]) -> None:
    for fibre in fibres(symmetry):
        space = GroupSet(symmetry).space(shape, channels=2, fibre=fibre)
        x = generic(space)
        assert np.array_equal(space.act(space.identity(), x), x)
        first = [*space.generators(symmetry), *space.sample(symmetry, 3, seed=1)]
        for g, h in zip(first, space.sample(symmetry, len(first), seed=2), strict=True):
            both = space.act(g, space.act(h, x))
            once = space.act(g * h, x)
            back = space.act(g.inverse(), space.act(g, x))
            tolerance = 0 if space.fibre_permutes else 1e-14
            assert np.abs(both - once).max() <= tolerance
            assert np.abs(back - x).max() <= tolerance
            assert (g * g.inverse()).is_identity


@pytest.mark.parametrize(("symmetry", "shape"), [c for c in CASES if c[0].is_catalogue], ids=str)
def test_every_element_moves_sites_as_defined(symmetry: Symmetry, shape: tuple[int, ...]) -> None:
    space = GroupSet(symmetry).space(shape, channels=1, fibre="trivial")
    x = generic(space, batch=1)
    for g in itertools.islice(space.elements(symmetry), 0, None, 7):
        assert isinstance(g, LatticeElement)
        expected = image_of(g, x[0, 0]) if shape else x[0, 0]
        assert np.array_equal(space.act(g, x)[0, 0], expected)


@pytest.mark.parametrize("shape", [(4, 4), (5, 5)])
def test_named_elements_are_numpys(shape: tuple[int, int]) -> None:
    space = GroupSet(p4m()).space(shape, channels=3, fibre="trivial")
    x = generic(space)
    expected = {
        "rot90": np.rot90(x, axes=(2, 3)),
        "rot180": np.rot90(x, 2, axes=(2, 3)),
        "rot270": np.rot90(x, 3, axes=(2, 3)),
        "flip(0)": np.flip(x, axis=2),
        "flip(1)": np.flip(x, axis=3),
        "transpose": x.transpose(0, 1, 3, 2),
        "antitranspose": np.rot90(x, 2, axes=(2, 3)).transpose(0, 1, 3, 2),
        "shift(1,2)": np.roll(x, (1, 2), axis=(2, 3)),
    }
    named = {g.name: g for g in space.elements(p4m())}
    for name, image in expected.items():
        assert np.array_equal(space.act(named[name], x), image), name


def test_flips_reverse_their_axis() -> None:
    for axis in (0, 1):
        space = GroupSet(mirror(axis)).space((3, 4), channels=1, fibre="trivial")
        (g,) = space.generators(mirror(axis))
        x = generic(space)
        assert np.array_equal(space.act(g, x), np.flip(x, axis=axis + 2))
    assert flips() == flips(axis=1)


def test_regular_fibre_of_p4_cycles_as_the_image_turns() -> None:
    space = GroupSet(p4()).space((4, 4), channels=1)
    x = generic(space)
    (turn,) = [g for g in space.elements(c4()) if g.name == "rot90"]
    assert np.array_equal(space.act(turn, x), np.roll(np.rot90(x, axes=(2, 3)), 1, axis=1))


@pytest.mark.parametrize("fibre", ["regular", "irrep:1,1", "irrep:1,0"])
def test_action_matrix_and_signed_permutation_agree_with_act(fibre: str) -> None:
    space = GroupSet(p4m()).space((4, 4), channels=2, fibre=fibre)
    x = generic(space)
    for g in space.sample(p4m(), 6, seed=3):
        action = space.action(g)
        flat = x.reshape(2, 2, -1)
        moved = np.stack([action.matrix() @ channel for channel in flat.reshape(4, -1)])
        assert np.allclose(moved.reshape(x.shape), space.act(g, x), atol=1e-14)
        assert action.sites is not None
        assert np.array_equal(action.site_matrix.sum(0), np.ones(16))
        assert np.array_equal(action.fibre, space.fibre_matrix(g))
        signed = action.signed()
        assert signed is not None
        permutation, signs = signed
        dense = np.zeros(action.matrix().shape)
        dense[permutation, np.arange(len(permutation))] = signs
        assert np.allclose(dense, action.matrix().toarray(), atol=1e-15)
        assert action.trace() == pytest.approx(np.trace(dense))


def test_fibre_that_does_not_permute_has_no_signed_permutation() -> None:
    space = GroupSet(octahedral()).space((3, 3, 3), channels=1, fibre="irrep:2")
    assert not space.fibre_permutes
    actions = [space.action(g) for g in space.generators(octahedral())]
    assert any(action.signed() is None for action in actions)
    for action in actions:
        product = (action.matrix() @ action.matrix().T).toarray()
        assert np.allclose(product, np.eye(action.size), atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("fibre", ["regular", "irrep:1,1"])
def test_torch_tensors_keep_their_type(dtype: torch.dtype, fibre: str) -> None:
    space = GroupSet(p4m()).space((4, 4), channels=2, fibre=fibre)
    x = torch.randn(3, *space.shape).to(dtype)
    (g,) = space.sample(p4m(), 1, seed=5)
    y = space.act(g, x)
    assert y.dtype == dtype
    assert y.shape == x.shape
    expected = space.act(g, x.numpy())
    assert expected.dtype == x.numpy().dtype
    assert np.array_equal(y.numpy(), expected)


def test_integers_permute_but_do_not_mix() -> None:
    space = GroupSet(p4()).space((4, 4), channels=1)
    x = torch.arange(64).reshape(1, 4, 4, 4)
    (g,) = space.sample(p4(), 1, seed=3)
    assert sorted(space.act(g, x).ravel().tolist()) == list(range(64))
    vectors = space.with_fibre("irrep:1")
    turn = next(h for h in vectors.elements(c4()) if h.name == "rot90")
    with pytest.raises(TypeError, match="floats"):
        vectors.act(turn, torch.zeros(1, 2, 4, 4, dtype=torch.long))


def test_gradients_flow_through_the_action() -> None:
    for fibre in ("regular", "irrep:1,1", "irrep:1,0"):
        space = GroupSet(p4m()).space((3, 3), channels=2, fibre=fibre)
        x = torch.randn(1, *space.shape, dtype=torch.float64, requires_grad=True)
        (g,) = space.sample(p4m(), 1, seed=8)
        weight = torch.randn_like(x)
        (gradient,) = torch.autograd.grad((space.act(g, x) * weight).sum(), x)
        assert torch.allclose(gradient, space.act(g.inverse(), weight.detach()), atol=1e-14)


def test_act_works_under_vmap_and_on_empty_batches() -> None:
    space = GroupSet(p4m()).space((4, 4), channels=1)
    (g,) = space.sample(p4m(), 1, seed=2)
    x = torch.randn(5, 2, *space.shape)
    stacked = torch.vmap(lambda v: space.act(g, v))(x)
    assert torch.equal(stacked, torch.stack([space.act(g, v) for v in x]))
    assert space.act(g, x[0, :0]).shape == (0, *space.shape)


def test_elements_are_distinct_and_counted() -> None:
    for symmetry, shape in CASES:
        if shape == (3, 3, 3):
            continue
        space = GroupSet(symmetry).space(shape, channels=1, fibre="trivial")
        elements = list(space.elements(symmetry))
        assert len(set(elements)) == len(elements) == symmetry.order(shape)
        assert elements[0].is_identity
        assert elements[0] == space.identity()


def test_generators_generate_every_element() -> None:
    for symmetry in (*PLANE, line_reflections()):
        shape = (3,) * (symmetry.dim or 0)
        space = GroupSet(symmetry).space(shape, channels=1)
        found, frontier = {space.identity()}, [space.identity()]
        while frontier:
            products = {g * a for a in frontier for g in space.generators(symmetry)} - found
            found |= products
            frontier = list(products)
        assert found == set(space.elements(symmetry))


def test_samples_are_uniform_and_reproducible() -> None:
    space = GroupSet(p4m()).space((2, 2), channels=1)
    drawn = space.sample(p4m(), 3200, seed=0)
    counts = [drawn.count(g) for g in space.elements(p4m())]
    assert len(counts) == 32
    assert min(counts) > 50
    assert drawn == space.sample(p4m(), 3200, seed=0)
    assert drawn != space.sample(p4m(), 3200, seed=1)
    five = GroupSet(permutations(5)).space((5,), channels=1)
    assert len(set(five.sample(permutations(5), 2000, seed=0))) == 120


def test_window_permutation_is_the_point_part_of_an_element() -> None:
    space = GroupSet(p4m()).space((6, 6), channels=1)
    window = np.random.default_rng(1).standard_normal((3, 3))
    for g in space.sample(p4m(), 20, seed=4):
        assert isinstance(g, LatticeElement)
        at_rest = LatticeElement(g.point, (0, 0), (3, 3))
        moved = np.empty(9)
        moved[space.window_permutation(g, (3, 3))] = window.ravel()
        assert np.array_equal(moved.reshape(3, 3), image_of(at_rest, window))
        assert np.array_equal(space.window_permutation(g, 3), space.window_permutation(g, (3, 3)))
    turn = next(g for g in space.elements(c4()) if g.name == "rot90")
    with pytest.raises(ValueError, match="different length"):
        space.window_permutation(turn, (3, 5))


def test_elements_act_on_tori_whose_sides_divide_theirs() -> None:
    fine = GroupSet(p4m()).space((6, 6), channels=1, fibre="trivial")
    coarse = fine.with_lattice((3, 3))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 1, 3, 3))
    for g, h in zip(fine.sample(p4m(), 9, 1), fine.sample(p4m(), 9, 2), strict=True):
        both = coarse.act(g, coarse.act(h, x))
        assert np.array_equal(both, coarse.act(g * h, x))
    with pytest.raises(ValueError, match="divide"):
        fine.with_lattice((4, 4)).act(fine.generators(p4m())[0], rng.standard_normal((1, 1, 4, 4)))


def test_spaces_and_elements_are_values() -> None:
    groups = GroupSet(z2(), p4(), flips(axis=0))
    space = groups.space((4, 4), channels=2)
    twin = GroupSet(z2(), p4(), flips(axis=0)).space((4, 4), channels=2)
    assert space == twin
    assert hash(space) == hash(twin)
    assert space != space.with_channels(3)
    assert space != space.with_fibre("trivial")
    for value in (groups, space, p4m(), permutations(4), *space.sample(p4m(), 2, 0)):
        copy = pickle.loads(pickle.dumps(value))
        assert copy == value
        assert hash(copy) == hash(value)
    mixed = space.with_fibre(escnn_group(p4m().point)[0].irrep(1, 1))
    copy = pickle.loads(pickle.dumps(mixed))
    assert copy.fibre.representation.name == mixed.fibre.representation.name
    for frozen, field in ((space, "channels"), (p4(), "name"), (groups, "members")):
        with pytest.raises(AttributeError):
            setattr(frozen, field, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        space.fibre.size = 3
    assert repr(space) == "FeatureSpace(2 × regular on 4×4, ambient p4m)"
    assert space.shape == (16, 4, 4)
    assert space.size == 256


def patches(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(6, 6) as (2·2 pixels, 3, 3 patches)."""
    return image.reshape(3, 2, 3, 2).transpose(1, 3, 0, 2).reshape(4, 3, 3)


def test_patches_move_as_the_whole_image_does() -> None:
    image = np.arange(36.0).reshape(6, 6)
    space = GroupSet(p4m()).space((3, 3), 1, patch_fibre(p4m(), (2, 2)))
    x = torch.from_numpy(patches(image))[None]
    found = {space.act(g, x).numpy().tobytes() for g in space.elements(p4m())}
    turned = [np.rot90(image, k) for k in range(4)]
    moved = [
        np.roll(one, (2 * i, 2 * j), (0, 1))
        for one in (*turned, *(np.flip(t, 1) for t in turned))
        for i, j in itertools.product(range(3), repeat=2)
    ]
    assert found == {patches(one)[None].tobytes() for one in moved}
    assert len(found) == 72


def test_patches_that_cannot_turn_are_refused() -> None:
    with pytest.raises(ValueError, match="exchanges sides of patches of 2×4 pixels"):
        patch_fibre(p4(), (2, 4))
    assert patch_fibre(flips(0), (2, 4)).size == 8
    with pytest.raises(ValueError, match="p4 does not act on patches of 2×2×2 pixels"):
        patch_fibre(p4(), (2, 2, 2))
