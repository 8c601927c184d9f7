"""What training needs is known from shapes alone, for every path, before anything is made."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from groupella.data import ImageData
from groupella.networks import trunk
from groupella.runs import Job, estimate
from groupella.runs.estimate import costs
from groupella.runs.spelling import ArgumentError, group_set
from groupella.training import curvature_cost

BLOCKS = ((1, 2), (2, 1))


def images(side: int) -> ImageData:
    x = torch.zeros(1, 1, side, side).expand(4, 1, side, side)
    y = torch.tensor([0, 1, 0, 1])
    return ImageData(x, y, x[:0], y[:0], ("a", "b"), "made here", 0, (0.0,), (1.0,))


@pytest.mark.parametrize(
    ("groups", "paths"),
    [
        ("z2", "FC"),
        ("z2", "F-FC"),
        ("z2", "S-FC"),
        ("z2", "CONV"),
        ("z2", "S-CONV"),
        ("z2,p4", "GCONV"),
        ("z2,p4", "F-FC+CONV+GCONV"),
        ("z2,p4", "F-FC/group+CONV"),
        ("c4", "DENSE"),
        ("c4", "TIED"),
        ("z2,p4", None),
    ],
)
def test_the_estimate_is_that_of_the_network(groups: str, paths: str | None) -> None:
    members = group_set(groups)
    options = {"in_channels": 1, "blocks": BLOCKS, "increments": False}
    network = trunk(members, paths, 2, 4, 2, **options)
    found = costs(members, paths, (4, 4), 2, BLOCKS)
    weights = sum(
        p.numel()
        for layer in network.layers
        for part in (layer.paths, layer.offsets)
        for name, p in part.named_parameters()
        if "bias" not in name and (part is layer.paths or "FC" in name or "trivial" in name)
    )
    estimated = sum(cost.weights for cost in found)
    assert 0.8 * weights <= estimated <= weights
    if paths in ("FC", "F-FC", "CONV", "S-CONV", "S-FC"):
        entries = sum(n * rows * rows for cost in found for n, rows in cost.factors)
        measured = curvature_cost(network.layers).bytes / 4
        assert 0.8 * measured <= entries <= 1.01 * measured


@pytest.mark.parametrize(
    ("side", "paths", "part"),
    [(224, None, "F-FC in layer"), (64, "FC+CONV", "FC in layer"), (256, "S-FC", "S-FC in layer")],
)
def test_what_does_not_fit_is_refused_with_numbers_at_once(
    monkeypatch: pytest.MonkeyPatch, side: int, paths: str | None, part: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was made")

    monkeypatch.setattr(estimate, "memory_of_machine", lambda: 4 * 2**30)
    monkeypatch.setattr("groupella.networks.trunk", refuse)
    job = Job(title="", data="made here", groups="z2,p4", paths=paths, increments=paths is None)
    words = rf"needs at least [\d.,]+ GiB, and this machine has 4\.0 GiB: .*{part}.*--size"
    with pytest.raises(ArgumentError, match=words):
        job.network(images(side))


def test_what_fits_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "memory_of_machine", lambda: 4 * 2**30)
    job = Job(title="", data="made here", groups="z2,p4", paths="F-FC+CONV", increments=False)
    job._check_memory(images(32))
    by_map = replace(job, paths="FC", training={"method": "map"})
    by_map._check_memory(images(32))
