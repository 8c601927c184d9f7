"""equivariance_error and assert_equivariant on modules whose symmetry is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.groups import (
    FeatureSpace,
    GroupSet,
    Symmetry,
    c2,
    flips,
    line_reflections,
    octahedral,
    p4,
    p4m,
    permutations,
    translations,
    trivial,
    z2,
)
from groupella.groups.gate import load_gspaces, load_nn
from groupella.testing import ConstantOutputWarning, assert_equivariant, equivariance_error
from groupella.testing._translate import best_translation, translate


def conv(padding_mode: Literal["zeros", "circular"] = "circular") -> nn.Conv2d:
    return nn.Conv2d(2, 3, 3, padding=1, padding_mode=padding_mode)


def image(*members: Symmetry, size: int = 6) -> FeatureSpace:
    return GroupSet(*members).space((size, size), 2, "trivial")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_circular_convolution_is_equivariant_to_translations(dtype: torch.dtype) -> None:
    space = image(z2())
    assert_equivariant(conv(), space, space.with_channels(3), z2(), dtype=dtype)


def test_zero_padding_breaks_it_and_the_message_says_where() -> None:
    space = image(z2())
    with pytest.raises(AssertionError) as failure:
        assert_equivariant(conv("zeros"), space, space.with_channels(3), z2())
    message = str(failure.value)
    assert "Conv2d is not equivariant under z2" in message
    assert "shift(" in message
    assert "<- worst" in message
    assert "up_to_translation" not in message


def test_the_worst_element_is_the_one_that_is_not_a_symmetry() -> None:
    space = image(p4())
    found = equivariance_error(conv(), space, space.with_channels(3), p4(), dtype=torch.float64)
    assert float(found) > 0.1
    assert "rot" in found.worst.element.name
    generators = {e.element.name: e.error for e in found.errors if e.is_generator}
    assert generators["shift(1,0)"] < 1e-12 < generators["rot90"]
    assert sum(not e.is_generator for e in found.errors) == 8


def test_several_symmetries_at_once() -> None:
    space = image(z2(), flips())
    found = equivariance_error(conv(), space, space.with_channels(3), (z2(), flips()))
    assert found.worst.symmetry.name == "flips"
    assert {e.symmetry.name for e in found.errors} == {"z2", "flips"}


def test_plain_networks_of_users_invariant_outputs() -> None:
    space = image(z2())
    invariant = nn.Sequential(
        conv(), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(3, 5)
    )
    assert_equivariant(invariant, space, None, z2())
    vector = space.with_lattice(()).with_channels(5)
    assert_equivariant(invariant, space, vector, z2(), up_to_translation=True)
    placed = nn.Sequential(conv(), nn.ReLU(), nn.Flatten(), nn.Linear(108, 5))
    with pytest.raises(AssertionError, match="Sequential is not invariant under z2"):
        assert_equivariant(placed, space, None, z2())


def test_a_vector_with_a_fibre_turns_with_the_image() -> None:
    space = GroupSet(p4()).space((6, 6), 2)
    vector = space.with_lattice(())
    assert_equivariant(lambda x: x.sum((2, 3)), space, vector, p4())
    with pytest.raises(AssertionError, match="rot"):
        assert_equivariant(lambda x: x.sum((2, 3)).roll(1, 1), space, vector, p4())


def polyphase(x: Tensor) -> Tensor:
    """The 2×2 phase of the largest absolute value, sample by sample: slow and plain."""
    rows = []
    for sample in x:
        phases = [sample[:, a::2, b::2] for a, b in itertools.product((0, 1), repeat=2)]
        rows.append(max(phases, key=lambda p: float(p.abs().max())))
    return torch.stack(rows)


def test_up_to_translation_accepts_polyphase_and_not_a_fixed_phase() -> None:
    space = image(p4m(), size=8)
    half = space.with_lattice((4, 4))
    assert_equivariant(polyphase, space, half, p4m(), up_to_translation=True, dtype=torch.float64)
    fixed = equivariance_error(
        lambda x: x[..., ::2, ::2], space, half, z2(), up_to_translation=True
    )
    assert float(fixed) > 0.1


def test_up_to_translation_is_offered_where_it_would_help() -> None:
    space = image(z2(), size=8)

    def centred(x: Tensor) -> Tensor:
        peak = x.abs().sum(1).flatten(1).argmax(1)
        return translate(x, torch.stack([-(peak // 8), -(peak % 8)], 1))

    with pytest.raises(AssertionError, match="up_to_translation=True accepts it"):
        assert_equivariant(centred, space, space, z2())
    assert_equivariant(centred, space, space, z2(), up_to_translation=True)


def test_shifts_are_scaled_between_lattices() -> None:
    space = image(p4m(), size=4)
    double = space.with_lattice((8, 8))
    assert_equivariant(nn.Upsample(scale_factor=2), space, double, p4m())
    with pytest.raises(ValueError, match=r"no counterpart.*up_to_translation=True"):
        equivariance_error(nn.AvgPool2d(2), double, space, z2())


def test_dependence_on_the_batch_is_found_out() -> None:
    space = image(z2())
    with pytest.raises(AssertionError):
        assert_equivariant(lambda x: x - x.mean((0, 2, 3), keepdim=True), space, space, z2())


def test_nan_is_never_accepted() -> None:
    space = image(z2())
    with pytest.raises(AssertionError, match="nan"):
        assert_equivariant(lambda x: x * float("nan"), space, space, z2(), tolerance=float("inf"))


def test_lines_voxels_and_sets() -> None:
    line = GroupSet(line_reflections()).space((6,), 1, "trivial")
    smooth = nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular")
    with torch.no_grad():
        smooth.weight.copy_(torch.tensor([[[0.3, 1.0, 0.3]]]))
    assert_equivariant(smooth, line, line, line_reflections())

    voxels = GroupSet(octahedral()).space((4, 4, 4), 1, "trivial")
    assert_equivariant(
        lambda x: F.avg_pool3d(F.pad(x, (1,) * 6, "circular"), 3, 1), voxels, voxels, octahedral()
    )
    with pytest.raises(AssertionError):
        assert_equivariant(lambda x: x.roll(1, 2), voxels, voxels, octahedral())

    points = GroupSet(permutations(5)).space((5,), 2)
    assert_equivariant(lambda x: x - x.mean(2, keepdim=True), points, points, permutations(5))
    with pytest.raises(AssertionError, match="under s5"):
        assert_equivariant(lambda x: x.cumsum(2), points, points, permutations(5))
    with pytest.raises(ValueError, match="alone"):
        equivariance_error(lambda x: x[..., :1], points, image(z2()), permutations(5))


def test_modules_of_escnn() -> None:
    gspaces, enn = load_gspaces(), load_nn()
    r2 = gspaces.rot2dOnR2(4)
    kind_in, kind_out = (enn.FieldType(r2, n * [r2.regular_repr]) for n in (1, 2))
    module = enn.SequentialModule(
        enn.R2Conv(kind_in, kind_out, 3, padding=1, padding_mode="circular"), enn.ReLU(kind_out)
    )
    space = GroupSet(p4()).space((6, 6), 1)
    assert_equivariant(module, space, space.with_channels(2), p4())
    with pytest.raises(AssertionError):
        assert_equivariant(nn.Conv2d(4, 8, 1), space, space.with_channels(2), p4())


# e2cnn is no longer maintained: it indexes with bytes and uses names that numpy deprecates.
@pytest.mark.filterwarnings(
    "ignore:.*torch.uint8 is now deprecated:UserWarning",
    "ignore::DeprecationWarning",
    "ignore::SyntaxWarning",
)
def test_modules_of_e2cnn() -> None:
    gspaces = pytest.importorskip("e2cnn.gspaces", reason="e2cnn needs numpy 1")
    enn = pytest.importorskip("e2cnn.nn", reason="e2cnn works with numpy 1 only")
    r2 = gspaces.Rot2dOnR2(4)
    kind = enn.FieldType(r2, [r2.regular_repr])
    module = enn.R2Conv(kind, kind, 3, padding=1, padding_mode="circular")
    space = GroupSet(p4()).space((6, 6), 1)
    assert_equivariant(module, space, space, p4())


def test_nothing_of_the_module_or_the_random_state_is_touched() -> None:
    module = nn.Sequential(conv(), nn.BatchNorm2d(3)).train()
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    space = image(z2())
    assert_equivariant(module, space, space.with_channels(3), z2(), dtype=torch.float64)
    assert torch.equal(torch.rand(1), expected)
    assert all(m.training for m in module.modules())
    for name, tensor in module.state_dict().items():
        assert tensor.dtype == state[name].dtype
        assert torch.equal(tensor, state[name])


@pytest.mark.parametrize(("bias", "said"), [(0.0, "is zero"), (1.0, "is the same")])
def test_a_module_that_ignores_its_input_is_told(bias: float, said: str) -> None:
    space, dead = image(z2()), conv()
    nn.init.zeros_(dead.weight)
    assert dead.bias is not None
    nn.init.constant_(dead.bias, bias)
    with pytest.warns(ConstantOutputWarning, match=said):
        assert_equivariant(dead, space, space.with_channels(3), z2())


def test_given_inputs_and_prepared_ones() -> None:
    space = image(z2())
    constant = torch.ones(3, 2, 6, 6, dtype=torch.float64)
    assert_equivariant(conv("zeros").double(), space, None, z2(), inputs=constant)
    flat = nn.Sequential(nn.Unflatten(1, (2, 6, 6)), conv())
    assert_equivariant(flat, space, space.with_channels(3), z2(), prepare=lambda x: x.flatten(1))


@pytest.mark.parametrize(
    ("module", "error", "match"),
    [
        (lambda x: (x, x), TypeError, "returned tuple"),
        (lambda x: x[:, :1], ValueError, "output space asks for"),
        (lambda x: x.sum(), ValueError, "returned shape"),
    ],
)
def test_outputs_of_the_wrong_kind(
    module: Callable[[Tensor], Tensor], error: type[Exception], match: str
) -> None:
    space = image(z2())
    with pytest.raises(error, match=match):
        equivariance_error(module, space, space, z2())


def test_bad_arguments() -> None:
    space = image(z2())
    with pytest.raises(ValueError, match="batch must be positive"):
        equivariance_error(conv(), space, None, z2(), batch=0)
    with pytest.raises(ValueError, match="no element to try"):
        equivariance_error(conv(), space, None, ())
    with pytest.raises(ValueError, match="expected a tensor of shape"):
        equivariance_error(conv(), space, None, z2(), inputs=torch.zeros(1, 2, 5, 5))
    with pytest.raises(ValueError, match="p4"):
        equivariance_error(conv(), space, None, p4())
    for check in (assert_equivariant, equivariance_error):
        with pytest.raises(TypeError, match=r"Symmetry such as p4\(\), a name.* got \['z2', 3\]"):
            check(conv(), space, None, ["z2", 3])  # type: ignore[operator]
        with pytest.raises(TypeError, match=r"such as torch.float64, got 'float64'"):
            check(conv(), space, None, z2(), dtype="float64")  # type: ignore[operator]
    with pytest.raises(TypeError, match="or several"):
        assert_equivariant(conv(), space, None, z2)  # type: ignore[arg-type]


def test_the_identity_is_tried_only_where_there_is_nothing_else() -> None:
    space = GroupSet(c2()).space((4, 4), 1, "trivial")
    found = equivariance_error(lambda x: x, space, space, c2())
    assert len(found.errors) == 1 + 8
    assert not any(e.element.is_identity for e in found.errors)
    points = GroupSet(permutations(2)).space((2,), 1)
    found = equivariance_error(lambda x: x, points, points, permutations(2))
    assert not any(e.element.is_identity for e in found.errors)
    site = GroupSet(z2()).space((1, 1), 1)
    assert len(equivariance_error(lambda x: x, site, site, z2()).errors) >= 8
    alone = GroupSet(trivial()).space((4, 4), 1)
    assert len(equivariance_error(lambda x: x, alone, alone, trivial()).errors) == 8


@settings(max_examples=30, deadline=None)
@given(
    lattice=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    batch=st.integers(1, 3),
    seed=st.integers(0, 2**16),
)
def test_translate_is_roll_and_best_translation_undoes_it(
    lattice: list[int], batch: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((batch, 2, *lattice), generator=generator)
    shifts = torch.randint(-9, 9, (batch, len(lattice)), generator=generator)
    axes = tuple(range(1, len(lattice) + 1))
    rolled = torch.stack([s.roll(t.tolist(), axes) for s, t in zip(x, shifts, strict=True)])
    moved = translate(x, shifts)
    assert torch.equal(moved, rolled)
    assert torch.equal(translate(x, best_translation(moved, x)), moved)


def test_translations_in_every_dimension_have_names() -> None:
    for dim in (1, 2, 3):
        space = GroupSet(translations(dim)).space((3,) * dim, 1)
        found = equivariance_error(lambda x: x, space, space, translations(dim))
        assert float(found) == 0.0
        assert str(found).count("generator") == dim
