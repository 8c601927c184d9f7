"""The cost of the Kronecker factors of a network's curvature, before any is allocated.

A parameter that acts as B matrices (D_out, D_in) has at most B factors with D_in² and B with D_out²
entries. The time of their eigen-decompositions grows with D³: about a minute at 4096 rows on one
core, a quarter of an hour at 10,240, and a wide fully connected layer has two such factors.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import nn

from groupella.nn.shared_maps import HasSharedMaps

MOST_ROWS = 4096
MOST_BYTES = 4 * 2**30


class CurvatureTooLargeError(RuntimeError):
    """The curvature of a network would take too much memory or time."""


@dataclass(frozen=True)
class CurvatureCost:
    """The `bytes` of all factors, the `rows` of the largest, and the `parameter` it belongs to."""

    bytes: int
    rows: int
    parameter: str

    def check(self) -> None:
        """Raise `CurvatureTooLargeError` above the automatic limits."""
        if self.rows > MOST_ROWS or self.bytes > MOST_BYTES:
            raise CurvatureTooLargeError(
                f"the curvature of this network would need {self.bytes / 2**30:.1f} GiB of "
                f"factors, the largest with {self.rows} rows (that of {self.parameter}); the "
                f"automatic limits are {MOST_BYTES / 2**30:.0f} GiB and {MOST_ROWS} rows. Call "
                "collect() of the fit to compute it anyway, or use a narrower network"
            )


def curvature_cost(network: nn.Module) -> CurvatureCost:
    """Return the cost for all trainable weights of paths, nn.Linear and nn.ConvNd.

    It is an upper bound where blocks share factors.
    """
    total, rows, largest = 0, 0, ""
    for prefix, module in network.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            sides = _sides(module, name, parameter) if parameter.requires_grad else None
            if sides is None:
                continue
            blocks, *factors = sides
            total += blocks * sum(d * d for d in factors) * parameter.element_size()
            if max(factors) > rows:
                rows, largest = max(factors), f"{prefix}.{name}" if prefix else name
    return CurvatureCost(total, rows, largest)


def _sides(module: nn.Module, name: str, parameter: nn.Parameter) -> tuple[int, int, int] | None:
    """(B, D_out, D_in), or None for a parameter without a shared linear map."""
    if isinstance(module, HasSharedMaps):
        shared_map = module.shared_maps().get(name)
        if shared_map is None:
            return None
        blocks, d_out, d_in = shared_map.as_blocks(
            torch.empty(parameter.shape, device="meta")
        ).shape
        return blocks, d_out, d_in
    if name == "weight" and isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return 1, parameter.shape[0], prod(parameter.shape[1:])
    return None
