"""Add a path of your own to a layer: a free linear map of low rank, next to a convolution.

A path says what it computes, which symmetry it has whatever its weights, and which shared linear
maps it consists of. Curvature, evidence and selection work from there.
"""

import torch
from torch import Tensor, nn

from groupella.evidence.likelihoods import Gaussian
from groupella.groups import FeatureSpace, GroupSet, trivial, z2
from groupella.nn.layer import ResidualPathway
from groupella.nn.paths import Conv
from groupella.nn.shared_maps import LinearMap, SharedLinearMap, record
from groupella.training import fit


class LowRank(nn.Module):
    """y = U V x, through four numbers."""

    def __init__(self, space_in: FeatureSpace, space_out: FeatureSpace) -> None:
        super().__init__()
        self.space_in, self.space_out, self.symmetry = space_in, space_out, trivial()
        self.V = nn.Parameter(torch.empty(4, space_in.size))
        self.U = nn.Parameter(torch.empty(space_out.size, 4))

    def reset_parameters(self, gain: float) -> None:
        nn.init.normal_(self.V, std=self.V.shape[1] ** -0.5)
        nn.init.normal_(self.U, std=gain * self.U.shape[1] ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        a = x.flatten(1)
        z = a @ self.V.T
        record(self, "V", a, z)
        y = z @ self.U.T
        record(self, "U", z, y)
        return y.view(-1, *self.space_out.shape)

    def shared_maps(self) -> dict[str, SharedLinearMap]:
        (rank, d_in), (d_out, _) = self.V.shape, self.U.shape
        return {"V": LinearMap("V", d_in, rank), "U": LinearMap("U", rank, d_out)}


# The target compares the two halves of the image: a convolution cannot tell them apart.
torch.manual_seed(0)
x = torch.randn(200, 1, 4, 4)
y = (x[..., :2] - x[..., 2:]).mean((2, 3)) + 0.1 * torch.randn(200, 1)

groups = GroupSet(z2(), trivial())
image, hidden = groups.space((4, 4), channels=1), groups.space((4, 4), channels=2)
layer = ResidualPathway(image, hidden, groups, {"low rank": LowRank, "conv": Conv}, init="balanced")
network = nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 1))
result = fit(network, (x, y), Gaussian(), epochs=40, lr=0.01, burn_in=15, progress=False)
for layer, verdict in result.selection().verdicts.items():
    print(layer, "obeys", verdict)
