"""torch.func passes through every module: vmap equals a loop, jacrev and jacfwd equal autograd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, stack_module_state, vmap

from groupella import groups as g
from groupella.groups import GroupSet
from groupella.networks import equivariant_net, invariant_net, trunk
from groupella.nn.layer import PATHS, ResidualPathway
from groupella.nn.nonlinearity import ENTRYWISE, NORMS, nonlinearity
from groupella.nn.normalisation import ChannelNorm
from groupella.nn.paths import DenseBasis, GroupConv, SparseConv, SparseFC
from groupella.nn.pooling import Centre, GlobalPool, GroupPool, Lift, PolyphasePool

GROUPS = GroupSet(g.z2(), g.p4(), g.c4(), g.trivial())
SOURCE, TARGET, POOLED = GROUPS.space((4, 4), 1), GROUPS.space((4, 4), 2), GROUPS.space((2, 2), 2)
SCALARS = SOURCE.with_fibre("trivial")
TURNING = SOURCE.with_fibre("irrep:1")
LINE = GroupSet(g.permutations(4)).space((4,), 2)
VECTORS = GroupSet(g.rotations(3), g.trivial())


def layer(paths: str | None, stride: int = 1) -> nn.Module:
    after = POOLED if stride == 2 else TARGET
    return ResidualPathway(SOURCE, after, GROUPS, paths, stride=stride, init="balanced")


def in_units() -> nn.Module:
    """A network that has learned units, with strides and a path for every group."""
    groups, blocks = GroupSet(g.p4(), g.trivial()), [(1, 1), (1, 2)]
    made = trunk(groups, None, 1, 4, 2, in_channels=1, blocks=blocks, hidden=2)
    made.inputs.calibrate([5 + 3 * torch.randn(20, 1, 4, 4)])
    made.outputs.calibrate([7 * torch.randn(20, 2)])
    return made


def of_vectors() -> nn.Module:
    """Gates and products of tensors."""
    spaces = VECTORS.space((), 2, g.SCALAR + g.V), VECTORS.space((), 1, g.V)
    return equivariant_net(VECTORS, *spaces, channels=2, depth=1)


def on_odd_sides() -> nn.Module:
    groups = GroupSet(g.c4(), g.trivial())
    spaces = groups.space((5, 5), 1), groups.space((3, 3), 1)
    return ResidualPathway(*spaces, groups, "TIED", stride=2)


def trained(module: nn.Module) -> nn.Module:
    """In evaluation mode, with statistics that are not those of the start."""
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 2.0)
    return module.eval()


NAMES = [f"{kind}/{v}" for kind, k in PATHS.items() for v in (k.variants or [""])]
MODULES: dict[str, Callable[[], nn.Module]] = {
    **{
        f"{name.strip('/')}, stride {stride}": lambda n=name, s=stride: layer(n.strip("/"), s)
        for name in NAMES
        for stride in (1, 2)
    },
    "increments": lambda: layer(None),
    "increments, stride 2": lambda: layer(None, 2),
    "S-CONV with positions": lambda: SparseConv(SOURCE, TARGET, learn_positions=True),
    "S-FC with positions": lambda: SparseFC(SOURCE, POOLED, learn_positions=True),
    "GCONV on irreps": lambda: GroupConv(TURNING, TURNING, g.p4()),
    "DENSE of generators": lambda: DenseBasis(LINE, LINE, g.permutations(4)),
    "polyphase": lambda: PolyphasePool(SOURCE),
    "polyphase on irreps": lambda: PolyphasePool(TURNING),
    "polyphase l1": lambda: PolyphasePool(SOURCE, "l1"),
    "polyphase l2": lambda: PolyphasePool(SOURCE, "l2"),
    "centre": lambda: Centre(SCALARS),
    "lift": lambda: Lift(SCALARS),
    "sites mean": lambda: GlobalPool(SOURCE),
    "sites max": lambda: GlobalPool(SOURCE, "max"),
    "fibre max": lambda: GroupPool(SOURCE),
    "fibre mean": lambda: GroupPool(SOURCE, "mean"),
    "fibre norm": lambda: GroupPool(SOURCE, "norm"),
    "channel norm": lambda: trained(ChannelNorm(SOURCE)),
    **{name: lambda n=name: nonlinearity(SOURCE, n) for name in ENTRYWISE},
    **{f"{name} on irreps": lambda n=name: nonlinearity(TURNING, n) for name in NORMS},
    "invariant net": lambda: trained(invariant_net(g.p4(), (8, 8), 1, 2, width=4)),
    "trunk in units": in_units,
    "stride on odd sides": on_odd_sides,
    "tensors of vectors": of_vectors,
    "image turns": lambda: trained(invariant_net(g.image_turns(8), (8, 8), 1, 2, width=4)),
    "stride 4": lambda: ResidualPathway(SOURCE, GROUPS.space((1, 1), 2), GROUPS, "GCONV", stride=4),
    "zeros": lambda: ResidualPathway(SOURCE, TARGET, GROUPS, "CONV+GCONV", padding="zeros"),
}


@pytest.fixture(params=MODULES)
def module(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    made = MODULES[request.param]().double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, 0.5, 0.5)
    return made


def inputs(module: nn.Module, n: int) -> Tensor:
    return torch.randn(n, *module.space_in.shape, dtype=torch.float64)


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def parameters(module: nn.Module) -> dict[str, Tensor]:
    return {n: p.detach().clone() for n, p in module.named_parameters()}


def by_autograd(y: Tensor, x: Tensor) -> Tensor:
    """The Jacobian (outputs, inputs), one output at a time."""
    rows = [torch.autograd.grad(v, x, retain_graph=True, allow_unused=True)[0] for v in y.flatten()]
    filled = [torch.zeros_like(x) if r is None else r for r in rows]
    return torch.stack(filled).reshape(len(rows), -1)


def test_vmap_over_samples_is_a_loop(module: nn.Module) -> None:
    x = inputs(module, 3)
    same(vmap(lambda a: module(a[None])[0])(x), torch.cat([module(a[None]) for a in x]))


def test_jacobians_of_the_input(module: nn.Module) -> None:
    x = inputs(module, 2).requires_grad_()
    y = module(x)
    expected = by_autograd(y, x)
    for jacobian in (jacrev, jacfwd):
        same(jacobian(module)(x.detach()).reshape(expected.shape), expected)
        each = vmap(jacobian(lambda a: module(a[None])[0]))(x.detach())
        blocks = expected.view(2, y[0].numel(), 2, x[0].numel())
        same(each.reshape(2, y[0].numel(), -1), torch.stack([blocks[n, :, n] for n in range(2)]))


def test_jacobians_of_the_parameters(module: nn.Module) -> None:
    x = inputs(module, 1)
    y = module(x)
    for name, parameter in module.named_parameters():
        expected = by_autograd(y, parameter)
        for jacobian in (jacrev, jacfwd):
            found = jacobian(lambda p, name=name: functional_call(module, {name: p}, (x,)))
            same(found(parameter.detach()).reshape(expected.shape), expected)


def test_vmap_over_parameters_is_a_loop(module: nn.Module) -> None:
    x = inputs(module, 2)
    many = {n: torch.randn(3, *p.shape, dtype=p.dtype) for n, p in module.named_parameters()}
    if not many:
        return
    found = vmap(lambda p: functional_call(module, p, (x,)))(many)
    for n in range(3):
        same(found[n], functional_call(module, {k: v[n] for k, v in many.items()}, (x,)))


def test_gradients_of_each_sample(module: nn.Module) -> None:
    x, values = inputs(module, 3), parameters(module)
    if not values:
        return

    def loss(p: dict[str, Tensor], a: Tensor) -> Tensor:
        return functional_call(module, p, (a[None],)).square().sum()

    found = vmap(grad(loss), (None, 0))(values, x)
    for n in range(3):
        named = dict(module.named_parameters())
        expected = torch.autograd.grad(module(x[n : n + 1]).square().sum(), list(named.values()))
        for name, gradient in zip(named, expected, strict=True):
            same(found[name][n], gradient)


def test_second_derivatives(module: nn.Module) -> None:
    # Not jacfwd(jacfwd(…)): torch loses the tangents of what any autograd.Function saves.
    x = inputs(module, 1).requires_grad_()
    (slope,) = torch.autograd.grad(module(x).pow(3).sum(), x, create_graph=True)
    expected = by_autograd(slope, x)
    cubes = lambda a: module(a).pow(3).sum()  # noqa: E731
    for found in (hessian(cubes), jacrev(jacrev(cubes)), jacrev(jacfwd(cubes))):
        same(found(x.detach()).reshape(expected.shape), expected)


def output(norm: ChannelNorm, x: Tensor, changed: dict[str, Tensor]) -> Tensor:
    """The output in training; the statistics are copies: torch.func allows no side effects."""
    x = changed.get("x", x)
    values = {n: v for n, v in changed.items() if n != "x"}
    copies = {n: b.clone() + 0 * x.detach().sum() for n, b in norm.named_buffers()}
    return functional_call(norm, {**values, **copies}, (x,))


class TestNormalisationInTraining:
    """Its output depends on the whole batch, and its statistics change."""

    def test_derivatives(self) -> None:
        norm = ChannelNorm(POOLED).double()
        nn.init.normal_(norm.weight)
        x = inputs(norm, 3).requires_grad_()
        fibre = x.view(3, 2, -1)
        mean, spread = fibre.mean((0, 2), keepdim=True), fibre.var((0, 2), False, keepdim=True)
        y = (fibre - mean) / (spread + norm.eps).sqrt() * norm.weight.view(1, 2, 1)
        same(norm(x), y.view(x.shape))
        y = y + norm.bias.view(1, 2, 1)
        for name, of in (("x", x), ("weight", norm.weight), ("bias", norm.bias)):
            expected = by_autograd(y.view(x.shape), of)
            for jacobian in (jacrev, jacfwd):
                found = jacobian(lambda v, name=name: output(norm, x.detach(), {name: v}))
                same(found(of.detach()).reshape(expected.shape), expected)
        (slope,) = torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)
        expected = by_autograd(slope, x)
        cubes = lambda a: output(norm, a, {}).pow(3).sum()  # noqa: E731
        for second in (hessian(cubes), jacrev(jacrev(cubes)), jacrev(jacfwd(cubes))):
            same(second(x.detach()).reshape(expected.shape), expected)

    def test_an_ensemble_updates_the_statistics_of_each_member(self) -> None:
        norms = [ChannelNorm(TARGET).double() for _ in range(3)]
        for norm in norms:
            nn.init.normal_(norm.weight)
        values, statistics = stack_module_state(norms)
        values = {n: v.detach() for n, v in values.items()}
        x = torch.randn(3, 4, *TARGET.shape, dtype=torch.float64)
        found = vmap(lambda p, b, a: functional_call(norms[0], (p, b), (a,)))(values, statistics, x)
        for n, norm in enumerate(norms):
            same(found[n], norm(x[n]))
            same(statistics["mean"][n], norm.mean)
            same(statistics["variance"][n], norm.variance)
