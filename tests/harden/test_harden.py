"""Hardened networks: same answers, plain modules, no groupella where they are loaded."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from groupella.groups import (
    FeatureSpace,
    GroupSet,
    c4,
    flips,
    p4,
    p4m,
    permutations,
    translations,
    trivial,
    z2,
)
from groupella.harden import harden
from groupella.harden._filters import Filter, plain_weights
from groupella.networks import Trunk, count_parameters, fold, invariant_net, trunk
from groupella.nn.layer import ResidualPathway
from groupella.nn.nonlinearity import nonlinearity
from groupella.nn.paths import Conv, GroupConv, SeparableGroupConv, SparseConv
from groupella.nn.pooling import GlobalPool, GroupPool, Lift, PolyphasePool

SHORT = ((1, 1), (2, 2), (2, 1))


def randomised(network: nn.Module) -> nn.Module:
    """Every parameter away from its initial value, biases too."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter += (0.1 if "omega" in name else 0.3) * noise
    return network


def small(paths: str | None = "F-FC+CONV+GCONV", **options: Any) -> Trunk:
    groups = options.pop("groups", GroupSet(z2(), p4()))
    size = options.pop("image_size", 8)
    arguments = {"in_channels": 1, "blocks": SHORT, "hidden": 4, **options}
    network = trunk(groups, paths, 2, size, 3, **arguments)
    randomised(network)
    return network


def silence(network: Trunk, kept: dict[str, list[str]]) -> None:
    """Set the weights of all other paths to zero."""
    for name, names in kept.items():
        layer = network.get_submodule(name)
        assert isinstance(layer, ResidualPathway)
        with torch.no_grad():
            for path, module in (*layer.paths.items(), *layer.offsets.items()):
                if path not in names:
                    for parameter in module.parameters():
                        parameter.zero_()


def close(first: Tensor, second: Tensor, tolerance: float = 1e-6) -> bool:
    first, second = first.detach(), second.detach()
    return bool((first - second).abs().max() <= tolerance * first.abs().max())


KEPT = {"layers.0": ["GCONV"], "layers.1": ["GCONV", "CONV"], "layers.2": ["F-FC"]}


@pytest.mark.parametrize("paper_biases", [False, True])
def test_the_same_answers_where_the_others_are_zero(paper_biases: bool) -> None:
    network = small(paper_biases=paper_biases)
    before = {name: p.clone() for name, p in network.named_parameters()}
    silence(network, KEPT)
    plain = harden(network, KEPT)
    x = torch.randn(6, 1, 8, 8)
    assert close(network(x), plain(x))
    assert count_parameters(plain) < count_parameters(network)
    assert set(before) == {name for name, _ in network.named_parameters()}


@pytest.mark.parametrize(
    ("paths", "options"),
    [
        ("F-FC+CONV+GCONV/pointwise", {"paper_biases": True}),
        ("F-FC/group+GCONV/separable", {"paper_biases": True}),
        ("GCONV/depthwise", {"paper_biases": True}),
        ("S-FC+S-CONV", {"paper_biases": True}),
        ("S-FC/group+S-CONV+S-GCONV", {"paper_biases": True}),
        ("F-FC+GCONV/pairwise", {"paper_biases": True}),
        ("CONV+GCONV/uniform", {"paper_biases": True}),
        ("FC+CONV", {"paper_biases": True}),
        ("FC", {}),
        (None, {"groups": GroupSet(trivial(), z2(), p4(), flips())}),
        (None, {"groups": GroupSet(trivial(), z2(), c4()), "image_size": 4}),
        (None, {"groups": GroupSet(trivial(), permutations(5)), "image_size": 5}),
        (None, {"groups": GroupSet(trivial(), translations(1)), "image_size": 6}),
        ("CONV", {"groups": GroupSet(translations(3)), "image_size": 4}),
        ("CONV", {"norm": "l1"}),
        ("CONV", {"norm": "l2", "site_pooling": "max", "fibre_pooling": "mean"}),
    ],
)
def test_all_paths_kept_is_the_same_network(paths: str | None, options: dict[str, Any]) -> None:
    network = small(paths, **options).double()
    plain = harden(network)
    x = torch.randn((5, *network.space_in.shape), dtype=torch.float64)
    assert close(network(x), plain(x), 1e-12)
    assert not any(type(m).__module__.startswith("groupella") for m in plain.modules())


