"""How far to trust the factored curvature of a free path: the exact GGN of a small case.

For a plain matrix with inputs a_n and output gradients g_nk (k over the columns of a root of the
likelihood's Hessian), the GGN block is Jᵀ J with rows g_nk ⊗ a_n. Its non-zero eigenvalues are
those of the Gram matrix (g_nk·g_ml)(a_n·a_m); with few data or few weights one of the two is small.
KFAC replaces the sum of Kronecker products by one product of sums; the trace is the same, the
spectrum flatter, and so γ = Σ λ/(λ + δ) and the Occam factor ½ Σ log(1 + λ/δ) are larger.

    python -m groupella.experiments.planted.free_curvature
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from groupella.curvature import curvature
from groupella.evidence.likelihoods import Categorical
from groupella.nn.layer import ResidualPathway

from ._deep import DeepCase, draw
from ._trunk import GentleFC, Trunk


@dataclass(frozen=True)
class Comparison:
    """Eigenvalues of one block, exact and factored."""

    exact: Tensor
    factored: Tensor

    def effective_parameters(self, delta: float) -> tuple[float, float]:
        return _pair(self, lambda v: (v / (v + delta)).sum())

    def occam(self, delta: float) -> tuple[float, float]:
        return _pair(self, lambda v: 0.5 * torch.log1p(v / delta).sum())

    def trace(self) -> tuple[float, float]:
        return _pair(self, lambda v: v.sum())


def compare(trunk: Trunk, x: Tensor, y: Tensor, layer: int = -1) -> Comparison:
    """The curvature of the free path in a layer of a trunk."""
    number = layer % len(trunk.layers)
    pathway = trunk.layers[number]
    assert isinstance(pathway, ResidualPathway)
    name, path = next((n, p) for n, p in pathway.paths.items() if isinstance(p, GentleFC))
    seen: dict[str, Tensor] = {}

    def keep(_: torch.nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        seen["input"], seen["output"] = inputs[0], output

    handle = path.register_forward_hook(keep)
    try:
        f = trunk(x)
    finally:
        handle.remove()
    root = Categorical().hessian_root(f.detach())
    columns = [
        torch.autograd.grad((f * column).sum(), seen["output"], retain_graph=True)[0].flatten(1)
        for column in root.unbind(2)
    ]
    g = torch.stack(columns, 1).double()
    a = path.unit * seen["input"].detach().flatten(1).double()
    exact = torch.linalg.eigvalsh(_ggn(g, a)).clamp(min=0)
    blocks = curvature(trunk, Categorical(), (x, y))
    return Comparison(exact, blocks[f"layers.{number}.paths.{name}.weight"].eigenvalues())


def _ggn(g: Tensor, a: Tensor) -> Tensor:
    """Jᵀ J or J Jᵀ, whichever is smaller; rows of J are g_nk ⊗ a_n."""
    rows, columns = g.shape[0] * g.shape[1], g.shape[2] * a.shape[1]
    if columns <= rows:
        jacobian = torch.einsum("nkd,ni->nkdi", g, a).reshape(rows, columns)
        return jacobian.T @ jacobian
    gram = torch.einsum("nkd,mld->nkml", g, g) * (a @ a.T)[:, None, :, None]
    return gram.reshape(rows, rows)


def _pair(of: Comparison, function: Callable[[Tensor], Tensor]) -> tuple[float, float]:
    return float(function(of.exact)), float(function(of.factored))


def main() -> None:
    """Print the comparison for the teacher (p4m, p4, none), at three δ."""
    (x, y), _, teacher = draw(DeepCase(("p4m", "p4", "trivial")))
    teacher.requires_grad_(True)
    weight = dict(teacher.named_parameters())["layers.2.paths.trivial.weight"]
    natural = weight.numel() / float(weight.detach().square().sum())
    print("   n       δ   trace exact, KFAC     γ exact, KFAC    Occam exact, KFAC")
    for n in (100, 300, 1000):
        found = compare(teacher, x[:n], y[:n])
        for delta in (natural, natural / 10, natural / 30):
            values = (*found.trace(), *found.effective_parameters(delta), *found.occam(delta))
            print(f"{n:4d}  {delta:.4f}" + "".join(f"  {v:8.1f}" for v in values))


if __name__ == "__main__":
    main()
