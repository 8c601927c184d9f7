"""Equivariance errors in the report: each under its layer and group, before beside after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from groupella.networks import Trunk
from groupella.report import LayerError, ReportContent, figures, layer_errors, page, paired

ERRORS = (
    LayerError("layers.0", "z2", 0.11, 0.012),
    LayerError("layers.0", "p4", 0.13, 0.014),
    LayerError("layers.1", "z2", 0.25, 3e-7),
    LayerError("layers.1", "p4", None, 0.28),
)


def test_the_table_of_the_page_has_every_error_in_its_place(
    content: ReportContent, read: Callable[[str], Any]
) -> None:
    parsed = read(page(replace(content, errors=ERRORS)))
    groups, whens, *rows = parsed.table("measured equivariance error")
    assert [row[0] for row in rows] == ["layer 1layers.0", "layer 2layers.1"]
    # A head over two columns names both.
    columns = zip([g for g in groups[1:] for _ in range(2)], whens[1:], strict=True)
    shown = dict(zip(columns, zip(*(row[1:] for row in rows), strict=True), strict=True))
    assert shown == {
        ("z2", "before"): ("0.11", "0.25"),
        ("z2", "after"): ("0.012", "3e-07"),
        ("p4", "before"): ("0.13", "–"),
        ("p4", "after"): ("0.014", "0.28"),
    }


def test_errors_that_were_measured_only_after_training_have_one_column_each(
    content: ReportContent, read: Callable[[str], Any]
) -> None:
    text = page(replace(content, errors=tuple(replace(e, before=None) for e in ERRORS)))
    head, *rows = read(text).table("measured equivariance error")
    assert head == ["layer", "z2", "p4"]
    assert [row[1:] for row in rows] == [["0.012", "0.014"], ["3e-07", "0.28"]]
    assert "before and after training" not in text


def test_layers_that_pool_are_marked_as_compared_up_to_a_shift(
    content: ReportContent, network: Trunk, read: Callable[[str], Any]
) -> None:
    found = layer_errors(network)
    errors = paired(found, found, network)
    assert all(e.up_to_translation for e in errors)
    assert [(e.layer, e.group) for e in errors] == list(found)
    one = [replace(e, up_to_translation=e.layer == "layers.1") for e in errors]
    text = page(replace(content, errors=tuple(one)))
    rows = read(text).table("measured equivariance error")[2:]
    assert [row[0] for row in rows] == ["layer 1layers.0", "layer 2ᵖlayers.1"]
    assert "up to one shift per sample" in text
    assert "up to one shift per sample" not in page(replace(content, errors=ERRORS))


def test_groups_that_were_not_measured_have_no_figure(content: ReportContent) -> None:
    missing = LayerError("layers.0", "p4", None, None)
    (only,) = figures(replace(content, errors=(*ERRORS[::2], missing)))["equivariance"].axes
    assert only.get_title() == "equivariance error, z2"
    assert "equivariance" not in figures(replace(content, errors=(missing,)))


def test_the_figure_draws_every_error_under_its_name(content: ReportContent) -> None:
    drawn = {}
    for axis in figures(replace(content, errors=ERRORS))["equivariance"].axes:
        for line in axis.get_lines():
            drawn[axis.get_title(), line.get_label()] = list(line.get_ydata())
    assert drawn == {
        ("equivariance error, z2", "before training"): pytest.approx([0.11, 0.25]),
        ("equivariance error, z2", "after training"): pytest.approx([0.012, 3e-7]),
        ("equivariance error, p4", "before training"): pytest.approx(
            [0.13, float("nan")], nan_ok=True
        ),
        ("equivariance error, p4", "after training"): pytest.approx([0.014, 0.28]),
    }