def test_plain_convolutions_are_stock_ones() -> None:
    network = small()
    plain = harden(network, {"layers.0": ["GCONV"], "layers.2": ["CONV", "GCONV"]})
    for name in ("layers.0", "layers.2"):
        layer = plain.get_submodule(name)
        assert isinstance(layer, nn.Conv2d)
        assert layer.padding_mode == "circular"
        assert layer.kernel_size == (3, 3)
    assert isinstance(plain.get_submodule("activations.0"), nn.ReLU)


def test_a_selection_object_is_read_by_its_kept() -> None:
    network = small()
    chosen = SimpleNamespace(kept={"layers.0": ("GCONV",)})
    by_object, by_mapping = harden(network, chosen), harden(network, {"layers.0": ["GCONV"]})
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(by_object(x), by_mapping(x))


class Own(nn.Module):
    """A user's network with a branch that no tracer could follow."""

    def __init__(self) -> None:
        super().__init__()
        groups = GroupSet(z2(), p4())
        space = groups.space((4, 4), 1, "trivial")
        self.lift = Lift(space)
        wide = self.lift.space_out.with_channels(2)
        self.first = ResidualPathway(self.lift.space_out, wide, groups, "F-FC+GCONV")
        self.again = GroupConv(wide, wide, p4())
        self.bend = nonlinearity(wide, "tanh")
        self.halve = PolyphasePool(wide)
        self.ends = nn.ModuleDict(
            {"sites": GlobalPool(self.halve.space_out), "norm": nn.LayerNorm(8)}
        )
        self.same = self.first
        self.heads = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.heads[1].weight = self.heads[0].weight

    def forward(self, x: Tensor) -> Tensor:
        y = self.bend(self.first(self.lift(x)))
        if float(y.detach().sum()) > -1e9:
            y = self.halve(self.again(y))
        y = self.ends["norm"](self.ends["sites"](y))
        return self.heads[1](self.heads[0](y)) + self.same(self.lift(x)).mean((2, 3))


def test_networks_of_users_keep_their_class() -> None:
    network = randomised(Own())
    plain = harden(network, {"first": ["GCONV", "F-FC"]})
    assert type(plain) is Own
    assert plain.same is plain.first
    assert plain.heads[0].weight is plain.heads[1].weight
    assert isinstance(plain.again, nn.Conv2d)
    assert isinstance(network.again, GroupConv)
    ours = [m for m in plain.modules() if type(m).__module__.startswith("groupella")]
    assert ours == []
    x = torch.randn(3, 1, 4, 4)
    assert close(network(x), plain(x))


@pytest.mark.parametrize("activation", ["squash", "norm_swish"])
def test_irreps_and_norms(activation: str) -> None:
    groups = GroupSet(p4())
    group = groups.space((4, 4), 1).fibre.representation.group
    network = small(
        "GCONV",
        groups=groups,
        fibre=group.trivial_representation + group.irrep(1),
        activation=activation,
        fibre_pooling="norm",
    )
    x = torch.randn(4, 1, 8, 8)
    assert close(network(x), harden(network)(x))


