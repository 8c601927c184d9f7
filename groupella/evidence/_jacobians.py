"""Covariance of network outputs under the Kronecker posterior of the linearised network.

For a shared linear map the Jacobian of output k with respect to U_b is J_k = Σ_s g_s a_sᵀ, a the
input at position s and g the gradient of output k there. In the eigenbasis of the block, the
posterior (H + δ)⁻¹ is diagonal, so each map adds

    Σ_f[k, l] += Σ_ij J̃_k,ij J̃_l,ij / (λ_j μ_i + δ),        J̃ = Q_Gᵀ J Q_A.

Where A is the sum of few outer products, Q_A has only its range, and one more coordinate: the norm
of what is left of a, on which A is zero. J_k = g aᵀ of one sample needs no more.

One forward pass and K backward passes per batch, no loop over samples. With one position and one
block, J_k = g_k aᵀ is not formed: Σ_f = Σ_i g̃_ki g̃_li Σ_j ã_j² / (λ_j μ_i + δ).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from groupella.curvature import (
    KroneckerBlock,
    check_used,
    evaluation,
    listening,
    sample_gradients,
)
from groupella.nn.shared_maps import BlockMap, SharedLinearMap, exact_blocks

Bases = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Use:
    """One use of a shared linear map in a forward pass."""

    name: str
    shared_map: SharedLinearMap
    inputs: Tensor
    edge: GradientEdge
    shape: torch.Size
    is_only: bool = True  # the only use of its weight

    @property
    def is_outer_product(self) -> bool:
        """Whether the gradient of a sample is one g aᵀ."""
        outputs = self.shared_map.outputs(torch.zeros(1, *self.shape[1:]))
        return self.is_only and self.inputs.shape[1:3] == outputs.shape[1:3] == (1, 1)


class Listener:
    """Keeps the inputs of every map with one of the named weights."""

    differentiable = False

    def __init__(self, network: nn.Module, names: Container[str]) -> None:
        self.uses: list[Use] = []
        self._splits: dict[str, torch.Size] = {}
        self._mixed: set[str] = set()
        # Paths taken out since the curvature was collected are constants now.
        self._names = {
            id(p): n for n, p in network.named_parameters() if n in names and p.requires_grad
        }

    def __call__(
        self, module: nn.Module, shared_map: SharedLinearMap, x: Tensor, y: Tensor
    ) -> None:
        name = self._names.get(id(getattr(module, shared_map.weight)))
        if name is None:
            return
        if isinstance(shared_map, BlockMap):
            # Sharing concerns factors only; a Jacobian needs each block's own gradients.
            shared_map = replace(shared_map, sharing="block")
        weight = getattr(module, shared_map.weight).detach()
        split = shared_map.as_blocks(weight).shape
        if self._splits.setdefault(name, split) != split:
            # Tied weights of two kinds of layers have no common map.
            self._mixed.add(name)
            self.uses = [use for use in self.uses if use.name != name]
        if name in self._mixed:
            return
        with torch.no_grad():
            inputs = shared_map.inputs(x.detach())
        again = any(use.name == name for use in self.uses)
        if again:
            self.uses = [replace(u, is_only=u.is_only and u.name != name) for u in self.uses]
        self.uses.append(Use(name, shared_map, inputs, get_gradient_edge(y), y.shape, not again))

    def unheard(self) -> list[str]:
        """The named weights of which no map was heard."""
        heard = {use.name for use in self.uses}
        return sorted(n for n in self._names.values() if n not in heard)


def output_covariance(
    network: nn.Module,
    x: Tensor,
    blocks: Mapping[str, KroneckerBlock],
    precisions: Mapping[str, float],
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return outputs (N, K) and their covariance (N, K, K) in float64, for one batch x.

    `precisions` maps each parameter to its δ; `scale` multiplies the curvature.
    """
    bases = {name: _bases(block) for name, block in blocks.items()}
    listener, f = _heard(network, x, blocks)
    n, k = f.shape
    columns = torch.eye(k, dtype=f.dtype, device=f.device).expand(n, -1, -1)
    once = {use.name: use for use in listener.uses if use.is_outer_product}
    # The inputs of these are the same in every column: gradients alone are kept.
    one = torch.ones(1, 1, 1, dtype=torch.float64, device=x.device)
    sides = {
        name: ((one[0], one), bases[name][1]) if name in once else bases[name] for name in bases
    }
    uses = [
        replace(use, inputs=f.new_ones(n, 1, 1, 1)) if use.name in once else use
        for use in listener.uses
    ]
    jacobians: dict[str, list[Tensor]] = {}
    for column in _with_loose(
        network, listener, x, columns, _columns(f, columns, uses, sides), sides
    ):
        for name, part in column.items():
            jacobians.setdefault(name, []).append(part)
    covariance = torch.zeros(n, k, k, dtype=torch.float64, device=x.device)
    for name, rows in jacobians.items():
        (lam, q), (mu, _) = bases[name]
        values = scale * blocks[name].scale * mu[:, :, None] * lam[:, None, :]
        variance = (values + precisions[name]).reciprocal()
        if name in once:
            a = _rotate(once[name].inputs, q)[:, 0, 0]
            g = torch.stack([row[:, 0, :, 0] for row in rows], 1)
            covariance += (g * (a.square() @ variance[0].T)[:, None]) @ g.mT
            continue
        z = torch.stack([(j * variance.sqrt()).reshape(n, -1) for j in rows], 1)
        covariance += z @ z.mT
    return f.detach().double(), covariance


