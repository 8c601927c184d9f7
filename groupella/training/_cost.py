"""What the Kronecker factors of a network's curvature would cost, before any is allocated.

A parameter that is seen as B matrices (D_out, D_in) has at most B factors of D_in² and B of D_out²
entries. Their eigen-decompositions take a time that grows with D³: about a minute at 4096 rows on
one core, a quarter of an hour at 10,240, and a wide fully connected layer has two such factors.
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
    """The curvature of a network would take more memory or time than is sensible."""


@dataclass(frozen=True)
class CurvatureCost:
    """`bytes` of all factors together, `rows` of the largest one, which is that of `parameter`."""

    bytes: int
    rows: int
    parameter: str

    def check(self) -> None:
        """Raise where the factors are too large to be taken unasked."""
        if self.rows > MOST_ROWS or self.bytes > MOST_BYTES:
            raise CurvatureTooLargeError(
                f"the curvature of this network would need {self.bytes / 2**30:.1f} GiB of "
                f"factors, the largest with {self.rows} rows (that of {self.parameter}); taken "
                f"unasked are at most {MOST_BYTES / 2**30:.0f} GiB and {MOST_ROWS} rows. Call "
                "collect() of the fit to take it all the same, or use a narrower network"
            )


def curvature_cost(network: nn.Module) -> CurvatureCost:
    """Of all trainable weights of paths, nn.Linear and nn.ConvNd; at most, where blocks share."""
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
    """(B, D_out, D_in), or None for what has no shared linear map."""
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