def test_ties_between_phases_are_broken_alike() -> None:
    pool = PolyphasePool(GroupSet(z2()).space((4, 4), 2))
    x = torch.randint(0, 2, (200, 2, 4, 4)).float()
    assert torch.equal(pool(x), harden(pool)(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("kind", ["strided", "centred"])
def test_a_plain_network_takes_another_precision(kind: str, dtype: torch.dtype) -> None:
    """As the network does: mean, scale and what breaks ties stay in float64."""
    if kind == "strided":
        network: nn.Module = small(None)
    else:
        network = fold(invariant_net(p4(), (8, 8), 1, 3, width=8).eval())
    x = 1.0 + 1e-6 * (torch.rand(30, 1, 8, 8, dtype=torch.float64) < 0.05)
    for name in ("inputs", "outputs"):
        network.get_submodule(name).calibrate([x if name == "inputs" else torch.randn(30, 3)])  # type: ignore[operator]
    plain = harden(randomised(network)).to(dtype)
    with torch.no_grad():
        found, expected = plain(x), network.to(dtype)(x)
    assert found.dtype == dtype
    assert float(expected.std()) > 1e-7
    assert close(found, expected, 20 * max(torch.finfo(dtype).eps, 1e-7))


def space(groups: GroupSet, size: int, channels: int) -> FeatureSpace:
    return groups.space((size, size), channels)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kind=st.sampled_from(["conv", "sparse", "p4", "p4m", "separable", "depthwise"]),
    size=st.integers(1, 6),
    kernel=st.sampled_from([1, 3, 5]),
    channels=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    seed=st.integers(0, 99),
)
def test_filters_are_read_off_exactly_on_any_torus(
    kind: str, size: int, kernel: int, channels: tuple[int, int], seed: int
) -> None:
    torch.manual_seed(seed)
    symmetry = p4m() if kind == "p4m" else p4()
    spaces = [space(GroupSet(symmetry), size, c) for c in channels]
    if kind in ("conv", "sparse"):
        path: nn.Module = (Conv if kind == "conv" else SparseConv)(*spaces, kernel)
    elif kind in ("separable", "depthwise"):
        path = SeparableGroupConv(
            *spaces, p4(), kernel, depthwise=kind == "depthwise", paper_biases=True
        )
    else:
        path = GroupConv(*spaces, symmetry, kernel)
    randomised(path).double()
    found = plain_weights(path)
    assert isinstance(found, Filter)
    assert all(k <= max(kernel, size + 1) for k in found.weight.shape[2:])
    plain = harden(path)
    x = torch.randn((3, *spaces[0].shape), dtype=torch.float64)
    assert close(path(x), plain(x), 1e-12)


@pytest.mark.slow
def test_it_is_one_graph_for_the_compiler() -> None:
    plain = harden(small()).eval()
    torch._dynamo.reset()
    compiled = torch.compile(plain, backend="aot_eager", fullgraph=True)
    x = torch.randn(3, 1, 8, 8)
    assert close(compiled(x), plain(x))


if shutil.which("g++") or shutil.which("clang++"):
    # torch 2.13's own compiler still imports torch.jit.
    @pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
    @pytest.mark.slow
    def test_it_compiles_to_machine_code() -> None:
        plain = harden(small("CONV", blocks=((1, 2),), image_size=4, groups=GroupSet(z2()))).eval()
        torch._dynamo.reset()
        compiled = torch.compile(plain, fullgraph=True)
        x = torch.randn(3, 1, 4, 4)
        with torch.no_grad():
            assert close(compiled(x), plain(x))


ELSEWHERE = """
import sys
sys.modules["groupella"] = None
import torch
network = torch.load("network.pt", weights_only=False)
example = torch.load("example.pt")
assert torch.equal(network(example["x"]), example["y"])
exported = torch.export.load("network.pt2").module()
for part in (slice(2), slice(7)):  # batches other than the one of the export
    assert torch.allclose(exported(example["x"][part]), example["y"][part], atol=1e-5)
kernel = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3, padding=1, padding_mode="circular"))
kernel.load_state_dict(torch.load("layer.pt"))
assert not [name for name in sys.modules if name.startswith("groupella.")]
"""


@pytest.mark.slow
def test_it_loads_where_groupella_is_not(tmp_path: Path) -> None:
    plain = harden(small(), KEPT).eval()
    x = torch.randn(7, 1, 8, 8)
    with torch.no_grad():
        torch.save({"x": x, "y": plain(x)}, tmp_path / "example.pt")
    torch.save(plain, tmp_path / "network.pt")
    first = nn.Sequential(plain.get_submodule("layers.0"))
    torch.save(first.state_dict(), tmp_path / "layer.pt")
    any_batch = ({0: torch.export.Dim("batch", min=1, max=512)},)
    exported = torch.export.export(plain, (x[:4],), dynamic_shapes=any_batch)
    torch.export.save(exported, tmp_path / "network.pt2")
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_gradients_and_modes_are_kept() -> None:
    network = small().train()
    plain = harden(network)
    assert plain.training
    plain(torch.randn(2, 1, 8, 8)).sum().backward()
    assert all(p.grad is not None for p in plain.parameters())
    assert not harden(network.eval()).training
    assert next(harden(network.double()).parameters()).dtype == torch.float64


@pytest.mark.parametrize(
    ("selection", "error", "match"),
    [
        ({"layer.0": ["CONV"]}, ValueError, r"did you mean 'layers\.0'"),
        ({"layers.0": ["CONVV"]}, ValueError, "no path 'CONVV'; did you mean 'CONV'"),
        ({"layers.0": []}, ValueError, "would keep no path"),
        (["layers.0"], TypeError, "mapping from layer names"),
    ],
)
def test_bad_selections(selection: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        harden(small(), selection)


def test_group_pooling_and_identities() -> None:
    wide = GroupSet(p4()).space((2, 2), 3)
    x = torch.randn(2, 12, 2, 2)
    for module in (GroupPool(wide), GroupPool(wide, "mean"), nonlinearity(wide, "gelu")):
        assert close(module(x), harden(module)(x))
    assert isinstance(harden(Lift(GroupSet(z2()).space((2, 2), 1))), nn.Identity)
