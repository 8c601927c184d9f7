"""What the evidence selected: for each layer, how much every path is used and what it obeys.

For a path with precision δ, weights w, P parameters and the eigenvalues λ of its curvature,

| number    | meaning                                                                         |
| --------- | ------------------------------------------------------------------------------- |
| γ         | Σ λ/(λ + δ), its effective number of parameters                                 |
| γ/P       | normalised: between 0 (not used) and 1 (fully determined by the data)           |
| relative  | γ/P over the sum of γ/P in the layer                                            |
| removal   | change of log evidence when the path is removed; positive: better without it    |

A path is alive when removing it costs at least `nats`, and at least `nats_per_parameter` for each
of its effective parameters; by `rule="gamma"`, when its relative γ is at least `threshold`; by
"both", when both hold. The verdict on a layer is that of `_verdict.py`; its clearness is the
distance, in nats (or in decades of relative γ), of the nearest path that could change it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn

from groupella._files import write_text
from groupella.evidence import (
    Batches,
    Evidence,
    PathwayLayer,
    PriorGroup,
    measured_removal,
    pathway_layers,
    removal,
)

from ._verdict import clearness, decades_from, verdict, verdict_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

Rule = Literal["gamma", "evidence", "both"]
FORMAT = "groupella-selection"
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class PathSelection:
    """One path of one layer; `priors` names the prior groups that decide on it."""

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

    @property
    def normalised(self) -> float:
        return self.effective_parameters / max(self.parameters, 1)


@dataclass(frozen=True)
class LayerSelection:
    """One layer: its paths, the members it obeys, and how clear that is."""

    layer: str
    paths: tuple[PathSelection, ...]
    obeys: tuple[str, ...]
    clearness: float
    alternative: tuple[str, ...] | None

    @property
    def verdict(self) -> str:
        """The symmetry the layer obeys: a name, "p4 and flips", "none", or "not measured"."""
        return verdict_text(self.obeys) if self.paths else NOT_MEASURED

    @property
    def live(self) -> tuple[str, ...]:
        return tuple(p.path for p in self.paths if p.alive)


@dataclass(frozen=True)
class Selection:
    """The answer for a whole network. Prints as a table, saves as JSON, draws as a figure.

    `threshold` is in nats for the rule "evidence", else a share of relative γ; `nats` is what a
    path's removal must cost, whatever its size (0 for the rule "gamma").
    """

    layers: tuple[LayerSelection, ...]
    log_evidence: float
    n_data: int
    rule: Rule
    threshold: float
    nats_per_parameter: float = 0.0
    nats: float = 0.0

    @classmethod
    def unmeasured(cls, network: nn.Module, n_data: int, rule: Rule, threshold: float) -> Selection:
        """Of a network without curvature: all layers, none of their paths, no evidence (NaN)."""
        layers = (LayerSelection(name, (), (), math.inf, None) for name in pathway_layers(network))
        nats = threshold if rule == "evidence" else 0.0
        return cls(tuple(layers), math.nan, n_data, rule, threshold, nats=nats)

    @property
    def is_measured(self) -> bool:
        return any(s.paths for s in self.layers)

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

    def __getitem__(self, layer: str) -> LayerSelection:
        for found in self.layers:
            if found.layer == layer:
                return found
        raise KeyError(f"no layer {layer!r}; there are {', '.join(self.verdicts)}")

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and names for JSON."""
        return {
            "format": FORMAT,
            "version": 1,
            "rule": self.rule,
            "threshold": self.threshold,
            "nats_per_parameter": self.nats_per_parameter,
            "nats": self.nats,
            "log_evidence": None if math.isnan(self.log_evidence) else self.log_evidence,
            "n_data": self.n_data,
            "layers": [
                {
                    "layer": s.layer,
                    "verdict": s.verdict,
                    "obeys": list(s.obeys),
                    "clearness": s.clearness if math.isfinite(s.clearness) else None,
                    "alternative": None if s.alternative is None else list(s.alternative),
                    "paths": [{**asdict(p), "normalised": p.normalised} for p in s.paths],
                }
                for s in self.layers
            ],
        }

    def save(self, path: str | Path) -> Path:
        """Write as JSON, atomically."""
        return write_text(path, json.dumps(self.as_dict(), indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Selection:
        """Read what `save` wrote."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is truncated or is not JSON: {error}") from error
        try:
            return cls.from_dict(content)
        except ValueError as error:
            raise ValueError(f"{path} is not a selection: {error}") from error

    @classmethod
    def from_dict(cls, content: Any) -> Selection:
        """The inverse of `as_dict`."""
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"it lacks format={FORMAT!r}")
        return cls(
            layers=tuple(_layer_from(entry) for entry in content["layers"]),
            log_evidence=math.nan if content["log_evidence"] is None else content["log_evidence"],
            n_data=content["n_data"],
            rule=content["rule"],
            threshold=content["threshold"],
            nats_per_parameter=content.get("nats_per_parameter", 0.0),
            nats=content["nats"] if "nats" in content else _nats_before(content),
        )

    def table(self) -> Table:
        """A rich table, one row a path."""
        from ._selection_view import table

        return table(self)

    def figure(self) -> Figure:
        """Layers × paths, shaded by relative γ, with the verdicts beside them."""
        from ._selection_view import figure

        return figure(self)

    def __rich__(self) -> Table:
        return self.table()

    def __str__(self) -> str:
        from ._selection_view import text

        return text(self)


def selection(
    network: nn.Module,
    evidence: Evidence,
    data: tuple[Tensor, Tensor] | Batches | None = None,
    *,
    rule: Rule = "evidence",
    threshold: float = 0.01,
    nats: float = 5.0,
    nats_per_parameter: float = 0.5,
    subset: int | None = None,
) -> Selection:
    """What `evidence` says of each residual-pathway layer of `network`.

    The evidence must have seen curvature of the present weights (`collect`, `update` or `fit`).
    `removal` is the closed form within a path's own block; with `data` each path is really taken
    out instead: fit and curvature are measured without it, and the precisions of the rest are
    optimised anew.

    By default a path is alive when it is worth `nats`, which a path that is not needed reaches in
    three of ten thousand cases. `nats_per_parameter` guards against large ones: a free path with
    hundreds of effective parameters fits noise that is worth tens of nats, but less than half a nat
    each; a path that the data need is worth one or more each. `rule="gamma"` asks only for a share
    of `threshold` in the layer's effective parameters, as the paper's figures do; that is also what
    noise leaves to small paths that are not needed.
    """
    if rule not in ("gamma", "evidence", "both"):
        raise ValueError(f"rule must be 'gamma', 'evidence' or 'both', got {rule!r}")
    if not 0 < threshold < 1:
        raise ValueError(f"threshold is a share of the layer, between 0 and 1; got {threshold}")
    if evidence.network is not network:
        raise ValueError("the evidence belongs to another network")
    layers = pathway_layers(network)
    if not layers:
        raise ValueError("the network has no residual-pathway layers, so nothing to select")
    chosen = tuple(
        _select(name, module, evidence, data, rule, threshold, (nats, nats_per_parameter), subset)
        for name, module in layers.items()
    )
    return Selection(
        layers=chosen,
        log_evidence=float(evidence.log_marginal_likelihood().detach()),
        n_data=evidence.fit.n_data,
        rule=rule,
        threshold=nats if rule == "evidence" else threshold,
        nats_per_parameter=0.0 if rule == "gamma" else nats_per_parameter,
        nats=0.0 if rule == "gamma" else nats,
    )


def _select(
    name: str,
    module: PathwayLayer,
    evidence: Evidence,
    data: tuple[Tensor, Tensor] | Batches | None,
    rule: Rule,
    threshold: float,
    nats: tuple[float, float],
    subset: int | None,
) -> LayerSelection:
    subspaces: Mapping[str, tuple[str, ...]] = {p: module.subspaces[p] for p in module.paths}
    groups = getattr(module, "groups", None)
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
    least = {
        p: max(nats[0], nats[1] * sum(gammas[index(g.name)] for g in gs))
        for p, gs in members.items()
    }
    live = set(subspaces)
    if rule != "evidence":
        live &= {p for p, v in relative.items() if v >= threshold}
    if rule != "gamma":
        live &= {p for p, v in changes.items() if -v >= least[p]}
    if rule == "evidence":
        distances = {p: abs(-v - least[p]) for p, v in changes.items()}
    else:
        distances = {p: decades_from(threshold, v) for p, v in relative.items()}
    clear, alternative = clearness(distances, live, subspaces, groups)
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
        )
        for p, gs in members.items()
    )
    return LayerSelection(name, paths, verdict(live, subspaces, groups), clear, alternative)


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
    """The precision of the mean variance; that of the group when there is one."""
    variance = sum(g.size / d for g, d in zip(groups, precisions, strict=True))
    return sum(g.size for g in groups) / variance if variance else math.inf


def _nats_before(content: Mapping[str, Any]) -> float:
    """Of a file that was written before it had them."""
    return float(content["threshold"]) if content["rule"] == "evidence" else 0.0


def _layer_from(entry: Mapping[str, Any]) -> LayerSelection:
    paths = tuple(
        PathSelection(
            **{k: v for k, v in p.items() if k not in ("normalised", "members", "priors")},
            members=tuple(p["members"]),
            priors=tuple(p.get("priors", ())),
        )
        for p in entry["paths"]
    )
    alternative = entry["alternative"]
    return LayerSelection(
        layer=entry["layer"],
        paths=paths,
        obeys=tuple(entry["obeys"]),
        clearness=math.inf if entry["clearness"] is None else entry["clearness"],
        alternative=None if alternative is None else tuple(alternative),
    )
