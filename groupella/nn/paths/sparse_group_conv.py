"""S-GCONV: a group convolution whose filters are sums of anchor functions on the group.

    y(c', g') = Σ_c Σ_g s(c', c, g⁻¹g') x(c, g),      g in translations ⋊ K
    s(c', c, u) = Σ_j v(c', c, j) φ_j(u),     φ_j(u) = exp(−ω² d(u, z_j)²)
    d(u, z)² = |t_u − t_z|² + ½ |R_u − R_z|²

with values v, anchors z in the group, a lengthscale ω (in units of one site) and a left-invariant
distance d between elements u = (t, R). On a fibre that is no copy of K, φ is averaged over the
elements u that belong to one pair of fibre elements (cosets; see `_anchors.py`). Where K does not
permute a fibre transitively, pairs of its orbits have anchors of their own. Every s gives an
equivariant filter, also where anchors are learned and leave the group.

References
----------
van der Ouderaa, Immer and van der Wilk 2023, appendix A. Azangulov, Smolensky, Terenin and
Borovitskiy 2022, "Stationary kernels and Gaussian processes on Lie groups and their homogeneous
spaces I: the compact case".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from groupella.bases import kernel_basis
from groupella.groups import FeatureSpace, Symmetry
from groupella.nn._constant import Constant
from groupella.nn._expansion import Expansion
from groupella.nn.shared_maps import BasisMap, BiasMap, SharedLinearMap, record, recording

from ._anchors import fibre_orbits, kernel_anchors, new_omega
from ._common import GAIN, add_bias, check_convolution, check_input, draw, maps, new_bias
from ._stationary import fixes_constants
from .conv import torus_conv


class SparseGroupConv(nn.Module):
    """Anchor values `weight` (C', C, M) and a lengthscale `omega`.

    M is half the number of free filter entries, rounded up: ⌈|K| k^d / 2⌉ on regular fibres.

    Parameters
    ----------
    space_in, space_out
        Features on the same lattice, with fibres that the point group permutes.
    symmetry
        Translations ⋊ a point group, contained in the ambient symmetry of the spaces.
    kernel_size
        Odd: one number, or one for each axis of the lattice.
    omega
        The initial lengthscale.
    learn_positions
        Make the anchors `positions` (M, d + d²), translation and matrix, a parameter. They have no
        curvature of their own: a hyperparameter, learned through the factors of the evidence.
    paper_biases
        Add one bias per channel, equal on the fibre, as the published code does for GCONV.

    Raises
    ------
    ValueError
        If the symmetry lacks the translations, or if its point group does not permute the fibres.
    """

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        symmetry: Symmetry,
        kernel_size: int | Sequence[int] = 3,
        *,
        omega: float = 1.0,
        learn_positions: bool = False,
        paper_biases: bool = False,
    ) -> None:
        super().__init__()
        name = "SparseGroupConv"
        window = check_convolution(name, space_in, space_out, kernel_size, symmetry)
        if not window:
            raise ValueError(f"{name} needs a lattice with at least one axis, got ()")
        self.space_in, self.space_out, self.symmetry = space_in, space_out, symmetry
        orbits = fibre_orbits(name, space_in, space_out, symmetry)
        basis = kernel_basis(space_in, space_out, symmetry, window)
        self.basis = Expansion(basis)
        self.anchors = kernel_anchors(name, space_in, space_out, symmetry, basis)
        # The basis is normalised: its kernel b is 1/√(its number of entries) where it is not zero.
        self._sizes = Constant(np.asarray(abs(basis.matrix).max(axis=1).todense()).ravel() ** -1)
        self.stationary_symmetry = fixes_constants(
            space_in, space_out, window, orbits=orbits, least=symmetry
        )
        self.weight = nn.Parameter(
            torch.empty(space_out.channels, space_in.channels, self.anchors.count)
        )
        self.omega = new_omega(omega)
        self.positions = self.anchors.positions(learn_positions)
        self.hyperparameters = {"omega": "lengthscale", "positions": "position"}
        self.bias = new_bias(space_out.channels, paper_biases)
        self.reset_parameters()

    def functions(self) -> Tensor:
        """The anchor functions as kernels, (M, F', F, *window)."""
        return self._kernels(self.anchors.functions(self.omega, self.positions))

    def reset_parameters(self, gain: float = GAIN) -> None:
        if self.weight.is_meta:
            return
        with torch.no_grad():
            power = float(self.functions().square().sum()) / self.space_out.fibre_size
        draw(self.weight, gain * (self.weight.shape[1] * power) ** -0.5, self.bias)

    def filter(self) -> Tensor:
        """The expanded filter (C'·F', C·F, *window)."""
        return self._filter(self.anchors.functions(self.omega, self.positions))

    def filter_bias(self) -> Tensor | None:
        """The bias of every channel on its fibre, (C'·F',)."""
        if self.bias is None:
            return None
        return self.bias.repeat_interleave(self.space_out.fibre_size)

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        y = torus_conv(x, self.filter())
        record(self, "weight", x, y)
        if recording():
            tangents = self.anchors.tangents(self.omega, self.positions)
            slope = torus_conv(x, self._filter(tangents))
            record(self, "omega", x, y, BiasMap.of_tangents("omega", slope.unsqueeze(1)))
        return add_bias(self, x, y)

    def _kernels(self, functions: Tensor) -> Tensor:
        """(n_b, M) to (M, F', F, *window)."""
        scaled = functions * self._sizes.like(functions).unsqueeze(1)
        return self.basis(scaled.mT).view(-1, *self.basis.shape[1:])

    def _filter(self, functions: Tensor) -> Tensor:
        c_out, c, _ = self.weight.shape
        _, f_out, f, *window = self.basis.shape
        values = (self.weight @ functions.mT) * self._sizes.like(functions)
        blocks = self.basis(values.flatten(0, 1)).reshape(c_out, c, f_out, f, *window)
        return blocks.transpose(1, 2).reshape(c_out * f_out, c * f, *window)

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        c_out, c, _ = self.weight.shape
        sites = self.space_in.lattice.shape
        return maps(BasisMap("weight", self.functions(), c, c_out, sites), self.bias)

    def extra_repr(self) -> str:
        return (
            f"{self.space_in.shape} -> {self.space_out.shape}, {self.symmetry}, "
            f"kernel_size={self.basis.shape[3:]}, anchors={self.anchors.count}"
        )
