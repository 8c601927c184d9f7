"""A user's own network in the units of its data."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import nn

from groupella.groups import FeatureSpace
from groupella.nn.standardise import InUnits, Standardise


def with_units(
    network: nn.Module,
    space_in: FeatureSpace | None = None,
    space_out: FeatureSpace | None = None,
) -> nn.Sequential:
    """Return the network between a standardisation of its inputs and the units of its outputs.

    `fit` learns mean and scale of the inputs, and of real targets, from its data. Initial weights,
    priors, learned precisions and verdicts then do not depend on the units of the data, and the
    saved network takes and gives data in their own units. `trunk` and `invariant_net` do this
    already. Every channel has one mean and one scale, so that symmetries are kept exactly.

    Parameters
    ----------
    network
        Any network; it is not copied. `wrapped.network` is it.
    space_in
        The inputs, (batch, *space_in.shape); by default those of the first module that has a
        `space_in`.
    space_out
        Where the outputs are fields of features, flattened or not: their space. By default that of
        the last module with a `space_out` of as many numbers on several sites; if there is none,
        outputs count as invariant numbers, each with its own mean.

    Returns
    -------
    nn.Sequential
        `inputs` (`Standardise`), `network`, `outputs` (`InUnits`).

    Raises
    ------
    ValueError
        If the network has units, if its input space is not known, or if `space_out` does not have
        as many numbers as the network has outputs.

    Examples
    --------
    >>> network = with_units(nn.Sequential(layer, nn.Flatten(), nn.Linear(64, 3)))
    >>> fit(network, (x, y))
    """
    if any(isinstance(module, Standardise | InUnits) for module in network.modules()):
        raise ValueError("the network has units already")
    space_in = space_in or next(_spaces(network, "space_in"), None)
    if space_in is None:
        raise ValueError(
            f"no module of this {type(network).__name__} has a space_in: pass that of the inputs, "
            "such as groups.space((8, 8), channels=1, fibre='trivial')"
        )
    outputs = _outputs(network, space_in)
    if space_out is None:
        fields = [s for s in _spaces(network, "space_out") if s.lattice.size > 1]
        space_out = next((s for s in fields[::-1] if s.size == outputs.numel()), None)
    elif space_out.size != outputs.numel():
        raise ValueError(
            f"the network has {outputs.numel()} outputs of shape {tuple(outputs)}, space_out has "
            f"{space_out.size} numbers"
        )
    parts = {
        "inputs": Standardise(space_in),
        "network": network,
        "outputs": InUnits(tuple(outputs), space_out),
    }
    like = next(network.parameters(), torch.empty(0))
    return nn.Sequential(OrderedDict(parts)).to(like.device, like.dtype)


def _spaces(network: nn.Module, name: str) -> Iterator[FeatureSpace]:
    found = (getattr(module, name, None) for module in network.modules())
    return (space for space in found if isinstance(space, FeatureSpace))


def _outputs(network: nn.Module, space: FeatureSpace) -> torch.Size:
    """The shape of one datum's outputs, found on a copy, which may count or remember its inputs."""
    there = copy.deepcopy(network).eval()
    like = next(there.parameters(), torch.empty(0))
    with torch.no_grad():
        f = there(like.new_zeros(1, *space.shape))
    return torch.Size(f.shape[1:])
