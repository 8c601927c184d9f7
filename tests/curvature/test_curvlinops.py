"""The same blocks as curvlinops where it is right: zero padding, or circular padding made explicit.

It ignores `padding_mode="circular"` and multiplies the factors of a bias differently (ours are
exact), so weights are compared.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from groupella.curvature import curvature
from groupella.evidence.likelihoods import Categorical, Gaussian, Likelihood

curvlinops = pytest.importorskip(
    "curvlinops", reason="the comparison with curvlinops needs curvlinops-for-pytorch"
)

NETWORKS: dict[str, tuple[nn.Module, ...]] = {
    "zero padding": (
        nn.Conv2d(2, 3, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(4, 3),
    ),
    "circular padding": (
        nn.CircularPad2d(1),
        nn.Conv2d(2, 3, 3),
        nn.ReLU(),
        nn.CircularPad2d(1),
        nn.Conv2d(3, 2, 3),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(32, 3),
    ),
}


def by_curvlinops(
    network: nn.Module, likelihood: Likelihood, x: Tensor, approximation: str
) -> dict[str, Tensor]:
    if isinstance(likelihood, Categorical):
        loss: nn.Module = nn.CrossEntropyLoss(reduction="sum")
        y = torch.zeros(x.shape[0], dtype=torch.long)
    else:
        loss = nn.MSELoss(reduction="sum")
        y = torch.zeros(x.shape[0], 3, dtype=x.dtype)
    weights = {n: p for n, p in network.named_parameters() if n.endswith("weight")}
    operator = curvlinops.KFACLinearOperator(
        network,
        loss,
        list(weights.values()),
        [(x, y)],
        fisher_type="type-2",
        kfac_approx=approximation,
        check_deterministic=False,
    )
    size = sum(p.numel() for p in weights.values())
    dense = operator @ torch.eye(size, dtype=x.dtype)
    dense = torch.as_tensor(dense)
    blocks, start = {}, 0
    for name, parameter in weights.items():
        end = start + parameter.numel()
        blocks[name] = dense[start:end, start:end]
        start = end
    return blocks


@pytest.mark.filterwarnings("default::UserWarning", "default::DeprecationWarning")
@pytest.mark.parametrize("approximation", ["expand", "reduce"])
@pytest.mark.parametrize("likelihood", [Categorical(), Gaussian(0.5**0.5)])
@pytest.mark.parametrize("kind", NETWORKS)
def test_weights_agree(kind: str, likelihood: Likelihood, approximation: str) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(*NETWORKS[kind]).double()
    x = torch.randn(5, 2, 4, 4, dtype=torch.float64)
    expected = by_curvlinops(network, likelihood, x, approximation)
    blocks = curvature(network, likelihood, (x, x), approximation=approximation)
    for name, dense in expected.items():
        torch.testing.assert_close(blocks[name].to_dense(), dense, rtol=1e-6, atol=1e-9)


def test_circular_padding_mode_equals_explicit_padding() -> None:
    """Where all other libraries go wrong."""
    torch.manual_seed(0)
    implicit = nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular").double()
    explicit = nn.Conv2d(2, 3, 3).double()
    explicit.load_state_dict(implicit.state_dict())
    head = nn.Sequential(nn.Tanh(), nn.Flatten(), nn.Linear(48, 3).double())
    x = torch.randn(5, 2, 4, 4, dtype=torch.float64)
    ours = curvature(nn.Sequential(implicit, head), Categorical(), (x, x))["0.weight"]
    padded = nn.Sequential(nn.CircularPad2d(1), explicit, head)
    expected = by_curvlinops(padded, Categorical(), x, "expand")["1.weight"]
    torch.testing.assert_close(ours.to_dense(), expected, rtol=1e-6, atol=1e-9)
    silently_wrong = by_curvlinops(nn.Sequential(implicit, head), Categorical(), x, "expand")
    assert (silently_wrong["0.weight"] - expected).abs().max() > 0.01 * expected.abs().max()
