"""A plain network with only the paths that were selected.

The convolutional paths of a layer are summed into one filter, group convolutions written out; a
layer of nothing else, without a stride, is one `nn.ConvNd` with circular padding. All other modules
of groupella become graphs of torch operations (`torch.fx`). The result can be saved, loaded,
compiled and exported where groupella is not installed.
"""

from __future__ import annotations

import copy
import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, fx, nn

from groupella.curvature import batches, evaluation
from groupella.evidence.likelihoods import Categorical, Likelihood
from groupella.nn.layer import ResidualPathway
from groupella.nn.nonlinearity import FibreNorm, Pointwise
from groupella.nn.paths import Path, is_stationary, stationary_part
from groupella.nn.pooling import Centre, GlobalPool, GroupPool, Lift, PolyphasePool
from groupella.nn.standardise import InUnits, Standardise

from . import _plain
from ._filters import FactoredMatrix, Filter, Gathered, Matrix, add_filters, plain_weights

_ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "identity": nn.Identity,
}


class HasKept(Protocol):
    """The part of a `Selection` that is used: for each layer the names of the paths to keep.

    It may also have `stationary`, the names of sparse paths of which the constant part stays.
    """

    @property
    def kept(self) -> Mapping[str, Iterable[str]]: ...


class WorseError(ValueError):
    """The plain network predicts worse than the one it was made from."""


def harden(
    network: nn.Module,
    selection: Mapping[str, Iterable[str]] | HasKept | None = None,
    data: tuple[Tensor, Tensor] | None = None,
    *,
    likelihood: Likelihood | None = None,
    tolerance: float = 0.02,
) -> nn.Module:
    """A plain copy of the network with only the selected paths.

    Where the weights of the other paths are zero, its outputs are the same. Of a sparse path that
    is not selected because its lengthscales are zero, or died, the constant part stays.

    Parameters
    ----------
    network
        Any module with `ResidualPathway` layers in it; it is not changed.
    selection
        For each layer, by its name in `network.named_modules()`, the names of the paths to keep:
        a mapping, or an object whose attribute `kept` is one, such as a `Selection`. Layers that it
        does not name keep all their paths.
    data
        Data (x, y) on which both networks are compared. Give them whenever you have some: a path
        that seems dead by the evidence may carry the predictions.
    likelihood
        `Categorical()` by default.
    tolerance
        The largest loss of accuracy, and of log-likelihood in nats per datum.

    Returns
    -------
    nn.Module
        Plain torch modules: can be saved, loaded, compiled and exported without groupella.

    Raises
    ------
    TypeError
        If `selection` is neither a mapping nor has one.
    ValueError
        If it names an unknown layer or path, or leaves a layer without paths.
    WorseError
        If the plain network is worse on `data` by more than `tolerance`.
    """
    made = _hardened(network, selection)
    if data is not None:
        _compare(network, made, data, likelihood or Categorical(), tolerance)
    return made


def _compare(
    before: nn.Module,
    after: nn.Module,
    data: tuple[Tensor, Tensor],
    likelihood: Likelihood,
    tolerance: float,
) -> None:
    scores = [_score(network, data, likelihood) for network in (before, after)]
    (fit, accuracy), (fit_after, accuracy_after) = scores
    words = f"the log-likelihood per datum goes from {fit:.3f} to {fit_after:.3f}"
    lost = fit - fit_after > tolerance
    if accuracy is not None and accuracy_after is not None:
        words += f", the accuracy from {accuracy:.3f} to {accuracy_after:.3f}"
        lost = lost or accuracy - accuracy_after > tolerance
    if lost:
        raise WorseError(
            f"the plain network is worse than the one it was made from: {words}. A path that was "
            "taken out is needed: keep it, train on without it, or raise tolerance="
        )


