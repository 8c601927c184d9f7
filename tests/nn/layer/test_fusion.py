"""One convolution for all paths that are convolutions gives what the separate ones give."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from groupella.groups import (
    GroupSet,
    cyclic,
    flips,
    inversion,
    line_reflections,
    p4,
    p4m,
    translations,
    trivial,
    z2,
)
from groupella.networks import trunk
from groupella.nn.layer import ResidualPathway
from groupella.nn.layer import _fusion as fusion
from groupella.nn.paths import Conv, FactoredFC, GroupConv, SparseConv
from groupella.nn.shared_maps import taping
from groupella.testing import assert_equivariant

IMAGES = GroupSet(trivial(), z2(), p4(), flips())


def layer_of(
    groups: GroupSet = IMAGES, side: int = 4, dim: int = 2, stride: int = 1, **options: object
) -> ResidualPathway:
    torch.manual_seed(0)
    half = (side // stride,) * dim
    source, target = groups.space((side,) * dim, 2), groups.space(half, 3)
    options = {"init": "balanced", **options}
    layer = ResidualPathway(source, target, groups, stride=stride, **options).double()  # type: ignore[arg-type]
    for name, parameter in layer.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    return layer


def separate(module: nn.Module, x: Tensor) -> Tensor:
    """The module while someone listens, as curvature does: every path by itself."""
    with taping(lambda *_: None):
        y: Tensor = module(x)
    return y


def assert_same(module: nn.Module, x: Tensor) -> None:
    """Values and gradients, of the input and of every parameter."""
    leaves = [x.requires_grad_(), *module.parameters()]
    found = []
    for y in (module(x), separate(module, x)):
        g = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
        found.append([y, *torch.autograd.grad(y, leaves, g)])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11)


def inputs(layer: ResidualPathway, n: int = 3) -> Tensor:
    return torch.randn(n, *layer.space_in.shape, dtype=torch.float64)


def convolutions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with every convolution that stands for all plain paths of a layer."""
    seen: list[int] = []

    def counted(plain: Callable[..., Tensor], *arguments: Any) -> Tensor:
        seen.append(1)
        return plain(*arguments)

    for name in ("torus_conv", "subsampled_conv"):
        monkeypatch.setattr(fusion, name, partial(counted, getattr(fusion, name)))
    return seen


CASES: dict[str, Callable[[], ResidualPathway]] = {
    "increments": lambda: layer_of(),
    "members": lambda: layer_of(increments=False),
    "strided": lambda: layer_of(stride=2),
    "one path": lambda: layer_of(paths="F-FC+CONV"),
    "paper biases": lambda: layer_of(paths="F-FC+CONV+GCONV/pointwise", paper_biases=True),
    "strided, paper biases": lambda: layer_of(
        paths="F-FC+CONV+GCONV:p4", paper_biases=True, stride=2
    ),
    "anchors": lambda: layer_of(paths="S-FC+S-CONV+CONV"),
    "anchors on the group": lambda: layer_of(paths="S-FC/group+S-GCONV+CONV"),
    "products": lambda: layer_of(paths="CONV+GCONV:p4/pairwise+GCONV:flips/uniform"),
    "stages": lambda: layer_of(paths="CONV+GCONV:p4/separable"),
    "no bias": lambda: layer_of(paths="CONV+GCONV:p4", bias=False),
    "two windows": lambda: layer_of(
        paths={
            "wide": lambda a, b: Conv(a, b, (3, 5)),
            "narrow": lambda a, b: GroupConv(a, b, p4(), 1),
            "anchored": lambda a, b: SparseConv(a, b, 3, paper_biases=True),
            "free": lambda a, b: FactoredFC(a, b),
        },
        side=8,
    ),
    "wider than the torus": lambda: layer_of(side=2, kernel_size=5),
    "line": lambda: layer_of(GroupSet(trivial(), translations(1), line_reflections()), 6, 1),
    "strided line": lambda: layer_of(
        GroupSet(trivial(), translations(1), line_reflections()), 6, 1, stride=2
    ),
    "voxels": lambda: layer_of(GroupSet(trivial(), translations(3), inversion(True)), 2, 3),
    "strided voxels": lambda: layer_of(
        GroupSet(trivial(), translations(3), inversion(True)), 2, 3, stride=2
    ),
    "generators": lambda: layer_of(GroupSet(trivial(), cyclic(5)), 5, 1),
}


@pytest.mark.parametrize("case", CASES)
def test_it_equals_the_separate_paths(case: str) -> None:
    layer = CASES[case]()
    assert_same(layer, inputs(layer))


@pytest.mark.parametrize("stride", [1, 2])
def test_parts_of_a_layer_equal_theirs(stride: int) -> None:
    layer = layer_of(stride=stride)
    assert_same(layer.strict("p4"), inputs(layer))
    assert_same(layer.only([*layer.paths][:2]), inputs(layer))


