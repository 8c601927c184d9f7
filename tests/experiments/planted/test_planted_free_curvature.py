"""The exact GGN of a free path, against one from automatic differentiation."""

from __future__ import annotations

import torch
from torch.func import functional_call, jacrev

from groupella.experiments.planted._trunk import Trunk
from groupella.experiments.planted.free_curvature import compare


def test_gram_matrix_has_the_eigenvalues_of_the_ggn() -> None:
    torch.manual_seed(0)
    trunk = Trunk(1, 3, init="balanced").double()
    x, y = torch.randn(4, 1, 8, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    name = "layers.0.paths.trivial.weight"
    weight = dict(trunk.named_parameters())[name].detach()
    jacobian = jacrev(lambda w: functional_call(trunk, {name: w}, (x,)))(weight).flatten(2)
    p = trunk(x).detach().softmax(1)
    hessian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    values, vectors = torch.linalg.eigh(hessian)
    root = vectors * values.clamp(min=0).sqrt()[:, None, :]
    rows = torch.einsum("nkr,nkp->nrp", root, jacobian).flatten(0, 1)
    wanted = torch.linalg.eigvalsh(rows @ rows.T)
    found = compare(trunk, x, y, layer=0)
    top = found.exact.sort(descending=True).values
    torch.testing.assert_close(top[:8], wanted.sort(descending=True).values[:8])
    exact, factored = found.occam(1.0)
    assert factored >= exact
