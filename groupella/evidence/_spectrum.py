"""The curvature of a network in the evidence: the eigenvalues of each prior group.

For a prior group with precision δ, weights w and the eigenvalues λ of its curvature blocks, the
precision enters the log evidence through

    −½ δ‖w‖²  −  ½ Σ log(1 + λ/δ)

(½ P log δ of the prior and −½ Σ log(λ + δ) of the posterior, together). Its derivative in log δ is
½ (γ − δ‖w‖²), where γ = Σ λ/(λ + δ) is the effective number of parameters. For given w and λ it is
concave in log δ, so there is one maximum, where δ = γ/‖w‖² (MacKay). Eigenvalues that are zero
add nothing to any of these and are dropped, so a rank-deficient block costs its rank.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from groupella.curvature import KroneckerBlock

from ._prior import Prior

# torch.linalg.LinAlgError is not declared in torch's type hints.
LinAlgError: type[RuntimeError] = getattr(torch.linalg, "LinAlgError")  # noqa: B009
JITTER = 1e-6


class NonFiniteError(FloatingPointError):
    """A NaN or infinity; the message names the layer or parameter in which it appeared."""


class JitterWarning(RuntimeWarning):
    """An eigen-decomposition failed and was repeated with a slightly shifted matrix."""


@dataclass(frozen=True)
class Spectrum:
    """Positive eigenvalues of each prior group's curvature: tensors in float64, one per group."""

    eigenvalues: tuple[Tensor, ...]

    @classmethod
    def of(
        cls,
        blocks: Mapping[str, KroneckerBlock],
        prior: Prior,
        *,
        constants: Collection[str] = (),
        differentiable: bool = False,
    ) -> Spectrum:
        """Collect eigenvalues by prior group; every parameter but `constants` needs a block."""
        missing = [p for g in prior for p in g.parameters if p not in blocks and p not in constants]
        if missing:
            raise KeyError(
                f"no curvature block for {', '.join(missing)}: "
                "the evidence needs one for every parameter that has a prior"
            )
        device = prior.log_precision.device
        gathered = []
        for group in prior:
            values = [torch.zeros(0, dtype=torch.float64, device=device)]
            for name in group.parameters:
                if name in blocks:
                    found = block_eigenvalues(name, blocks[name]).to(device)
                    values.append(found if differentiable else found[found > 0].detach())
            gathered.append(torch.cat(values))
        return cls(tuple(gathered))

    def scaled(self, factor: float | Tensor) -> Spectrum:
        """Return the spectrum of factor · H."""
        return Spectrum(tuple(v * factor for v in self.eigenvalues))

    def log_volumes(self, log_precision: Tensor) -> Tensor:
        """Return −½ Σ log(1 + λ/δ) for every group: (groups,), differentiable."""
        pairs = zip(self.eigenvalues, log_precision.unbind(), strict=True)
        return torch.stack([-0.5 * torch.log1p(v * (-d).exp()).sum() for v, d in pairs])

    def effective_parameters(self, log_precision: Tensor) -> Tensor:
        """Return γ = Σ λ/(λ + δ) for every group: (groups,)."""
        pairs = zip(self.eigenvalues, log_precision.detach().unbind(), strict=True)
        return torch.stack([(v / (v + d.exp())).sum() for v, d in pairs])

    def fixed_point(
        self, log_precision: Tensor, squared_norms: Tensor, bounds: tuple[float, float]
    ) -> Tensor:
        """Return log δ after one update δ ← γ(δ)/‖w‖²; groups without curvature keep theirs."""
        gammas = self.effective_parameters(log_precision)
        targets = (gammas.log() - squared_norms.clamp(min=1e-300).log()).clamp(
            math.log(bounds[0]), math.log(bounds[1])
        )
        return torch.where(gammas > 0, targets, log_precision.detach())


def block_eigenvalues(name: str, block: KroneckerBlock) -> Tensor:
    """Return the eigenvalues of a block; retry a failed decomposition once, with jitter."""
    _check_factors(name, block)
    try:
        values = block.eigenvalues()
        if bool(torch.isfinite(values).all()):
            return values
        reason = "gave values that are NaN or infinite"
    except LinAlgError as error:
        reason = f"failed ({error})"
    warnings.warn(
        f"the eigen-decomposition of the curvature of {name} {reason}; repeated with a jitter of "
        f"{JITTER:g} times the mean of the diagonal",
        JitterWarning,
        stacklevel=2,
    )
    try:
        values = jittered(block).eigenvalues()
    except LinAlgError as error:
        raise NonFiniteError(
            f"the eigen-decomposition of the curvature of {name} failed, with jitter too: {error}"
        ) from error
    if not bool(torch.isfinite(values).all()):
        raise NonFiniteError(
            f"the curvature of {name} has eigenvalues that are NaN or infinite, with jitter too"
        )
    return values


def jittered(block: KroneckerBlock, jitter: float = JITTER) -> KroneckerBlock:
    """The block with a small multiple of its mean diagonal added to each factor, in float64."""

    def shift(factors: Tensor) -> Tensor:
        factors = factors.double()
        mean = factors.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        return factors + jitter * mean * torch.eye(factors.shape[-1]).to(factors)

    return replace(
        block,
        input_factors=shift(block.input_factors),
        output_factors=shift(block.output_factors),
    )


def _check_factors(name: str, block: KroneckerBlock) -> None:
    for which, factors in (("input", block.input_factors), ("output", block.output_factors)):
        if not bool(torch.isfinite(factors).all()):
            raise NonFiniteError(
                f"the {which} factor of the curvature of {name} is not finite: "
                "the network's activations or gradients overflow there"
            )
