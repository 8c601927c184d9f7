"""Calibrated predictions as tensors and plain values, for a file, and back.

What is stored is what predictions need and the network does not have: the Kronecker factors of its
posterior, prior precisions, noise, and what calibration found, with the tails of residuals. Where
few vectors were summed in a factor, these are stored instead of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from groupella._schema import SchemaError, build
from groupella.curvature import KroneckerBlock

from ._evidence import Evidence
from ._posterior import FactoredPosterior, KroneckerPosterior
from ._predictive import Predictive
from .likelihoods import Likelihood

ROWS, INPUT, OUTPUT, ORDER = "rows", "input", "output", "order"
TAILS = "tails"  # parameters have a part: "head.weight/input"


@dataclass(frozen=True)
class _Parameter:
    """What a file says of one parameter beside its factors."""

    precision: float
    count: float
    positions: float
    shape: tuple[int, ...]
    n_data: float | None

    def __post_init__(self) -> None:
        n_data = self.count if self.n_data is None else self.n_data
        for value in (self.precision, self.count, self.positions, n_data):
            _require_positive(value)


@dataclass(frozen=True)
class _Stored:
    """What a file says of predictions beside tensors."""

    parameters: Mapping[str, _Parameter]
    curvature: float
    temperature: float
    scale: float | None
    usual: float | None
    noise: float | None

    def __post_init__(self) -> None:
        for value in (self.curvature, self.temperature, self.usual, self.noise):
            if value is not None:
                _require_positive(value)


def stored(predictive: Predictive) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors by name, and values for JSON; `restored` is the inverse.

    Raises
    ------
    TypeError
        If the posterior has no Kronecker factors.
    """
    posterior = predictive.posterior
    if isinstance(posterior, KroneckerPosterior):
        posterior = posterior.factored
    if not isinstance(posterior, FactoredPosterior):
        raise TypeError(f"only factored posteriors can be stored, not {type(posterior).__name__}")
    tensors: dict[str, Tensor] = {}
    parameters = {}
    for name, block in posterior.blocks.items():
        few = block.input_rows is not None
        tensors[f"{name}/{ROWS if few else INPUT}"] = (
            block.input_factors if block.input_rows is None else block.input_rows
        )
        tensors[f"{name}/{OUTPUT}"] = block.output_factors
        if block.order is not None:
            tensors[f"{name}/{ORDER}"] = block.order
        parameters[name] = _Parameter(
            float(posterior.precisions[name]),
            float(block.count),
            float(block.positions),
            tuple(block.shape),
            None if block.n_data is None else float(block.n_data),
        )
    if predictive.tails is not None:
        tensors[TAILS] = predictive.tails
    values = _Stored(
        parameters,
        float(posterior.scale),
        predictive.temperature,
        predictive.scale,
        predictive.usual,
        predictive.evidence.noise,
    )
    return {name: tensor.detach() for name, tensor in tensors.items()}, asdict(values)


def restored(
    network: nn.Module, likelihood: Likelihood, tensors: Mapping[str, Tensor], values: Any
) -> Predictive:
    """Return the predictions that `stored` took apart, of the same network.

    Parameters
    ----------
    network, likelihood
        The network at its weights, and how its targets are distributed.
    tensors, values
        What `stored` returned.

    Raises
    ------
    ValueError
        If they are not what `stored` returns for such a network.
    """
    found = build(_Stored, values, "uncertainty")
    weights = dict(network.named_parameters())
    blocks = {}
    for name, parameter in found.parameters.items():
        if name not in weights or tuple(weights[name].shape) != parameter.shape:
            raise SchemaError(f"uncertainty: the network has no {name} of shape {parameter.shape}")
        blocks[name] = _block(name, parameter, tensors)
    evidence = Evidence(network, likelihood, ignore=[n for n in weights if n not in blocks])
    if likelihood.log_noise is not None:
        if found.noise is None:
            raise SchemaError("uncertainty lacks 'noise'")
        with torch.no_grad():
            likelihood.log_noise.fill_(math.log(found.noise))
    precisions = {name: parameter.precision for name, parameter in found.parameters.items()}
    return Predictive(
        evidence,
        FactoredPosterior(network, blocks, precisions, found.curvature),
        scale=found.scale,
        temperature=found.temperature,
        usual=found.usual,
        tails=_tails(tensors),
    )


def _tails(tensors: Mapping[str, Tensor]) -> Tensor | None:
    """Those of held-out residuals; older files have none."""
    found = tensors.get(TAILS)
    if found is None:
        return None
    if found.ndim != 2 or len(found) != 2 or not found.numel() or not found.is_floating_point():
        raise SchemaError(f"uncertainty: {TAILS} are not two numbers for each output")
    if not bool((found > 0).all() and torch.isfinite(found[1]).all()):
        raise SchemaError(f"uncertainty: {TAILS} are not positive, or not finite")
    return found


def _block(name: str, parameter: _Parameter, tensors: Mapping[str, Tensor]) -> KroneckerBlock:
    parts = {
        part: tensors[f"{name}/{part}"]
        for part in (ROWS, INPUT, OUTPUT, ORDER)
        if f"{name}/{part}" in tensors
    }
    order = parts.pop(ORDER, None)
    if OUTPUT not in parts or len(parts) != 2:
        raise SchemaError(f"uncertainty: the factors of {name} are missing")
    for part, tensor in parts.items():
        if tensor.ndim != 3 or not tensor.is_floating_point():
            raise SchemaError(f"uncertainty: {name}/{part} is no stack of matrices")
        if not bool(torch.isfinite(tensor).all()):
            raise SchemaError(f"uncertainty: {name}/{part} is not finite")
    size = math.prod(parameter.shape)
    if order is not None and not torch.equal(order.sort().values, torch.arange(size)):
        raise SchemaError(f"uncertainty: {name}/{ORDER} is no order of {size} weights")
    rows = parts.get(ROWS)
    return KroneckerBlock(
        parts[INPUT] if rows is None else rows.mT @ rows,
        parts[OUTPUT],
        parameter.count,
        parameter.positions,
        parameter.shape,
        order,
        parameter.n_data,
        input_rows=rows,
    )


def _require_positive(value: float) -> None:
    if not 0 < value < math.inf:
        raise SchemaError(f"expected a positive number, got {value!r}")