def numbers_held(network: nn.Module, x: Tensor, blocks: Mapping[str, KroneckerBlock]) -> int:
    """Return how many numbers `output_covariance` holds at once per sample, given one sample."""
    listener, f = _heard(network, x, blocks)
    once = {use.name for use in listener.uses if use.is_outer_product}
    sizes = (b.output_factors.shape[1] if n in once else b.size for n, b in blocks.items())
    return f.shape[1] * sum(sizes)


def jacobian_columns(
    network: nn.Module,
    x: Tensor,
    names: Container[str],
    root: Callable[[Tensor], Tensor],
    bases: Mapping[str, Bases] | None = None,
) -> tuple[Tensor, Iterator[dict[str, Tensor]]]:
    """Return outputs f (N, K) of one batch and, for each column S_r of `root(f)` (N, K, R), the
    gradient of S_r·f per sample: (N, blocks, outputs, inputs) for each of the named parameters.

    With `bases`, gradients are in the eigenbases of their Kronecker blocks and in float64.
    """
    listener, f = _heard(network, x, names)
    columns = root(f.detach())
    found = _columns(f, columns, listener.uses, bases)
    return f.detach(), _with_loose(network, listener, x, columns, found, bases)


def _heard(network: nn.Module, x: Tensor, names: Container[str]) -> tuple[Listener, Tensor]:
    """One forward pass: what was heard of the named weights, and the outputs (N, K)."""
    listener = Listener(network, names)
    hearing = listening(network, cast(Any, listener), False)
    with torch.enable_grad(), evaluation(network), hearing:
        return listener, network(x).flatten(1)


def _with_loose(
    network: nn.Module,
    listener: Listener,
    x: Tensor,
    root: Tensor,
    columns: Iterator[dict[str, Tensor]],
    bases: Mapping[str, Bases] | None,
) -> Iterator[dict[str, Tensor]]:
    """The columns, with the parameters of which no map was heard."""
    loose = listener.unheard()
    if not loose:
        return columns
    with evaluation(network):
        check_used(network, loose, x)
        others = loose_jacobians(network, loose, x, root)
    return _joined(columns, others, bases)


def loose_jacobians(
    network: nn.Module, names: Sequence[str], x: Tensor, root: Tensor
) -> dict[str, Tensor]:
    """Gradients (N, R, *shape) of parameters that no linear map covers, sample by sample."""
    parts = list(sample_gradients(network, names, x, root))
    return {n: torch.cat([part[n] for part in parts]) for n in names}


def _joined(
    columns: Iterator[dict[str, Tensor]],
    others: Mapping[str, Tensor],
    bases: Mapping[str, Bases] | None,
) -> Iterator[dict[str, Tensor]]:
    for r, column in enumerate(columns):
        for name, gradients in others.items():
            blocks = exact_blocks(gradients.shape[2:])
            g = gradients[:, r].reshape(len(gradients), blocks, 1, -1)
            g = g if bases is None else _rotate(g, bases[name][1][1])
            column[name] = g.transpose(2, 3)
        yield column


def _columns(
    f: Tensor, root: Tensor, uses: Sequence[Use], bases: Mapping[str, Bases] | None
) -> Iterator[dict[str, Tensor]]:
    def rotated(values: Tensor, use: Use, side: int) -> Tensor:
        return values.detach() if bases is None else _rotate(values, bases[use.name][side][1])

    inputs = [rotated(use.inputs, use, 0) for use in uses]
    edges = [use.edge for use in uses]
    for column in root.unbind(2):
        gradients: tuple[Tensor, ...] = ()
        if edges:
            gradients = torch.autograd.grad(
                f, edges, grad_outputs=column, retain_graph=True, allow_unused=True
            )
        totals: dict[str, Tensor] = {}
        for use, a, gradient in zip(uses, inputs, gradients, strict=True):
            if gradient is None:
                gradient = torch.zeros(use.shape, dtype=f.dtype, device=f.device)
            g = rotated(use.shared_map.outputs(gradient), use, 1)
            blocks = max(g.shape[1], a.shape[1])
            pair = (side.expand(-1, blocks, -1, -1) for side in (g, a))
            j = torch.einsum("nbso,nbsi->nboi", *pair)
            totals[use.name] = totals[use.name] + j if use.name in totals else j
        yield totals


def _bases(block: KroneckerBlock) -> Bases:
    """Eigenvalues and eigenvectors of both factors; of the input factor only where it is not 0."""
    if not block.has_single_rows:
        return block.factor_eigenvectors
    lam, q = block.thin_input_eigenvectors
    return (nn.functional.pad(lam, (0, 1)), q), block.output_eigenvectors


def _rotate(values: Tensor, basis: Tensor) -> Tensor:
    """(N, B, S, D) in the basis (B or 1, D, D), float64.

    In a basis (B or 1, D, R) of fewer vectors, (N, B, S, R + 1): last comes the norm of the rest.
    """
    blocks = max(values.shape[1], basis.shape[0])
    values = values.detach().double().expand(-1, blocks, -1, -1)
    inside = torch.einsum("nbsd,bde->nbse", values, basis.expand(blocks, -1, -1))
    if basis.shape[1] == basis.shape[2]:
        return inside
    rest = values - torch.einsum("nbse,bde->nbsd", inside, basis.expand(blocks, -1, -1))
    return torch.cat([inside, rest.norm(dim=-1, keepdim=True)], -1)
