"""The exact GGN of a free path, against one from automatic differentiation."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, jacrev

from groupella.experiments.planted._trunk import Trunk
from groupella.experiments.planted.free_curvature import compare


@pytest.mark.parametrize(
    ("layer", "n", "rank"), [(0, 4, 8), (2, 400, 800)], ids=["few-data", "few-weights"]
)
def test_smaller_matrix_has_the_eigenvalues_of_the_ggn(layer: int, n: int, rank: int) -> None:
    torch.manual_seed(0)
    trunk = Trunk(1, 3, init="balanced").double()
    trunk.read_out.normal_()
    x, y = torch.randn(n, 1, 8, 8, dtype=torch.float64), torch.arange(n) % 3
    name = f"layers.{layer}.paths.trivial.weight"
    weight = dict(trunk.named_parameters())[name].detach()
    jacobian = jacrev(lambda w: functional_call(trunk, {name: w}, (x,)))(weight).flatten(2)
    p = trunk(x).detach().softmax(1)
    hessian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    values, vectors = torch.linalg.eigh(hessian)
    root = vectors * values.clamp(min=0).sqrt()[:, None, :]
    rows = torch.einsum("nkr,nkp->nrp", root, jacobian).flatten(0, 1)
    wanted = torch.linalg.eigvalsh((rows @ rows.T).detach()).sort(descending=True).values[:rank]
    assert float(wanted[0]) > 1e-3
    found = compare(trunk, x, y, layer=layer)
    top = found.exact.sort(descending=True).values
    torch.testing.assert_close(top[:rank], wanted, rtol=1e-6, atol=1e-9)
    expected = 0.5 * torch.log1p(wanted / 0.1).sum()
    assert found.occam(0.1)[0] == pytest.approx(float(expected), rel=1e-4)