def test_strict_layers_stay_equivariant() -> None:
    layer = layer_of(GroupSet(trivial(), z2(), p4(), p4m()))
    for name in ("z2", "p4", "p4m"):
        strict = layer.strict(name)
        assert_equivariant(strict, layer.space_in, layer.space_out, [layer.groups[name]])


def test_a_network_equals_its_separate_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = convolutions(monkeypatch)
    torch.manual_seed(0)
    network = trunk(IMAGES, alpha=1, image_size=8, classes=3, in_channels=1).double()
    network(torch.randn(2, 1, 8, 8, dtype=torch.float64))
    assert len(seen) == len(network.layers)
    assert_same(network, torch.randn(2, 1, 8, 8, dtype=torch.float64))


def test_all_convolutions_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = convolutions(monkeypatch)
    layer = layer_of(paths="F-FC+CONV+GCONV:p4+GCONV:flips")
    layer(inputs(layer))
    assert len(seen) == 1
    separate(layer, inputs(layer))
    assert len(seen) == 1


class Doubled(Conv):
    """A convolution with a forward pass of its own, and the filter of another."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Promised(Doubled):
    """The same, whose filter says so."""

    def filter(self) -> Tensor:
        return 2 * super().filter()

    def filter_bias(self) -> Tensor | None:
        return None

    def forward(self, x: Tensor) -> Tensor:
        return Conv.forward(self, x)


class Called(Conv):
    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = 3 * super().__call__(x)
        return y


@pytest.mark.parametrize(("kind", "joins"), [(Doubled, False), (Promised, True), (Called, False)])
def test_a_subclass_joins_only_with_a_promise_of_its_own(kind: type[Conv], joins: bool) -> None:
    layer = layer_of(paths={"conv": Conv, "mine": kind})
    assert fusion.is_plain(layer.paths["mine"]) is joins
    assert_same(layer, inputs(layer))


def test_a_hooked_path_is_called() -> None:
    layer = layer_of(paths="F-FC+CONV+GCONV:p4")
    x, calls = inputs(layer), []
    before = layer(x)
    handle = layer.paths["CONV"].register_forward_hook(lambda *_: calls.append(1))
    torch.testing.assert_close(layer(x), before, rtol=1e-11, atol=1e-11)
    assert calls == [1]
    handle.remove()
    layer(x)
    assert calls == [1]
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert not fusion.is_plain(layer.paths["CONV"])
    finally:
        handle.remove()
    conv = layer.paths["CONV"]
    conv.forward = lambda x: torch.zeros(  # type: ignore[method-assign]
        len(x), *layer.space_out.shape, dtype=x.dtype
    )
    rest = layer.only([n for n in layer.paths if n != "CONV"])
    torch.testing.assert_close(layer(x), rest(x), rtol=1e-11, atol=1e-11)


# Torch's own forward-mode code warns about its own use of torch.jit.script.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_it_works_under_function_transforms() -> None:
    layer = layer_of(paths="F-FC+CONV+GCONV:p4")
    x = inputs(layer)
    named = {n: p.detach() for n, p in layer.named_parameters()}

    def of(some: dict[str, Tensor]) -> Tensor:
        y: Tensor = torch.func.functional_call(layer, {**named, **some}, (x,))
        return y

    for name, value in named.items():
        many = torch.stack([value, 2 * value])
        both = torch.func.vmap(lambda v, name=name: of({name: v}))(many)  # type: ignore[misc]
        torch.testing.assert_close(both[1], of({name: 2 * value}))
        change = torch.ones_like(value)
        _, slope = torch.func.jvp(lambda v, name=name: of({name: v}), (value,), (change,))  # type: ignore[misc]
        step = (of({name: value + 1e-5}) - of({name: value - 1e-5})) / 2e-5
        torch.testing.assert_close(slope, step, rtol=1e-6, atol=1e-6)


def test_second_derivatives_exist() -> None:
    layer = layer_of(paths="F-FC+CONV+GCONV:p4")
    x = inputs(layer, 1).requires_grad_()
    weights = [layer.paths["CONV"].weight, layer.bias]

    def gradient(x: Tensor) -> Tensor:
        found = torch.autograd.grad(layer(x).square().sum(), weights, create_graph=True)
        return torch.cat([g.flatten() for g in found])

    torch.autograd.gradcheck(gradient, (x,), fast_mode=True)


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("shape", [(3, 4, 6), (3, 5), (3, 1, 1), (3, 2, 4, 2)])
def test_what_is_repeated_for_all_samples_has_the_sum_of_their_gradients(
    shape: tuple[int, ...], last: bool
) -> None:
    torch.manual_seed(0)
    constant = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    y = fusion.repeated(5, constant)
    assert torch.equal(y, constant.expand(5, *shape))
    g = torch.randn(5, *shape, dtype=torch.float64)
    g = g.movedim(1, -1).contiguous().movedim(-1, 1) if last else g
    (found,) = torch.autograd.grad(y, constant, g)
    torch.testing.assert_close(found, sum(g), rtol=0, atol=1e-14)
    assert torch.autograd.gradgradcheck(lambda c: fusion.repeated(5, c), constant)
