"""What paths tell curvature: each recorded map reproduces its output and its parameter's gradient.

For every recorded use (map, x, y): outputs(y) = U inputs(x) at each position where the parameter
enters linearly, and autograd's gradient of the parameter is Σ_{n,s} g aᵀ. The fast grams equal
their definitions.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from groupella import groups as g
from groupella.groups import GroupSet
from groupella.nn.layer import ResidualPathway
from groupella.nn.paths import (
    Conv,
    DenseBasis,
    FactoredFC,
    FullyConnected,
    GroupConv,
    PairwiseConv,
    SeparableGroupConv,
    SparseConv,
    SparseFC,
    SparseGroupConv,
    UniformConv,
)
from groupella.nn.shared_maps import SharedLinearMap, taping

GROUPS = GroupSet(g.z2(), g.p4(), g.trivial())
SOURCE, TARGET = GROUPS.space((4, 4), 2), GROUPS.space((4, 4), 3)
POOLED = GROUPS.space((2, 2), 3)
SCALARS = SOURCE.with_fibre("trivial"), TARGET.with_fibre("trivial")
VECTORS = GROUPS.space((), 2), GROUPS.space((), 3)

MODULES = {
    "FC": lambda b: FullyConnected(SOURCE, POOLED, paper_biases=b),
    "F-FC": lambda b: FactoredFC(SOURCE, POOLED, paper_biases=b),
    "F-FC group": lambda b: FactoredFC(SOURCE, POOLED, over="group"),
    "S-FC": lambda b: SparseFC(SOURCE, POOLED, paper_biases=b),
    "S-FC group": lambda b: SparseFC(SOURCE, POOLED, over="group", paper_biases=b),
    "CONV": lambda b: Conv(SOURCE, TARGET, paper_biases=b),
    "CONV ()": lambda b: Conv(*VECTORS, paper_biases=b),
    "S-CONV": lambda b: SparseConv(SOURCE, TARGET, paper_biases=b),
    "GCONV": lambda b: GroupConv(SOURCE, TARGET, g.p4(), paper_biases=b),
    "S-GCONV": lambda b: SparseGroupConv(SOURCE, TARGET, g.p4(), paper_biases=b),
    "GCONV pointwise": lambda b: GroupConv(SOURCE, TARGET, g.p4(), pointwise=True, paper_biases=b),
    "GCONV separable": lambda b: SeparableGroupConv(SOURCE, TARGET, g.p4(), paper_biases=b),
    "GCONV depthwise": lambda b: SeparableGroupConv(
        SOURCE, TARGET, g.p4(), depthwise=True, paper_biases=b
    ),
    "GCONV pairwise": lambda b: PairwiseConv(SOURCE, TARGET, g.p4(), paper_biases=b),
    "GCONV uniform": lambda b: UniformConv(SOURCE, TARGET, g.p4(), paper_biases=b),
    "GCONV uniform, other fibres": lambda b: UniformConv(SCALARS[0], TARGET, g.p4()),
    "DENSE": lambda b: DenseBasis(*SCALARS, g.c4(), paper_biases=b),
    "layer": lambda b: ResidualPathway(SOURCE, TARGET, GROUPS, paper_biases=b),
    "strided layer": lambda b: ResidualPathway(
        SOURCE, POOLED, GROUPS, "F-FC+CONV+GCONV", stride=2, paper_biases=b
    ),
}


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_gradients_are_sums_over_positions(name: str, biases: bool) -> None:
    module = MODULES[name](biases).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    for path in module.modules():
        if hasattr(path, "sharing"):
            path.sharing = "block"
    x = torch.randn(3, *module.space_in.shape, dtype=torch.float64)
    uses: list[tuple[nn.Module, SharedLinearMap, Tensor, Tensor]] = []
    with taping(lambda owner, shared, a, y: uses.append((owner, shared, a.detach(), y))):
        y = module(x)
    loss = (y * torch.randn_like(y)).sum()
    names = {id(p): n for n, p in module.named_parameters()}
    parameters = [getattr(owner, shared.weight) for owner, shared, _, _ in uses]
    assert sorted(names[id(p)] for p in parameters) == sorted(names.values())
    outputs = [y for _, _, _, y in uses]
    found = torch.autograd.grad(loss, [*parameters, *outputs])
    for (_, shared, a, _), parameter, gradient, g_out in zip(
        uses, parameters, found[: len(uses)], found[len(uses) :], strict=True
    ):
        inputs, slopes = shared.inputs(a), shared.outputs(g_out)
        assert inputs.shape[2] == shared.positions
        blocks = torch.einsum("nbsi,nbso->boi", inputs, slopes)
        torch.testing.assert_close(
            blocks, shared.as_blocks(gradient), rtol=1e-9, atol=1e-9, msg=shared.weight
        )
        assert shared.as_blocks(parameter).numel() == parameter.numel()
        torch.testing.assert_close(
            shared.input_gram(a), torch.einsum("nbsi,nbsj->bij", inputs, inputs)
        )
        torch.testing.assert_close(
            shared.output_gram(g_out), torch.einsum("nbsi,nbsj->bij", slopes, slopes)
        )


@pytest.mark.parametrize("make", [FactoredFC, SparseFC])
def test_blocks_may_share_their_output_factor(make: type[nn.Module]) -> None:
    path = make(SOURCE, POOLED, sharing="sum")
    positions = {name: shared.positions for name, shared in path.shared_maps().items()}
    assert positions["theta2"] == SOURCE.shape[0]
    assert positions["theta1"] == POOLED.shape[0]


def test_positions_before_pooling_count() -> None:
    layer = ResidualPathway(SOURCE, POOLED, GROUPS, "F-FC+CONV", stride=2)
    assert layer.paths["CONV"].shared_maps()["weight"].positions == SOURCE.lattice.size


def test_a_basis_too_large_for_its_curvature_says_what_to_do() -> None:
    groups = GroupSet(g.z2(), g.p4m())
    space = groups.space((4, 4), 16)
    layer = ResidualPathway(space, space, groups)
    with pytest.raises(ValueError, match="increments=False"):
        layer.paths["z2"].shared_maps()
    plain = ResidualPathway(space, space, groups, increments=False)
    assert plain.paths["z2"].shared_maps()["weight"].positions == 16
