"""The networks of the paper's tables, by name.

Every row of van der Ouderaa, Immer and van der Wilk (NeurIPS 2023) that names an architecture:
the toy problem, CIFAR-10, the choice among several groups, and the factorisations of roto-
translation convolutions. `published` is the count of the authors' code, parameter by parameter;
`printed` is what the table shows. A preset builds with the biases of that code, inside the paths;
`preset(name, paper_biases=False)` has one bias per layer instead, invariant under every group of
the set.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import nn

from groupella.groups import GroupSet, p4, z2

from ._trunk import Trunk, trunk


@dataclass(frozen=True)
class Preset:
    """One row of a table: what to build, and how many parameters the authors report."""

    name: str
    groups: GroupSet
    paths: str
    printed: str
    published: int | None = None
    alpha: int = 10
    in_channels: int = 3
    classes: int = 10
    prior: Literal["weights", "anchors", "lengthscales"] = "weights"

    def build(self, **options: Any) -> Trunk:
        """The network, on 32×32 images; options override those of the preset, see `trunk`."""
        settings: dict[str, Any] = {
            "alpha": self.alpha,
            "in_channels": self.in_channels,
            "classes": self.classes,
            "paper_biases": True,
            "offsets": False,
            "init": "balanced",
            "increments": False,
        }
        return trunk(self.groups, self.paths, **{**settings, **options})

    def count(self, *, paper_biases: bool) -> int:
        """Its weights and biases, counted without allocating them."""
        return _count(self, paper_biases)


@lru_cache(maxsize=128)
def _count(row: Preset, paper_biases: bool) -> int:
    with torch.device("meta"):
        return count_parameters(row.build(paper_biases=paper_biases), weights_only=True)


def preset(name: str, **options: Any) -> Trunk:
    """A network of the paper's tables.

    Parameters
    ----------
    name
        One of `PRESETS`, such as "cifar10/F-FC+CONV".
    **options
        Override the preset; see `trunk`.

    Raises
    ------
    ValueError
        If there is no preset of that name.
    """
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1, cutoff=0.0)
        raise ValueError(
            f"no preset is named {name!r}; did you mean {near[0]!r}? "
            "`python -m groupella.networks` lists them all"
        )
    return PRESETS[name].build(**options)


def count_parameters(module: nn.Module, *, weights_only: bool = False) -> int:
    """The number of entries of all parameters.

    Parameters
    ----------
    module
        Any module.
    weights_only
        Leave out lengthscales ω and anchor positions, which the paper does not count.
    """
    return sum(
        parameter.numel()
        for name, parameter in module.named_parameters()
        if not (weights_only and name.rpartition(".")[2].startswith(("omega", "positions")))
    )


def _presets() -> Mapping[str, Preset]:
    translations, both, rotations = GroupSet(z2()), GroupSet(z2(), p4()), GroupSet(p4())
    rows: list[Preset] = []

    def add(name: str, groups: GroupSet, paths: str, *columns: Any, **options: Any) -> None:
        rows.append(Preset(name, groups, paths, *columns, **options))

    for task, classes, counts in (
        ("toy-digit", 10, (112_664_170, 338_590, 1_730_805)),
        ("toy-quadrant", 40, (112_683_400, 357_820, 1_750_035)),
    ):
        options = {"in_channels": 1, "classes": classes}
        for paths, printed, count in zip(
            ("FC", "CONV", "F-FC+CONV"), ("112.7 M", "0.4 M", "1.8 M"), counts, strict=True
        ):
            add(f"{task}/{paths}", translations, paths, printed, count, **options)
    for paths, printed, count in (
        ("FC", "133.6 M", 133_635_690),
        ("CONV", "0.3 M", 338_770),
        ("FC+CONV", "133.9 M", 133_865_010),
        ("F-FC", "1.5 M", 1_542_625),
        ("F-FC+CONV", "1.8 M", 1_771_945),
    ):
        add(f"cifar10/{paths}", translations, paths, printed, count)
    for paths, printed, count in (
        ("S-FC", "0.8 M", 831_820),
        ("S-CONV", "0.2 M", 237_050),
        ("S-FC+S-CONV", "1.0 M", 959_420),
    ):
        for name, prior in ((paths, "anchors"), (f"{paths}:lengthscales", "lengthscales")):
            add(f"cifar10/{name}", translations, paths, printed, count, prior=prior)
    several = "F-FC+CONV+GCONV/pointwise"
    for data in ("mnist", "translated-mnist", "rotated-mnist"):
        add(f"groups/{data}", both, several, "1.2 M", None, alpha=2, in_channels=1)
    for data in ("cifar10", "rotated-cifar10"):
        add(f"groups/{data}", both, several, "1.2 M", 1_237_527, alpha=2)
    for kind, paths, alpha, printed, count in (
        ("full", "GCONV", 10, "1025380", 1_025_380),
        ("separable", "GCONV/separable", 10, "214550", 214_550),
        ("depthwise-separable", "GCONV/depthwise", 10, "139735", 139_725),
        ("full-matched", "GCONV", 6, "371200", 371_200),
        ("separable-matched", "GCONV/separable", 13, "358463", 358_463),
        ("depthwise-separable-matched", "GCONV/depthwise", 16, "346215", 346_215),
        ("pointwise", "GCONV/pointwise", 10, "338770", 338_770),
    ):
        add(f"rotation/{kind}", rotations, paths, printed, count, alpha=alpha)
    add("rotation/classical", translations, "CONV", "338770", 338_770)
    return MappingProxyType({row.name: row for row in rows})


PRESETS: Mapping[str, Preset] = _presets()
