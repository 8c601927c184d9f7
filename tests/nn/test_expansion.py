"""Sparse bases: the same maps and derivatives as by a dense product, also in `torch.func`."""

from __future__ import annotations

import copy

import numpy as np
import torch

from groupella.bases import equivariant_basis
from groupella.groups import SCALAR, GroupSet, V, about_axis
from groupella.nn._expansion import Expansion

TURNS = GroupSet(about_axis(2))


def test_a_sparse_basis_gives_what_a_dense_one_gives() -> None:
    space = TURNS.space((), 1, V * V + 2 * V + 4 * SCALAR)
    basis = equivariant_basis(space, space, TURNS.members[0])
    expansion = Expansion(basis)
    dense = torch.from_numpy(np.array(basis.tensor)).reshape(basis.dim, -1)
    assert expansion._sparse is not None
    torch.manual_seed(0)
    u, v = torch.randn(2, 3, basis.dim, dtype=torch.double)
    func = torch.func
    close = torch.testing.assert_close
    close(expansion(u), u @ dense)
    close(copy.deepcopy(expansion)(u.float()), (u @ dense).float())
    close(func.jacrev(expansion)(u), func.jacrev(lambda w: w @ dense)(u))
    close(func.jvp(expansion, (u,), (v,))[1], v @ dense)
    close(func.vmap(expansion)(torch.stack([u, v])), torch.stack([u, v]) @ dense)
    curved = [
        func.hessian(lambda w, e=e: e(w).pow(3).sum())(u[:1])
        for e in (expansion, lambda w: w @ dense)
    ]
    close(*curved)
    # Compressed within a transform, if that comes first; torch has no such products in bfloat16.
    first = func.vmap(func.grad(lambda w: Expansion(basis)(w[None]).sum()))(u)
    close(first, dense.sum(1).expand(3, -1))
    half = u.bfloat16()
    close(Expansion(basis)(half), half @ dense.bfloat16())
