"""What a report says about a finished search or training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupella._versions import versions
from groupella.data import ImageData
from groupella.decide import Selection
from groupella.groups import GroupSet, meaning
from groupella.report import (
    Example,
    HeldOutScore,
    ReportContent,
    filter_pictures,
    layer_errors,
    paired,
)
from groupella.training import Fit

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
    """
    last = result.history[-1]
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
        held_out=HeldOutScore(last.validation_accuracy, last.validation_nll, len(data.test_y)),
        settings=settings,
        versions=versions(),
        expected="none" if data.obeys == "trivial" else data.obeys,
        remarks=data.remarks,
    )


def _examples(data: ImageData) -> tuple[Example, ...]:
    """Return one training image of each of the first classes; none of other data."""
    if len(data.lattice) != 2 or data.targets.kind != "classes":
        return ()
    found: list[Example] = []
    for label, name in enumerate(data.classes):
        where = (data.train_y == label).nonzero().flatten()
        if len(where) and len(found) < EXAMPLES:
            pixels = data.pixels(data.train_x[where[0]]).clamp(0, 1).double()
            picture = pixels[0] if len(pixels) != 3 else pixels.permute(1, 2, 0)
            found.append(Example(str(name), picture.numpy()))
    return tuple(found)