@torch.no_grad()
def _score(
    network: nn.Module, data: tuple[Tensor, Tensor], likelihood: Likelihood
) -> tuple[float, float | None]:
    """Log-likelihood per datum, and the accuracy where targets are classes."""
    n = len(data[1])
    total, right = 0.0, 0.0
    with evaluation(network):
        for x, y in batches(data, 256):
            f = network(x).double()
            total += float(likelihood.log_likelihood(f, y))
            found = likelihood.accuracy(likelihood.mean(f), y)
            right = math.nan if found is None else right + found * len(y)
    return total / n, None if math.isnan(right) else right / n


def _hardened(network: nn.Module, selection: Any) -> nn.Module:
    kept, stationary = _kept(network, selection)
    names = {id(module): name for name, module in network.named_modules()}
    # The memo of deepcopy, so that shared modules and tied weights stay shared.
    plain: dict[int, Any] = {}

    def convert(module: nn.Module) -> nn.Module:
        if id(module) not in plain:
            name = names[id(module)]
            made = _leaf(module, kept.get(name), stationary.get(name, ()))
            if made is None:
                for child in module.children():
                    convert(child)
                made = _written_out(copy.deepcopy(module, plain))
            plain[id(module)] = made
        found: nn.Module = plain[id(module)]
        return found

    return convert(network).train(network.training)


def _kept(
    network: nn.Module, selection: Any
) -> tuple[dict[str, tuple[str, ...]], Mapping[str, tuple[str, ...]]]:
    """The paths to keep of the layers that are named, checked, and those to keep as constants."""
    layers = {n: m for n, m in network.named_modules() if isinstance(m, ResidualPathway)}
    if selection is None:
        return {}, {}
    mapping = selection if isinstance(selection, Mapping) else getattr(selection, "kept", None)
    if not isinstance(mapping, Mapping):
        raise TypeError(
            "selection is a mapping from layer names to path names, or has one as its attribute "
            f"`kept`; got {type(selection).__name__}"
        )
    stationary = {} if mapping is selection else getattr(selection, "stationary", {})
    kept = {}
    for name, paths in mapping.items():
        if name not in layers:
            raise ValueError(f"no layer is named {name!r}{_nearest(name, layers)}")
        known = list(layers[name].paths)
        kept[name] = (paths,) if isinstance(paths, str) else tuple(paths)
        for path in kept[name]:
            if path not in known:
                raise ValueError(f"layer {name!r} has no path {path!r}{_nearest(path, known)}")
        if not kept[name] and not stationary.get(name):
            raise ValueError(
                f"layer {name!r} would keep no path, and its output no longer depend on the input; "
                f"it has {', '.join(known)}"
            )
    return kept, stationary


def _nearest(name: object, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.0)
    return f"; did you mean {near[0]!r}?" if near else ": there is none"


def _leaf(
    module: nn.Module, kept: tuple[str, ...] | None, stationary: tuple[str, ...]
) -> nn.Module | None:
    """The plain form of a module of groupella; None for a module that merely contains some."""
    if isinstance(module, ResidualPathway):
        chosen = tuple(module.paths) if kept is None else kept
        return _written_out(_layer(module, chosen, stationary))
    if isinstance(module, Pointwise):
        return _ACTIVATIONS[module.function]()
    if isinstance(module, Standardise | InUnits) and not module.calibrated:
        return nn.Identity()
    made: nn.Module | None = None
    if isinstance(module, Standardise):
        dim = module.space_in.lattice.dim
        made = _plain.Standardised(module.mean, module.std, dim, module.like.dtype)
    elif isinstance(module, InUnits):
        made = _plain.InUnits(module.mean, module.std)
    elif isinstance(module, Lift):
        made = _lift(module)
    elif isinstance(module, GroupPool):
        space = module.space_in
        made = _plain.FibrePooled(space.shape, space.fibre_size, module.mode)
    elif isinstance(module, GlobalPool):
        made = _plain.SitesPooled(module.space_in.lattice.dim, module.mode)
    elif isinstance(module, FibreNorm):
        space = module.space_in
        made = _plain.NormScaled(space.shape, space.fibre_size, module.function)
    elif isinstance(module, PolyphasePool):
        made = _polyphase(module)
    elif isinstance(module, Centre):
        made = _centre(module)
    elif isinstance(module, nn.Module) and isinstance(module, Path):
        made = _like(_path(module), module)
    return None if made is None else _written_out(made)


