"""What a report says about a finished search or training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from groupella._versions import versions
from groupella.data import ImageData
from groupella.decide import Selection
from groupella.groups import GroupSet, meaning
from groupella.report import (
    Confusion,
    Example,
    HeldOutScore,
    ReportContent,
    filter_pictures,
    layer_errors,
    paired,
)
from groupella.training import Fit, outputs

EXAMPLES = 10


def describe(
    data: ImageData,
    groups: GroupSet,
    result: Fit,
    selection: Selection,
    *,
    title: str,
    settings: Mapping[str, Any],
    seed: int,
    before: Mapping[tuple[str, str], float] | None = None,
    held_out: tuple[Tensor, Tensor] | None = None,
) -> ReportContent:
    """Return the content of the report.

    Parameters
    ----------
    data, groups
        What was trained on, and the candidates.
    result, selection
        The trained network, and what was selected.
    title, settings, seed
        The heading, what the report lists as settings, and the random seed of measurements.
    before
        Equivariance errors before training, as from `groupella.report.layer_errors`.
    held_out
        Outputs for data that were held out, and their targets: what is confused with what where
        there are no test data.
    """
    last = result.history[-1]
    scores: dict[str, float] = {}
    if len(data.test_y):
        f = outputs(result.network, data.test_x)
        scores = data.targets.scores(f, data.test_y)
        held_out = (f, data.test_y)
    kind = data.targets.kind
    said = f"{data.targets.outputs} {'classes' if kind == 'classes' else f'targets ({kind})'}"
    return ReportContent(
        title=title,
        data=f"{data.name}, {said}",
        groups={m.name: meaning(m.name) for m in groups},
        selection=selection,
        history=result.history,
        errors=paired(before or {}, layer_errors(result.network, seed=seed), result.network),
        filters=filter_pictures(result.network),
        examples=_examples(data),
        held_out=HeldOutScore(
            last.validation_accuracy, last.validation_nll, len(data.test_y), scores
        ),
        confusion=None if held_out is None else _confusion(data, *held_out),
        settings={**settings, **_sizes(data)},
        versions=versions(),
        expected="none" if data.obeys == "trivial" else data.obeys,
        remarks=data.remarks,
    )


def _sizes(data: ImageData) -> dict[str, Any]:
    """Return the size of images, and the one that they had before; nothing of other data."""
    if len(data.lattice) != 2:
        return {}
    before = {} if data.size is None else {"images": list(data.size.images)}
    return {**before, "size": list(data.lattice)}


def _confusion(data: ImageData, f: Tensor, y: Tensor) -> Confusion | None:
    """Return which classes were taken for which; None where there are none."""
    if data.targets.kind != "classes":
        return None
    size = len(data.classes)
    counts = torch.bincount(y * size + f.argmax(1), minlength=size * size).view(size, size)
    on = f"{len(y):,} test data"
    if not len(data.test_y):
        on = f"{len(y):,} held-out data, by the network that was trained without them"
    return Confusion(tuple(map(str, data.classes)), tuple(map(tuple, counts.tolist())), on)


def _examples(data: ImageData) -> tuple[Example, ...]:
    """Return one training image of each of the first classes; none of other data."""
    if len(data.lattice) != 2 or data.targets.kind != "classes":
        return ()
    found: list[Example] = []
    for label, name in enumerate(data.classes):
        where = (data.train_y == label).nonzero().flatten()
        if len(where) and len(found) < EXAMPLES:
            pixels = data.pixels(data.train_x[where[0]]).double()
            picture = pixels[0] if len(pixels) != 3 else pixels.permute(1, 2, 0)
            found.append(Example(str(name), picture.numpy()))
    low = min((float(e.pixels.min()) for e in found), default=0.0)
    high = max((float(e.pixels.max()) for e in found), default=1.0)
    if low < -1e-6 or high > 1 + 1e-6:  # not from 0 to 1: the darkest becomes black
        span = max(high - low, 1e-12)
        found = [Example(e.label, (e.pixels - low) / span) for e in found]
    return tuple(Example(e.label, e.pixels.clip(0, 1)) for e in found)
