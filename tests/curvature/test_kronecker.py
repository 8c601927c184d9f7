"""The algebra of Kronecker blocks, against dense matrices."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from groupella.curvature import KroneckerBlock

DELTA = 0.7


def positive(*shape: int) -> Tensor:
    root = torch.randn(*shape, shape[-1] + 2, dtype=torch.float64)
    return root @ root.mT


def block(kind: str) -> KroneckerBlock:
    """A block of B matrices 2 × 3; kind says which factors are common to all of them."""
    blocks_a = 1 if "A" in kind else 4
    blocks_g = 1 if "G" in kind else 4
    order = torch.randperm(24) if "permuted" in kind else None
    return KroneckerBlock(
        positive(blocks_a, 3),
        positive(blocks_g, 2),
        count=5,
        positions=7,
        shape=(4, 6),
        order=order,
        n_data=50 if "subset" in kind else None,
    )


KINDS = ["own", "one A", "one G", "one A one G", "permuted", "permuted one G subset"]


def by_definition(b: KroneckerBlock) -> Tensor:
    """H entry by entry: ∂²/∂U_b[o,i]∂U_b[p,j] = scale · G_b[o,p] · A_b[i,j]."""
    dense = torch.zeros(24, 24, dtype=torch.float64)
    order = range(24) if b.order is None else b.order.tolist()
    a = b.input_factors.expand(4, -1, -1)
    g = b.output_factors.expand(4, -1, -1)
    represented = 5 if b.n_data is None else b.n_data
    scale = represented / (5 * 5 * 7)
    for n in range(4):
        for o in range(2):
            for i in range(3):
                for p in range(2):
                    for j in range(3):
                        row, column = order[6 * n + 3 * o + i], order[6 * n + 3 * p + j]
                        dense[row, column] = scale * g[n, o, p] * a[n, i, j]
    return dense


@pytest.mark.parametrize("kind", KINDS)
def test_everything_agrees_with_the_dense_matrix(kind: str) -> None:
    b = block(kind)
    dense = by_definition(b)
    shifted = dense + DELTA * torch.eye(24, dtype=torch.float64)
    torch.testing.assert_close(b.to_dense(), dense)
    torch.testing.assert_close(b.eigenvalues().sort().values, torch.linalg.eigvalsh(dense))
    torch.testing.assert_close(b.logdet(DELTA), torch.logdet(shifted))
    torch.testing.assert_close(b.trace(), dense.trace())
    gamma = (dense @ torch.linalg.inv(shifted)).trace()
    torch.testing.assert_close(b.effective_parameters(DELTA), gamma)
    v = torch.randn(3, 4, 6, dtype=torch.float64)
    torch.testing.assert_close(b.matvec(v), (v.flatten(1) @ dense).reshape(v.shape))
    torch.testing.assert_close(
        b.solve(v[0], DELTA).flatten(), torch.linalg.solve(shifted, v[0].flatten())
    )


def test_samples_have_the_inverse_as_covariance() -> None:
    b = block("permuted one G")
    generator = torch.Generator().manual_seed(0)
    draws = b.sample(DELTA, 40_000, generator).flatten(1)
    expected = torch.linalg.inv(by_definition(b) + DELTA * torch.eye(24, dtype=torch.float64))
    scale = expected.diagonal().max()
    assert draws.shape == (40_000, 24)
    assert ((draws.mT @ draws / 40_000 - expected).abs() / scale).max() < 0.03
    again = b.sample(DELTA, 40_000, torch.Generator().manual_seed(0)).flatten(1)
    torch.testing.assert_close(draws, again)


def test_blocks_of_disjoint_data_add() -> None:
    a, g = [positive(2, 3) for _ in range(2)], [positive(1, 2) for _ in range(2)]
    parts = [KroneckerBlock(a[i], g[i], 4 + i, 3, (2, 6)) for i in range(2)]
    whole = KroneckerBlock(a[0] + a[1], g[0] + g[1], 9, 3, (2, 6))
    torch.testing.assert_close((parts[0] + parts[1]).to_dense(), whole.to_dense())


def test_a_subset_stands_for_all_data() -> None:
    a, g = positive(1, 3), positive(1, 2)
    some = KroneckerBlock(a, g, count=5, positions=2, shape=(2, 3), n_data=20)
    all_alike = KroneckerBlock(4 * a, 4 * g, count=20, positions=2, shape=(2, 3))
    torch.testing.assert_close(some.to_dense(), all_alike.to_dense())


def test_logdet_is_differentiable_in_precision_and_factors() -> None:
    a = positive(2, 3).requires_grad_()
    g = positive(1, 2).requires_grad_()
    delta = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    def value(a: Tensor, g: Tensor, delta: Tensor) -> Tensor:
        symmetric = [0.5 * (f + f.mT) for f in (a, g)]
        return KroneckerBlock(symmetric[0], symmetric[1], 5, 2, (2, 6)).logdet(delta)

    assert torch.autograd.gradcheck(value, (a, g, delta))


def test_large_blocks_are_summed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    b = block("one G")
    whole = b.logdet(DELTA), b.effective_parameters(DELTA)
    monkeypatch.setattr("groupella.curvature.kronecker._CHUNK", 5)
    torch.testing.assert_close((b.logdet(DELTA), b.effective_parameters(DELTA)), whole)


def test_rank_deficient_factors_have_no_negative_eigenvalues() -> None:
    v = torch.randn(1, 50, 1, dtype=torch.float32)
    b = KroneckerBlock(v @ v.mT, v[:, :8] @ v[:, :8].mT, 3, 1, (8, 50))
    assert b.eigenvalues().dtype == torch.float64
    assert (b.eigenvalues() >= 0).all()
    assert b.logdet(1e-8).isfinite()


@pytest.mark.parametrize(
    ("a", "g", "shape", "message"),
    [
        ((3, 3), (1, 2, 2), (2, 3), "stacks of square matrices"),
        ((1, 3, 2), (1, 2, 2), (2, 3), "stacks of square matrices"),
        ((1, 3, 3), (1, 2, 2), (2, 4), "does not split"),
        ((3, 3, 3), (1, 2, 2), (4, 6), "one factor or 4"),
    ],
)
def test_wrong_factors_are_refused(
    a: tuple[int, ...], g: tuple[int, ...], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        KroneckerBlock(torch.zeros(a), torch.zeros(g), 1, 1, shape)


def test_wrong_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match="Expected a tensor of shape"):
        block("own").matvec(torch.zeros(6, 4))
    with pytest.raises(ValueError, match="same parameter"):
        block("own") + KroneckerBlock(positive(1, 3), positive(1, 2), 1, 1, (2, 3))


def test_a_known_rank_changes_nothing_but_the_work() -> None:
    """With fewer data than rows the other eigenvalues are zero, and the rest are the same."""
    rows = torch.randn(2, 5, 40, dtype=torch.float64, requires_grad=True)
    columns = torch.randn(1, 6, 12, dtype=torch.float64)
    a, g = rows.mT @ rows, columns.mT @ columns
    known = KroneckerBlock(a, g, 5, 1, (24, 40), input_rank=5, output_rank=6)
    unknown = KroneckerBlock(a, g, 5, 1, (24, 40))
    torch.testing.assert_close(known.eigenvalues(), unknown.eigenvalues())
    assert (known.eigenvalues() == 0).sum() >= 2 * 12 * 35
    slopes = [
        torch.autograd.grad(b.logdet(0.1), rows, retain_graph=True)[0] for b in (known, unknown)
    ]
    torch.testing.assert_close(slopes[0], slopes[1])
    assert (known + known).input_rank == 10
    assert (known + unknown).input_rank is None
