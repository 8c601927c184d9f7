"""Hyper-gradients through the factors, against finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from groupella.curvature import Curvature, curvature, exact, hypergradient, mc
from groupella.curvature._modes import Mode
from groupella.evidence.likelihoods import Categorical, Gaussian, Likelihood
from groupella.groups import GroupSet, p4, translations
from groupella.nn.circular import circular_conv
from groupella.nn.paths import SparseConv, SparseFC, SparseGroupConv
from groupella.nn.shared_maps import BasisMap, SharedLinearMap, record

STEP = 1e-5


class Windowed(nn.Module):
    """A circular convolution whose kernel is multiplied by a window of width 1/ω."""

    def __init__(self, c_in: int, c_out: int, side: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(c_out, c_in, 3, 3) / 3)
        self.omega = nn.Parameter(torch.tensor(0.7))
        self.sites = (side, side)

    def window(self) -> Tensor:
        o = torch.arange(-1, 2, dtype=self.omega.dtype)
        return (-(self.omega**2) * (o[:, None] ** 2 + o[None, :] ** 2)).exp()

    def forward(self, x: Tensor) -> Tensor:
        y = circular_conv(x, self.weight * self.window())
        record(self, "weight", x, y)
        return y

    def shared_maps(self) -> dict[str, SharedLinearMap]:
        c_out, c_in = self.weight.shape[:2]
        basis = torch.diag(self.window().flatten()).reshape(9, 1, 1, 3, 3)
        return {"weight": BasisMap("weight", basis, c_in, c_out, self.sites)}


def windowed_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        Windowed(2, 3, 4), nn.Tanh(), Windowed(3, 2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(32, 3)
    ).double()


def sparse_network() -> nn.Module:
    torch.manual_seed(0)
    groups = GroupSet(translations(2))
    a, b = groups.space((4, 4), 2, fibre="trivial"), groups.space((4, 4), 3, fibre="trivial")
    return nn.Sequential(
        SparseConv(a, b), nn.Tanh(), SparseFC(b, a), nn.Tanh(), nn.Flatten(), nn.Linear(32, 3)
    ).double()


def sparse_network_on_a_group() -> nn.Module:
    torch.manual_seed(0)
    space = GroupSet(p4()).space((4, 4), 1)
    return nn.Sequential(
        SparseGroupConv(space, space, p4(), learn_positions=True),
        nn.Tanh(),
        SparseFC(space, space, over="group", learn_positions=True),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(64, 3),
    ).double()


NETWORKS = {
    "windowed": (windowed_network(), ["0.omega", "2.omega"]),
    "sparse": (sparse_network(), ["0.omega", "2.omega1", "2.omega2"]),
}


def objective(blocks: Curvature) -> Tensor:
    """Minus half the log-determinant: the evidence's part that depends on curvature."""
    return (
        -0.5 * torch.stack([b.logdet(0.1 + 0.01 * i) for i, b in enumerate(blocks.values())]).sum()
    )


