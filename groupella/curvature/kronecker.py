"""Kronecker blocks: the algebra of factored curvature. It knows no networks.

A block is the curvature of one parameter, seen as matrices U_b (D_out, D_in), b = 1 … B:

    H = diag_b(H_b),   H_b = scale · G_b ⊗ A_b,   scale = 1/(N·S),

acting on U_b by rows, H_b vec(V) = scale · vec(G_b V A_b). A is a stack of B matrices, or one for
all blocks; so is G. The factors are sums over data, so blocks of disjoint batches add; 1/(N·S) is
applied once, afterwards. With eigenvalues λ of A and μ of G, those of H_b are scale·λ_i·μ_j.

A subset of n of the N data gives sums that are N/n times too small, each: scale = (N/n)²/(N·S).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import torch
from torch import Tensor

_CHUNK = 1 << 24
_EIGEN_CHUNK = 1 << 22


@dataclass(frozen=True, eq=False)
class KroneckerBlock:
    """Factored curvature of one parameter of the given `shape`.

    `order[k]` is the flat index in the parameter of entry k of its blocks (B, D_out, D_in); None
    when they are in the same order. `count` data were summed to represent `n_data`. The ranks say
    how many outer products were summed in each matrix, where that is known: few data leave many
    eigenvalues exactly zero, which need not be looked for. `input_rows` (blocks, R, D_in) are the
    vectors that A sums, where these are few: A has the eigenvalues of their R × R products.
    """

    input_factors: Tensor
    output_factors: Tensor
    count: float
    positions: float
    shape: tuple[int, ...]
    order: Tensor | None = None
    n_data: float | None = None
    input_rank: int | None = None
    output_rank: int | None = None
    input_rows: Tensor | None = None

    def __post_init__(self) -> None:
        a, g = self.input_factors, self.output_factors
        if a.ndim != 3 or a.shape[1] != a.shape[2] or g.ndim != 3 or g.shape[1] != g.shape[2]:
            raise ValueError(
                "Factors must be stacks of square matrices (blocks, D, D), got "
                f"{tuple(a.shape)} and {tuple(g.shape)}."
            )
        per_block = a.shape[1] * g.shape[1]
        if per_block == 0 or self.size % per_block:
            raise ValueError(
                f"A parameter of shape {self.shape} does not split into matrices of "
                f"{g.shape[1]} rows and {a.shape[1]} columns."
            )
        if {a.shape[0], g.shape[0]} - {1, self.blocks}:
            raise ValueError(
                f"Expected one factor or {self.blocks} of them, got {a.shape[0]} input and "
                f"{g.shape[0]} output factors."
            )

    @property
    def size(self) -> int:
        """The number of entries of the parameter."""
        return prod(self.shape)

    @property
    def blocks(self) -> int:
        """The number of matrices that the parameter consists of."""
        return self.size // (self.input_factors.shape[1] * self.output_factors.shape[1])

    @property
    def scale(self) -> float:
        """1/(N·S), corrected where a subset of the data was used."""
        represented = self.count if self.n_data is None else self.n_data
        return represented / (self.count**2 * self.positions)

    def __add__(self, other: KroneckerBlock) -> KroneckerBlock:
        """The block of both data sets together."""
        if self.shape != other.shape:
            raise ValueError(
                f"Only blocks of the same parameter add, got {self.shape} and {other.shape}."
            )
        count = self.count + other.count
        uses = self.count * self.positions + other.count * other.positions
        represented = None
        if self.n_data is not None or other.n_data is not None:
            represented = (self.n_data or self.count) + (other.n_data or other.count)
        return KroneckerBlock(
            self.input_factors + other.input_factors,
            self.output_factors + other.output_factors,
            count,
            uses / count,
            self.shape,
            self.order,
            represented,
            _sum_of_ranks(self.input_rank, other.input_rank),
            _sum_of_ranks(self.output_rank, other.output_rank),
        )

    @cached_property
    def factor_eigenvalues(self) -> tuple[Tensor, Tensor]:
        """(λ, μ) of A and G, (blocks or 1, D), float64, not negative."""
        if self.input_rows is None:
            lam = _eigenvalues(self.input_factors, self.input_rank)
        else:
            lam = _eigenvalues_of_rows(self.input_rows)
        return lam, _eigenvalues(self.output_factors, self.output_rank)

    @cached_property
    def factor_eigenvectors(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """((λ, Q_A), (μ, Q_G)), float64."""
        return _eigenvectors(self.input_factors), self.output_eigenvectors

    @cached_property
    def output_eigenvectors(self) -> tuple[Tensor, Tensor]:
        """(μ, Q_G), float64."""
        return _eigenvectors(self.output_factors)

    @property
    def has_single_rows(self) -> bool:
        """Whether the few vectors that A sums are known, one for each datum."""
        return self.input_rows is not None and self.positions == 1

    @cached_property
    def thin_input_eigenvectors(self) -> tuple[Tensor, Tensor]:
        """(λ, Q), λ (blocks, R) and Q (blocks, D, R), float64, of the range of A; from its rows."""
        assert self.input_rows is not None
        _, roots, transposed = torch.linalg.svd(self.input_rows.double(), full_matrices=False)
        return roots.square(), transposed.mT

    def eigenvalues(self) -> Tensor:
        """All eigenvalues scale·λ_i·μ_j of H, flat, float64: one per entry of the parameter."""
        lam, mu = self.factor_eigenvalues
        values = self.scale * mu[:, :, None] * lam[:, None, :]
        return values.expand(self.blocks, -1, -1).reshape(-1)

    def logdet(self, delta: float | Tensor) -> Tensor:
        """log |H + δ·1|. Differentiable in δ and, where they are, in the factors."""
        return self._sum(lambda h: (h + delta).log().sum())

    def effective_parameters(self, delta: float | Tensor) -> Tensor:
        """γ = Σ h/(h + δ): how many parameters the data determine."""
        return self._sum(lambda h: (h / (h + delta)).sum())

    def trace(self) -> Tensor:
        """tr H, without an eigen-decomposition."""
        a = self.input_factors.diagonal(dim1=1, dim2=2).double().sum(1)
        g = self.output_factors.diagonal(dim1=1, dim2=2).double().sum(1)
        return self.scale * (a * g).expand(self.blocks).sum()

    def matvec(self, v: Tensor) -> Tensor:
        """H v for v of the parameter's shape, or (…, *shape)."""
        z = self._split(v)
        a, g = self.input_factors.to(z), self.output_factors.to(z)
        return self._join(self.scale * (g @ z @ a), v)

    def solve(self, v: Tensor, delta: float | Tensor) -> Tensor:
        """(H + δ·1)⁻¹ v for v of the parameter's shape, or (…, *shape)."""
        return self._filter(v, lambda h: 1 / (h + delta))

    def sample(
        self, delta: float | Tensor, n: int = 1, generator: torch.Generator | None = None
    ) -> Tensor:
        """n draws from the normal distribution N(0, (H + δ·1)⁻¹): (n, *shape)."""
        a = self.input_factors
        z = torch.randn(n, *self.shape, generator=generator, dtype=a.dtype, device=a.device)
        return self._filter(z, lambda h: (h + delta).rsqrt(), rotate_back_only=True)

    def to_dense(self) -> Tensor:
        """H as a (size, size) matrix in the parameter's own order, float64; for small ones."""
        a = self.input_factors.double().expand(self.blocks, -1, -1)
        g = self.output_factors.double().expand(self.blocks, -1, -1)
        pieces = [torch.kron(g[b], a[b]) for b in range(self.blocks)]
        dense: Tensor = self.scale * torch.block_diag(*pieces)  # type: ignore[no-untyped-call]
        if self.order is None:
            return dense
        inverse = torch.argsort(self.order)
        return dense[inverse][:, inverse]

    def detach(self) -> KroneckerBlock:
        """The same block without a graph."""
        return replace(
            self,
            input_factors=self.input_factors.detach(),
            output_factors=self.output_factors.detach(),
            input_rows=None if self.input_rows is None else self.input_rows.detach(),
        )

    def _sum(self, of: Callable[[Tensor], Tensor]) -> Tensor:
        """Σ of(h) over all eigenvalues h, in chunks: large layers have hundreds of millions."""
        lam, mu = self.factor_eigenvalues
        repeat = self.blocks // max(lam.shape[0], mu.shape[0])
        lam, mu = lam[:, None, :], self.scale * mu[:, :, None]
        rows = max(1, _CHUNK // (max(lam.shape[0], mu.shape[0]) * lam.shape[2]))
        total = torch.zeros((), dtype=torch.float64, device=lam.device)
        for start in range(0, mu.shape[1], rows):
            total = total + of(lam * mu[:, start : start + rows])
        return repeat * total

    def _split(self, v: Tensor) -> Tensor:
        if v.shape[v.ndim - len(self.shape) :] != self.shape:
            raise ValueError(
                f"Expected a tensor of shape {self.shape} (after any leading axes), "
                f"got {tuple(v.shape)}."
            )
        z = v.reshape(-1, self.size)
        if self.order is not None:
            z = z[:, self.order]
        return z.reshape(-1, self.blocks, self.output_factors.shape[1], self.input_factors.shape[1])

    def _join(self, z: Tensor, like: Tensor) -> Tensor:
        z = z.reshape(-1, self.size)
        if self.order is not None:
            z = torch.empty_like(z).index_copy(1, self.order, z)
        return z.reshape(like.shape).to(like.dtype)

    def _filter(
        self, v: Tensor, function: Callable[[Tensor], Tensor], rotate_back_only: bool = False
    ) -> Tensor:
        (lam, q_a), (mu, q_g) = self.factor_eigenvectors
        z = self._split(v).double()
        if not rotate_back_only:
            z = q_g.mT @ z @ q_a
        z = z * function(self.scale * mu[:, :, None] * lam[:, None, :])
        return self._join(q_g @ z @ q_a.mT, v)


def _sum_of_ranks(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _eigenvalues(factor: Tensor, rank: int | None) -> Tensor:
    """Ascending eigenvalues (blocks, D) of a stack of matrices, a few at a time in float64."""
    d = factor.shape[1]
    pieces = torch.split(factor, max(1, _EIGEN_CHUNK // d**2))
    if rank is not None and 2 * rank <= d:
        values = [_of_rank(piece.double(), rank) for piece in pieces]
    else:
        values = [_eigvalsh(piece.double()) for piece in pieces]
    return torch.cat(values).clamp(min=0.0)


def _eigvalsh(matrices: Tensor) -> Tensor:
    values: Tensor = torch.linalg.eigvalsh(matrices)
    return values


def _eigenvalues_of_rows(rows: Tensor) -> Tensor:
    """Ascending eigenvalues (blocks, D) of zᵀz for rows z (blocks, R, D), R < D."""
    z = rows.double()
    values = _eigvalsh(z @ z.mT).clamp(min=0.0)
    return torch.cat([values.new_zeros(len(z), z.shape[2] - z.shape[1]), values], 1)


def _of_rank(matrices: Tensor, rank: int) -> Tensor:
    """Eigenvalues of matrices of at most that rank.

    A times a random matrix of as many columns as A has rank spans the range of A, so the
    eigenvalues are those of QᵀAQ, Q an orthonormal basis of it, and zeros.
    """
    d = matrices.shape[1]
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(d, rank, generator=generator, dtype=torch.float64).to(matrices.device)
    with torch.no_grad():
        q = torch.linalg.qr(matrices @ probe).Q
    values = _eigvalsh(q.mT @ matrices @ q)
    return torch.cat([values.new_zeros(values.shape[0], d - rank), values], 1)


def _eigenvectors(factor: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(factor.double())
    return values.clamp(min=0.0), vectors