def _written_out(module: nn.Module) -> nn.Module:
    """Stock modules as they are, ours as a graph of torch operations."""
    if type(module).__module__.partition(".")[0] != "groupella":
        return module
    tracer = fx.Tracer()
    tracer.proxy_buffer_attributes = True  # what is computed from buffers is written out as well
    graph = fx.GraphModule(module, tracer.trace(module), type(module).__name__)
    for node in graph.graph.nodes:
        node.type = None  # annotations are strings, which a saved graph cannot name again
    graph.recompile()
    return graph


def _chosen(
    layer: ResidualPathway, kept: tuple[str, ...], stationary: tuple[str, ...]
) -> list[Any]:
    """The paths to keep; of sparse paths whose lengthscales are zero or died, the constant part."""
    return [
        path if name in kept else stationary_part(path)
        for name, path in layer.paths.items()
        if name in kept or name in stationary or is_stationary(path)
    ]


def _layer(layer: ResidualPathway, kept: tuple[str, ...], stationary: tuple[str, ...]) -> nn.Module:
    before: list[nn.Module] = []
    after: list[nn.Module] = []
    filters: list[Filter] = []
    for path in _chosen(layer, kept, stationary):
        found = plain_weights(path)
        if isinstance(found, Filter):
            filters.append(found)
        elif path.space_out.lattice == layer.space_out.lattice:
            after.append(_weights(found, path.space_out.shape))
        else:
            before.append(_weights(found, path.space_out.shape))
    bias = layer.constant(kept)
    bias = None if bias is None else bias.detach()
    torus = [f for f in filters if f.padding == "circular"]
    if torus and len(torus) < len(filters):  # a user's own mixture
        before += [_plain.convolution(f, None) for f in filters if f.padding != "circular"]
        filters = torus
    alone = bool(filters) and not before and not after and layer.pool is None
    if alone and (bias is None or bias[0].numel() == 1):
        constant = None if bias is None else bias.flatten().double()
        return _like(_plain.convolution(add_filters(filters), constant), layer)
    if filters:
        before.insert(0, _plain.convolution(add_filters(filters), None))
    pool = None if layer.pool is None else _polyphase(layer.pool)
    return _like(_plain.Layer(before, pool, after, bias), layer)


def _path(path: Any) -> nn.Module:
    found = plain_weights(path)
    if isinstance(found, Filter):
        return _plain.convolution(found, None)
    return _weights(found, path.space_out.shape)


def _weights(found: Matrix | FactoredMatrix | Gathered, shape: tuple[int, ...]) -> nn.Module:
    if isinstance(found, Matrix):
        return _plain.matrix(found, shape)
    if isinstance(found, Gathered):
        return _plain.GatheredPatches(found, shape)
    return _plain.Factored(found, shape)


def _polyphase(pool: PolyphasePool) -> nn.Module:
    channels, *lattice = pool.space_in.shape
    if pool.is_fixed:
        return _plain.Every(pool.stride, len(lattice))
    pattern = pool.pattern.like(torch.empty((), dtype=torch.float64))
    chain = pool.pattern.chain
    return _plain.Polyphase(channels, lattice, pool.norm, pool._fibre, pattern, chain, pool.stride)


def _centre(centre: Centre) -> nn.Module:
    channels, *lattice = centre.space_in.shape
    like = torch.empty((), dtype=torch.float64)
    waves = [wave.like(like) for wave in centre.waves]
    return _plain.Centred(channels, lattice, waves, centre.pattern.like(like))


def _lift(lift: Lift) -> nn.Module:
    if lift.space_out.fibre_size == 1:
        return nn.Identity()
    return _plain.Lifted(lift._vector.like(torch.empty(0)), lift.space_out.shape)


def _like(plain: nn.Module, original: nn.Module) -> nn.Module:
    """The plain module in the precision, on the device and in the mode of the original."""
    parameter: Tensor = next(original.parameters())
    return plain.to(parameter.device, parameter.dtype).train(original.training)
