"""Gaussian priors: one precision per path of a layer, learned as its logarithm.

Every parameter of a network belongs to exactly one *prior group*, or is a hyperparameter. With
w_g the parameters of group g and δ_g its precision, p(w) = Π_g N(w_g | 0, δ_g⁻¹ I).

| group            | what it holds                                                         |
| ---------------- | --------------------------------------------------------------------- |
| `layers.3/p4`    | the weights of path p4 in the residual-pathway layer `layers.3`       |
| `layers.3/bias`  | that layer's bias; `layers.3/p4/bias` for a bias inside a path        |
| `layers.3/FC/offset` | the offset of a path, which decides on the path too               |
| `head.0`         | the weight of an ordinary module, `head.0/bias` its bias              |

A path's tensors share one precision: the two factors of a factored path trade scale freely, so a
precision each is not identified. `per_tensor=True` gives every tensor its own, as the published
code does. Lengthscales and anchor positions of sparse paths are hyperparameters, which the
evidence reaches through the curvature; with `on="lengthscales"` they have a prior whose precision
is learned, while the precision of the anchor values stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from groupella.curvature import matching
from groupella.groups import Symmetry, is_inside, normalises, trivial

Role = Literal["path", "weight", "bias", "offset", "lengthscale"]


@runtime_checkable
class PathwayLayer(Protocol):
    """A residual-pathway layer as the evidence sees it: named paths and the members they obey."""

    paths: nn.ModuleDict
    subspaces: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class PriorGroup:
    """Parameters that share a precision; `parameters` are qualified names in the network."""

    name: str
    parameters: tuple[str, ...]
    size: int
    role: Role
    layer: str
    path: str | None = None
    initial: float = 1.0
    learn: bool = True


class Prior(nn.Module):
    """Log-precisions of named groups, as one float64 parameter `log_precision` (groups,).

    Parameters
    ----------
    groups
        The prior groups; each parameter belongs to at most one.
    hyperparameters
        Qualified names of parameters without a prior, which learn from the evidence.
    ignored
        Qualified names of parameters without prior and curvature, which learn with the weights.
    bounds
        The smallest and the largest precision.
    """

    def __init__(
        self,
        groups: Sequence[PriorGroup],
        hyperparameters: Sequence[str] = (),
        bounds: tuple[float, float] = (1e-6, 1e12),
        ignored: Sequence[str] = (),
    ) -> None:
        super().__init__()
        low, high = bounds
        if not 0 < low < high < math.inf:
            raise ValueError(f"bounds must be 0 < low < high < inf, got {bounds}")
        if not groups:
            raise ValueError("a prior needs at least one group of parameters")
        _check_disjoint(groups)
        self.groups = tuple(groups)
        self.hyperparameters = tuple(hyperparameters)
        self.ignored = tuple(ignored)
        self.bounds = (float(low), float(high))
        initial = torch.tensor([g.initial for g in groups], dtype=torch.float64)
        if not bool((initial > 0).all()):
            bad = [g.name for g in groups if not g.initial > 0]
            raise ValueError(f"initial precisions must be positive, not so for {', '.join(bad)}")
        self.log_precision = nn.Parameter(initial.clamp(low, high).log())
        self.out: Tensor
        self.register_buffer("out", torch.zeros(len(groups), dtype=torch.bool))
        self._index = {g.name: i for i, g in enumerate(self.groups)}

    @classmethod
    def from_network(
        cls,
        network: nn.Module,
        *,
        per_tensor: bool = False,
        on: Literal["weights", "lengthscales"] = "weights",
        precisions: Mapping[str, float] | float | None = None,
        fixed: Sequence[str] = (),
        bounds: tuple[float, float] = (1e-6, 1e12),
        ignore: Sequence[str] = (),
        invariant: Symmetry | None = None,
    ) -> Prior:
        """Return a prior with one group per path of each layer.

        Parameters
        ----------
        network
            The network whose trainable parameters to group.
        per_tensor
            Whether every tensor of a path has its own precision.
        on
            Whether sparse paths have their learned prior on "weights" or on "lengthscales".
        precisions
            Initial precisions: a number for all groups, or a mapping from group names. By default
            those that the layers ask for (`initial_precisions`, from their `init`), or 1.
        fixed
            Names of groups that are not learned.
        bounds
            The smallest and the largest precision.
        ignore
            Names of parameters, or patterns such as "norm.*", that get neither prior nor curvature:
            the evidence takes them as known, and training fits them without a penalty.
        invariant
            A symmetry that must leave the prior alone when it moves inputs and outputs of layers.

        Raises
        ------
        ValueError
            If `ignore` fits no parameter, or if the prior is not `invariant`: where a path obeys
            less than that symmetry, which is not orthogonal or maps the path to another one.
        KeyError
            If `precisions` or `fixed` names a group that the network does not have.
        """
        if on not in ("weights", "lengthscales"):
            raise ValueError(f"on must be 'weights' or 'lengthscales', got {on!r}")
        if invariant is not None:
            _check_invariant(network, invariant)
        ignored = matching(network, ignore)
        groups, hyperparameters = _group(network, per_tensor, on == "lengthscales", ignored)
        known = {g.name for g in groups}
        chosen = precisions if isinstance(precisions, Mapping) else {}
        for name in [*chosen, *fixed]:
            if name not in known:
                raise KeyError(
                    f"no prior group {name!r} in this network; it has {', '.join(sorted(known))}"
                )
        if isinstance(precisions, int | float):
            groups = [replace(g, initial=float(precisions)) for g in groups]
        groups = [
            replace(g, initial=chosen.get(g.name, g.initial), learn=g.learn and g.name not in fixed)
            for g in groups
        ]
        return cls(groups, hyperparameters, bounds, ignored)

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[PriorGroup]:
        return iter(self.groups)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all groups."""
        return tuple(g.name for g in self.groups)

    def index(self, name: str) -> int:
        """Return the position of a group in `log_precision`."""
        try:
            return self._index[name]
        except KeyError:
            raise KeyError(f"no prior group {name!r}; there are {', '.join(self.names)}") from None

    def of_path(self, layer: str, path: str) -> tuple[PriorGroup, ...]:
        """Return the groups that decide on a path.

        Its weights, or its lengthscales if their prior is learned, and its offset.
        """
        mine = [g for g in self.groups if (g.layer, g.path) == (layer, path) and g.role != "bias"]
        lengthscales = [g for g in mine if g.role == "lengthscale" and g.learn]
        weights = lengthscales or [g for g in mine if g.role == "path"]
        return (*weights, *(g for g in mine if g.role == "offset"))

    @property
    def precisions(self) -> Tensor:
        """δ, detached: (groups,) float64."""
        return self.log_precision.detach().exp()

    def precision(self, name: str) -> float:
        """Return the precision of one group."""
        return float(self.log_precision.detach()[self.index(name)].exp())

    def set_precision(self, name: str, value: float) -> None:
        """Set one precision, within the bounds."""
        low, high = self.bounds
        if not value > 0:
            raise ValueError(f"a precision must be positive, got {value} for {name!r}")
        with torch.no_grad():
            self.log_precision[self.index(name)] = math.log(min(max(value, low), high))

    @property
    def learned(self) -> Tensor:
        """Which groups are learned: (groups,) bool."""
        learned = torch.tensor([g.learn for g in self.groups], device=self.log_precision.device)
        return learned & ~self.out

    def is_out(self, name: str) -> bool:
        """Whether a group was removed by `take_out`."""
        return bool(self.out[self.index(name)])

    def take_out(self, network: nn.Module, names: Iterable[str]) -> None:
        """Remove groups for good: weights zero and constant, precision at the upper bound.

        As constants they need neither curvature nor gradients (`requires_grad` is off).
        """
        for name in names:
            self.set_precision(name, self.bounds[1])
            self.out[self.index(name)] = True
        self.hold_out(network)

    def hold_out(self, network: nn.Module) -> None:
        """Set the parameters of removed groups to zero and freeze them."""
        parameters = dict(network.named_parameters())
        for group, out in zip(self.groups, self.out.tolist(), strict=True):
            for name in group.parameters if out else ():
                parameters[name].requires_grad_(False)
                parameters[name].zero_()

    def clamp_(self) -> None:
        """Put log-precisions back within the bounds."""
        low, high = self.bounds
        with torch.no_grad():
            self.log_precision.clamp_(math.log(low), math.log(high))

    def precision_of_parameters(self) -> dict[str, float]:
        """Return δ by the qualified name of each parameter that has a prior."""
        values = self.precisions.tolist()
        return {p: v for g, v in zip(self.groups, values, strict=True) for p in g.parameters}

    def squared_norms(self, network: nn.Module) -> Tensor:
        """Return ‖w_g‖² for every group, in float64 and differentiable: (groups,)."""
        parameters = dict(network.named_parameters())
        sums = []
        for group in self.groups:
            squares = [parameters[p].double().square().sum() for p in group.parameters]
            sums.append(torch.stack(squares).sum())
        return torch.stack(sums).to(self.log_precision.device)

    def penalty(self, network: nn.Module) -> Tensor:
        """Return ½ Σ_g δ_g ‖w_g‖², differentiable in the weights but not in the precisions."""
        return 0.5 * (self.precisions * self.squared_norms(network)).sum()

    def extra_repr(self) -> str:
        return f"{len(self)} groups, {len(self.hyperparameters)} hyperparameters"


