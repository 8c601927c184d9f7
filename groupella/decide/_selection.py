"""What the evidence selected: how much each layer uses every path, and what it obeys.

For a path with precision δ, weights w, P parameters and the eigenvalues λ of its curvature,

| number    | meaning                                                                         |
| --------- | ------------------------------------------------------------------------------- |
| γ         | Σ λ/(λ + δ), its effective number of parameters (MacKay 1992)                   |
| γ/P       | normalised: between 0 (not used) and 1 (fully determined by the data)           |
| relative  | γ/P over the sum of γ/P in the layer                                            |
| removal   | change of log evidence when the path is removed; positive: better without it    |

`Rule` says from these which paths are alive, `verdict` what the layer and the network obey. How
clear a layer's verdict is: the distance of the nearest path that could change it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from groupella._files import write_text
from groupella._schema import build, read_json, write_json
from groupella.evidence import (
    Batches,
    Evidence,
    PathwayLayer,
    PriorGroup,
    measured_removal,
    pathway_layers,
    removal,
)

from ._rule import Rule
from ._verdict import NOT_MEASURED, Candidates, clearness, remaining, verdict, verdict_text
from .claims import Judgement

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

FORMAT = "groupella-selection"


@dataclass(frozen=True)
class PathSelection:
    """One path of one layer; `priors` names the prior groups that decide on it.

    Where those are its lengthscales, only they can die: `stationary` then lists the members that
    the rest obeys, a map that is constant on the sites.
    """

    path: str
    precision: float
    squared_norm: float
    parameters: int
    effective_parameters: float
    relative: float
    removal: float
    alive: bool
    members: tuple[str, ...]
    priors: tuple[str, ...] = ()
    stationary: tuple[str, ...] | None = None

    @property
    def normalised(self) -> float:
        return self.effective_parameters / max(self.parameters, 1)


@dataclass(frozen=True)
class LayerSelection:
    """One layer: its paths, the text of its verdict, how clear that is and what comes next.

    `probability`: that of a verdict that was tested on held-out data.
    """

    layer: str
    paths: tuple[PathSelection, ...]
    verdict: str
    clearness: float = math.inf
    alternative: str | None = None
    probability: float | None = None

    @property
    def live(self) -> tuple[str, ...]:
        return tuple(p.path for p in self.paths if p.alive)

    def remaining(self, without: str | None = None) -> list[Collection[str]]:
        """The members that each part obeys which stays: live paths, constants of dead sparse ones.

        `without` names a live path that is to count as dead.
        """
        return remaining(
            [name for name in self.live if name != without],
            {p.path: p.members for p in self.paths},
            {p.path: p.stationary for p in self.paths if p.stationary is not None},
        )


@dataclass(frozen=True)
class Selection:
    """The answer for a whole network. Prints as a table, saves as JSON, draws as a figure."""

    layers: tuple[LayerSelection, ...]
    log_evidence: float
    n_data: int
    rule: Rule = field(default_factory=Rule)
    candidates: Candidates = field(default_factory=lambda: Candidates((), {}))
    judgement: Judgement | None = None

    @classmethod
    def unmeasured(cls, network: nn.Module, n_data: int, rule: Rule | None = None) -> Selection:
        """A network without curvature: all layers, none of their paths, no evidence (NaN)."""
        layers = pathway_layers(network)
        return cls(
            tuple(LayerSelection(name, (), NOT_MEASURED) for name in layers),
            math.nan,
            n_data,
            rule or Rule(),
            _candidates(layers.values()),
        )

    @property
    def is_measured(self) -> bool:
        return any(s.paths for s in self.layers)

    @property
    def verdict(self) -> str:
        """What the network as a whole obeys.

        A name, "p4 and flips", "none", "undecided" if no path is alive, or "not measured". Where
        candidates were imposed and tested on held-out data (`judgement`), that decides, and says
        how well a symmetry is obeyed that no grid has exactly: "so2 to within 3.0 %".
        """
        if self.judgement is not None:
            return self.judgement.verdict
        return verdict_text(self.obeys) if self.is_measured else NOT_MEASURED

    @property
    def obeys(self) -> tuple[str, ...] | None:
        """The names of the verdict, () for none, None if it is undecided or was not measured."""
        if self.judgement is not None:
            return self.judgement.obeys
        parts = [members for layer in self.layers for members in layer.remaining()]
        return verdict(parts, self.candidates)

    @property
    def verdicts(self) -> dict[str, str]:
        """Layer name → what it obeys."""
        return {s.layer: s.verdict for s in self.layers}

    @property
    def kept(self) -> dict[str, tuple[str, ...]]:
        """Layer name → names of its live paths."""
        if not self.is_measured:
            raise ValueError("nothing was measured, so no path is known to be alive or dead")
        return {s.layer: s.live for s in self.layers}

    @property
    def stationary(self) -> dict[str, tuple[str, ...]]:
        """Layer name → names of its dead paths of which the constant part stays."""
        return {
            s.layer: tuple(p.path for p in s.paths if not p.alive and p.stationary is not None)
            for s in self.layers
        }

    def __getitem__(self, layer: str) -> LayerSelection:
        for found in self.layers:
            if found.layer == layer:
                return found
        raise KeyError(f"no layer {layer!r}; there are {', '.join(self.verdicts)}")

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and names for JSON."""
        return {
            "format": FORMAT,
            "version": 2,
            "verdict": self.verdict,
            "rule": self.rule.as_dict(),
            "candidates": self.candidates.as_dict(),
            "judgement": None if self.judgement is None else self.judgement.as_dict(),
            "log_evidence": None if math.isnan(self.log_evidence) else self.log_evidence,
            "n_data": self.n_data,
            "layers": [
                {
                    "layer": s.layer,
                    "verdict": s.verdict,
                    "clearness": s.clearness if math.isfinite(s.clearness) else None,
                    "alternative": s.alternative,
                    "probability": s.probability,
                    "paths": [{**asdict(p), "normalised": p.normalised} for p in s.paths],
                }
                for s in self.layers
            ],
        }

    def save(self, path: str | Path) -> Path:
        """Write as JSON, atomically."""
        return write_text(path, write_json(self.as_dict(), indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Selection:
        """Read what `save` wrote."""
        content = read_json(path)
        try:
            return cls.from_dict(content)
        except ValueError as error:
            raise ValueError(f"{path} is not a selection: {error}") from error

    @classmethod
    def from_dict(cls, content: Any) -> Selection:
        """The inverse of `as_dict`; raises `ValueError` for anything else."""
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"it lacks format={FORMAT!r}")
        found = build(_Stored, content)
        return cls(
            layers=tuple(
                LayerSelection(
                    layer.layer,
                    tuple(
                        PathSelection(**{f.name: getattr(p, f.name) for f in fields(PathSelection)})
                        for p in layer.paths
                    ),
                    layer.verdict,
                    math.inf if layer.clearness is None else layer.clearness,
                    layer.alternative,
                    layer.probability,
                )
                for layer in found.layers
            ),
            log_evidence=math.nan if found.log_evidence is None else found.log_evidence,
            n_data=found.n_data,
            rule=found.rule,
            candidates=Candidates.from_dict(found.candidates),
            judgement=None if found.judgement is None else Judgement.from_dict(found.judgement),
        )

    def table(self) -> Table:
        """A rich table, one row per path."""
        from ._view import table

        return table(self)

    def figure(self) -> Figure:
        """Layers × paths, shaded by relative γ, with the verdicts beside them."""
        from ._view import figure

        return figure(self)

    def __rich__(self) -> Table:
        return self.table()

    def __str__(self) -> str:
        from ._view import text

        return text(self)


def selection(
    network: nn.Module,
    evidence: Evidence,
    data: tuple[Tensor, Tensor] | Batches | None = None,
    *,
    rule: Rule | None = None,
    subset: int | None = None,
) -> Selection:
    """Return what `evidence` says of each residual-pathway layer of `network`.

    Parameters
    ----------
    network, evidence
        The evidence must have seen curvature of the present weights (`collect`, `update`, `fit`).
    data
        Without data, removals are the closed form within a path's own block. With data each path is
        really taken out: fit and curvature are measured without it, and the precisions of the rest
        are optimised again. The closed form is a local quadratic; for a classifier that fits its
        training data perfectly it vanishes, whatever the path does.
    rule
        What counts as alive; `Rule()` by default.
    subset
        Number of data on which curvature is taken when paths are taken out.
    """
    if evidence.network is not network:
        raise ValueError("the evidence belongs to another network")
    layers = pathway_layers(network)
    if not layers:
        raise ValueError("the network has no residual-pathway layers, so nothing to select")
    chosen = rule or Rule()
    candidates = _candidates(layers.values())
    return Selection(
        layers=tuple(
            _select(name, module, evidence, data, chosen, candidates, subset)
            for name, module in layers.items()
        ),
        log_evidence=float(evidence.log_marginal_likelihood().detach()),
        n_data=evidence.fit.n_data,
        rule=chosen,
        candidates=candidates,
    )


def _candidates(layers: Any) -> Candidates:
    """The candidates of a network: the group set of its layers, else what their paths obey."""
    modules = list(layers)
    for module in modules:
        groups = getattr(module, "groups", None)
        if groups is not None:
            return Candidates.of(groups)
    return Candidates.seen_in(m for module in modules for m in module.subspaces.values())


def _select(
    name: str,
    module: PathwayLayer,
    evidence: Evidence,
    data: tuple[Tensor, Tensor] | Batches | None,
    rule: Rule,
    candidates: Candidates,
    subset: int | None,
) -> LayerSelection:
    subspaces: Mapping[str, tuple[str, ...]] = {p: module.subspaces[p] for p in module.paths}
    members = {p: evidence.prior.of_path(name, p) for p in subspaces}
    gammas = evidence.effective_parameters().tolist()
    norms = evidence.squared_norms.tolist()
    deltas = evidence.prior.precisions.tolist()
    index = evidence.prior.index
    normalised = {
        p: sum(gammas[index(g.name)] for g in gs) / max(sum(g.size for g in gs), 1)
        for p, gs in members.items()
    }
    total = sum(normalised.values())
    relative = {p: v / total if total > 0 else 0.0 for p, v in normalised.items()}
    changes = {p: _removal(evidence, gs, data, subset) for p, gs in members.items()}
    live = {p for p in subspaces if rule.is_alive(changes[p], relative[p])}
    distances = {p: rule.distance(changes[p], relative[p]) for p in subspaces}
    constant = getattr(module, "stationary", {})
    stationary = {
        p: constant[p]
        for p, gs in members.items()
        if p in constant and any(g.role == "lengthscale" for g in gs)
    }
    clear, alternative = clearness(distances, live, subspaces, candidates, stationary)
    paths = tuple(
        PathSelection(
            path=p,
            precision=_mean_precision(gs, [deltas[index(g.name)] for g in gs]),
            squared_norm=sum(norms[index(g.name)] for g in gs),
            parameters=sum(g.size for g in gs),
            effective_parameters=sum(gammas[index(g.name)] for g in gs),
            relative=relative[p],
            removal=changes[p],
            alive=p in live,
            members=tuple(subspaces[p]),
            priors=tuple(g.name for g in gs),
            stationary=stationary.get(p),
        )
        for p, gs in members.items()
    )
    found = verdict(remaining(live, subspaces, stationary), candidates)
    return LayerSelection(name, paths, verdict_text(found), clear, alternative)


def _removal(
    evidence: Evidence,
    groups: Sequence[PriorGroup],
    data: tuple[Tensor, Tensor] | Batches | None,
    subset: int | None,
) -> float:
    names = [g.name for g in groups]
    if data is not None:
        return measured_removal(evidence, names, data, subset=subset)
    return removal(evidence, names)


def _mean_precision(groups: Sequence[PriorGroup], precisions: Sequence[float]) -> float:
    """The precision of the mean variance of a path's weights; its offset does not count."""
    weights = [
        (g.size, g.size / d) for g, d in zip(groups, precisions, strict=True) if g.role != "offset"
    ]
    variance = sum(v for _, v in weights)
    return sum(size for size, _ in weights) / variance if variance else math.inf


@dataclass(frozen=True)
class _StoredPath(PathSelection):
    normalised: float = 0.0


@dataclass(frozen=True)
class _StoredLayer:
    layer: str
    verdict: str
    clearness: float | None
    alternative: str | None
    probability: float | None
    paths: tuple[_StoredPath, ...]


@dataclass(frozen=True)
class _Stored:
    """What `as_dict` returns."""

    format: str
    version: int
    verdict: str
    rule: Rule
    candidates: Mapping[str, tuple[str, ...]]
    judgement: Mapping[str, Any] | None
    log_evidence: float | None
    n_data: int
    layers: tuple[_StoredLayer, ...]