def finite_differences(
    network: nn.Module, likelihood: Likelihood, x: Tensor, names: list[str], mode: Mode
) -> dict[str, Tensor]:
    has_tangents = isinstance(network[0], SparseConv)  # type: ignore[index]
    ignore = [] if has_tangents else names
    gradients = {}
    for name in names:
        parameter = network.get_parameter(name)
        centre = parameter.detach().clone()
        values = []
        for sign in (1, -1):
            parameter.data = centre + sign * STEP
            values.append(objective(curvature(network, likelihood, (x, x), mode, ignore=ignore)))
        parameter.data = centre
        gradients[name] = (values[0] - values[1]) / (2 * STEP)
    return gradients


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("mode", [exact(), mc(2)])
@pytest.mark.parametrize("kind", NETWORKS)
def test_gradient_equals_finite_differences(kind: str, mode: Mode, passes: int) -> None:
    network, names = NETWORKS[kind]
    x = torch.randn(5, 2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for likelihood in (Categorical(), Gaussian(0.7)):
        value, gradient = hypergradient(
            objective, network, likelihood, (x, x), names, passes=passes, mode=mode
        )
        expected = finite_differences(network, likelihood, x, names, mode)
        for name in names:
            torch.testing.assert_close(
                gradient[name].double(), expected[name].reshape(()), rtol=1e-6, atol=1e-6
            )
        assert not value.requires_grad


@pytest.mark.parametrize("passes", [1, 2])
def test_anchors_and_lengthscales_on_a_group_learn_from_the_factors(passes: int) -> None:
    network = sparse_network_on_a_group()
    lengthscales = ["0.omega", "2.omega1", "2.omega2"]
    positions = ["0.positions", "2.positions1", "2.positions2"]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, 4, 4, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        for name in positions:
            # Away from the kinks of the distance on the torus.
            network.get_parameter(name).add_(0.1)
    _, gradient = hypergradient(
        objective, network, Categorical(), (x, x), [*lengthscales, *positions], passes=passes
    )
    for name in (*lengthscales, *positions):
        parameter = network.get_parameter(name)
        centre = parameter.detach().clone()
        direction = torch.randn(centre.shape, dtype=torch.float64, generator=generator)
        values = []
        for sign in (1, -1):
            parameter.data = centre + sign * STEP * direction
            blocks = curvature(network, Categorical(), (x, x), ignore=positions)
            values.append(objective(blocks))
        parameter.data = centre
        expected = (values[0] - values[1]) / (2 * STEP)
        found = (gradient[name].double() * direction).sum()
        assert found.abs() > 1e-4, name
        torch.testing.assert_close(found, expected.reshape(()), rtol=1e-5, atol=1e-6)


def test_both_variants_agree_over_batches() -> None:
    network, names = NETWORKS["windowed"]
    x = torch.randn(7, 2, 4, 4, dtype=torch.float64)
    batches = [(x[:3], None), (x[3:], None)]
    one = hypergradient(objective, network, Categorical(), batches, names)
    two = hypergradient(objective, network, Categorical(), batches, names, passes=2)
    pair = hypergradient(objective, network, Categorical(), (x, x), names, passes=2, batch_size=2)
    for other in (two, pair):
        torch.testing.assert_close(one, other)


def test_direct_dependence_counts_too() -> None:
    network, names = NETWORKS["windowed"]
    x = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    omega = network.get_parameter("0.omega")
    plain = hypergradient(objective, network, Categorical(), (x, x), names)[1]
    for passes in (1, 2):
        _, gradient = hypergradient(
            lambda blocks: objective(blocks) - omega**2,
            network,
            Categorical(),
            (x, x),
            names,
            passes=passes,
        )
        torch.testing.assert_close(gradient["0.omega"], plain["0.omega"] - 2 * omega.detach())


def test_factors_carry_a_graph_only_on_request() -> None:
    network, names = NETWORKS["windowed"]
    x = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    with_graph = curvature(network, Categorical(), (x, x), differentiable=names)
    everything = curvature(network, Categorical(), (x, x), differentiable=True, ignore=["*.omega"])
    without = curvature(network, Categorical(), (x, x), ignore=names)
    for name, block in without.items():
        assert not block.output_factors.requires_grad
        assert with_graph[name].output_factors.requires_grad
        torch.testing.assert_close(with_graph[name].detach().to_dense(), block.to_dense())
        torch.testing.assert_close(everything[name].detach().to_dense(), block.to_dense())


def test_wrong_calls_are_refused() -> None:
    network, names = NETWORKS["windowed"]
    x = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match="passes must be"):
        hypergradient(objective, network, Categorical(), (x, x), names, passes=3)
    with pytest.raises(TypeError, match="twice"):
        hypergradient(objective, network, Categorical(), iter([(x, x)]), names, passes=2)