def pathway_layers(network: nn.Module) -> dict[str, PathwayLayer]:
    """Return the residual-pathway layers of a network by qualified name."""
    return {n: m for n, m in network.named_modules() if isinstance(m, PathwayLayer)}


def _check_invariant(network: nn.Module, symmetry: Symmetry) -> None:
    """An isotropic prior on all maps that obey H is kept by orthogonal g with g H g⁻¹ = H.

    Maps that obey the symmetry do not change at all, whatever it is.
    """
    for name, layer in pathway_layers(network).items():
        groups = getattr(layer, "groups", ())
        members = {m.name: m for m in groups}
        for path in layer.paths:
            member = members.get(path, trivial())
            if is_inside(symmetry, member):
                continue
            if not symmetry.is_catalogue and not symmetry.is_orthogonal:
                why = "does not act by orthogonal matrices and keeps no Gaussian prior"
            elif not normalises(symmetry, member):
                why = f"turns {member} into another group"
            else:
                continue
            raise ValueError(
                f"the prior of path {path} of {name or 'the layer'} is not invariant to "
                f"{symmetry}, which {why}; keep only paths that obey {symmetry}, for example with "
                f"equivariant_net(..., symmetry={symmetry.name!r})"
            )


def _check_disjoint(groups: Sequence[PriorGroup]) -> None:
    owner: dict[str, str] = {}
    names: set[str] = set()
    for group in groups:
        if group.name in names:
            raise ValueError(f"two prior groups are called {group.name!r}")
        names.add(group.name)
        for parameter in group.parameters:
            if parameter in owner:
                raise ValueError(
                    f"parameter {parameter!r} is in the prior groups {owner[parameter]!r} "
                    f"and {group.name!r}; it must be in one"
                )
            owner[parameter] = group.name


