"""Wigner D-matrices: the irreducible representations of SO(3), by ZYZ Euler angles.

In the basis |l, m⟩, m = −l … l, with the Condon–Shortley phase,

    D(α, β, γ) = e^{−iαJz} e^{−iβJy} e^{−iγJz},   Jy = (J₊ − J₋)/2i,

and C† D C is the same in the basis of real spherical harmonics. This is what escnn takes from
``lie_learn`` (there the order is "centered", the normalisation "quantum"), for use where that
package does not load.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

ComplexMatrix = npt.NDArray[np.complex128]


def wigner_D_matrix(
    l: int,  # noqa: E741
    alpha: float,
    beta: float,
    gamma: float,
    field: str = "real",
) -> npt.NDArray[np.float64]:
    """The (2l+1)×(2l+1) matrix of the rotation in the basis of real spherical harmonics."""
    if field != "real":
        raise ValueError(f"only the real basis is there, not {field!r}")
    m = np.arange(-l, l + 1)
    V, C = _frames(l)
    turn_y = (V * np.exp(-1j * m * beta)) @ V.conj().T
    D = np.exp(-1j * m * alpha)[:, None] * turn_y * np.exp(-1j * m * gamma)
    real: npt.NDArray[np.float64] = (C.conj().T @ D @ C).real
    return real


@functools.cache
def _frames(l: int) -> tuple[ComplexMatrix, ComplexMatrix]:  # noqa: E741
    """V with Jy = V diag(m) V†, and C, whose columns are the real basis in the complex one."""
    m = np.arange(-l, l)
    raising = np.diag(np.sqrt(l * (l + 1.0) - m * (m + 1.0)), -1)
    _, V = np.linalg.eigh((raising - raising.T) / 2j)
    C = np.zeros((2 * l + 1, 2 * l + 1), dtype=np.complex128)
    C[l, l] = 1
    for f in range(1, l + 1):
        C[l - f, l - f], C[l - f, l + f] = 1j * np.sqrt(0.5), np.sqrt(0.5)
        C[l + f, l - f], C[l + f, l + f] = (-1) ** f * -1j * np.sqrt(0.5), (-1) ** f * np.sqrt(0.5)
    return V, C