def _group(
    network: nn.Module, per_tensor: bool, on_lengthscales: bool, ignored: Collection[str]
) -> tuple[list[PriorGroup], list[str]]:
    """Visit the parameters in the network's own order, each once."""
    layers = pathway_layers(network)
    modules = dict(network.named_modules())
    groups: dict[str, PriorGroup] = {}
    hyperparameters: list[str] = []
    sparse_paths: set[tuple[str, str | None]] = set()
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad or name in ignored:
            continue
        layer, path, is_offset = _owner(name, layers)
        module, _, leaf = name.rpartition(".")
        role: Any = "offset" if is_offset else _role(modules[module], leaf, path)
        if role == "lengthscale" and layer is not None:
            sparse_paths.add((layer, path))
        if role == "position" or (role == "lengthscale" and not on_lengthscales):
            hyperparameters.append(name)
            continue
        key = _name(name, layer, path, role, per_tensor)
        if key not in groups:
            home = module if layer is None else layer
            wanted = getattr(layers.get(home), "initial_precisions", None) or {}
            initial = float(wanted.get(path, 1.0)) if role in ("path", "offset") else 1.0
            groups[key] = PriorGroup(key, (), 0, role, home, path, initial)
        known = groups[key]
        groups[key] = replace(
            known, parameters=(*known.parameters, name), size=known.size + parameter.numel()
        )
    found = list(groups.values())
    if on_lengthscales:
        found = [
            replace(g, learn=not (g.role == "path" and (g.layer, g.path) in sparse_paths))
            for g in found
        ]
    return found, hyperparameters


def _owner(name: str, layers: Iterable[str]) -> tuple[str | None, str | None, bool]:
    """The residual-pathway layer and path of a parameter, if any; whether it is an offset."""
    for layer in sorted(layers, key=len, reverse=True):
        prefix = layer + "." if layer else ""
        if name.startswith(prefix):
            rest = name[len(prefix) :].split(".")
            owned = rest[0] in ("paths", "offsets") and len(rest) > 2
            return layer, rest[1] if owned else None, owned and rest[0] == "offsets"
    return None, None, False


def _role(module: nn.Module, leaf: str, path: str | None) -> Any:
    """The role of a parameter: from the module's `hyperparameters`, else from its name."""
    special: Mapping[str, str] | Sequence[str] = getattr(module, "hyperparameters", None) or ()
    if isinstance(special, Mapping) and leaf in special:
        return special[leaf]
    if "omega" in leaf:
        return "lengthscale"
    if leaf in special:
        return "position"
    if leaf.startswith("bias") or leaf.endswith("bias"):
        return "bias"
    return "weight" if path is None else "path"


def _name(name: str, layer: str | None, path: str | None, role: str, per_tensor: bool) -> str:
    module, _, leaf = name.rpartition(".")
    if layer is None:
        base = module or leaf
        plain = leaf == "weight" or not module
        return base if plain else f"{base}/{leaf}"
    stem = f"{layer}/{path}" if path is not None else layer
    inside = name[len(f"{layer}.paths.{path}.") if layer else len(f"paths.{path}.") :]
    if role == "path":
        return f"{stem}/{inside}" if per_tensor else stem
    if path is None:
        return f"{stem}/{leaf}"
    if per_tensor and role != "offset":
        return f"{stem}/{inside}"
    return f"{stem}/{role}"
