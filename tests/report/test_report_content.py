"""What a report says, and that it can be drawn again from its JSON."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from groupella.groups import GroupSet, trivial, z2
from groupella.networks import Trunk
from groupella.nn.layer import ResidualPathway
from groupella.report import (
    Content,
    figures,
    filter_pictures,
    layer_errors,
    markdown,
    page,
    save_figures,
    sentence,
    shares_table,
    write_report,
)


def test_network_obeys_what_every_layer_obeys(content: Content) -> None:
    chosen = content.selection
    assert chosen.verdict == "none"
    assert replace(chosen, layers=chosen.layers[:1]).verdict == "z2"


def test_sentence_names_layers_and_network(content: Content) -> None:
    chosen = content.selection
    assert sentence(chosen) == "The network obeys nothing: layer 1 obeys z2, layer 2 obeys nothing."
    one, other = chosen.layers
    many = replace(chosen, layers=(one, one, one, other))
    assert sentence(many).endswith(": layers 1 to 3 obey z2, layer 4 obeys nothing.")
    assert sentence(replace(chosen, layers=(one, one))) == "Every layer obeys z2."
    assert sentence(replace(chosen, layers=(other, other))) == "No layer obeys any of the groups."
    assert sentence(replace(chosen, layers=(one,))) == "The layer obeys z2."


def test_page_is_self_contained_and_escaped(content: Content) -> None:
    text = page(content)
    assert "Turned digits &lt;named&gt;" in text
    assert "<named>" not in text
    assert "<script" not in text
    assert re.findall(r'(?:src|href)="(?!data:image/png|#)[^"]*"', text) == []
    assert "url(" not in text
    assert "@import" not in text


def test_every_share_is_in_the_heat_map(content: Content) -> None:
    shares = re.findall(r"--share:([0-9.]+)", page(content))
    wanted = [p.relative for s in content.selection.layers for p in s.paths]
    assert [float(s) for s in shares] == pytest.approx(wanted, abs=6e-4)


def test_saved_content_gives_the_same_page(content: Content, tmp_path: Path) -> None:
    saved = content.save(tmp_path / "report.json")
    once = Content.load(saved)
    assert once.selection == content.selection
    assert once.history == content.history
    twice = Content.load(once.save(tmp_path / "again.json"))
    assert page(once) == page(twice)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "something else"}'])
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"report\.json"):
        Content.load(path)


def test_history_without_evidence_or_accuracy_still_gives_a_page(content: Content) -> None:
    bare = [
        replace(r, log_evidence=None, accuracy=None, validation_accuracy=None, precisions=None)
        for r in content.history
    ]
    history = type(content.history)(bare)
    assert "Negative log-likelihood" in page(replace(content, history=history))
    assert "Learned filters" not in page(replace(content, filters=(), errors=(), examples=()))


def test_figures_are_written_as_png_and_svg(content: Content, tmp_path: Path) -> None:
    names = {p.name for p in save_figures(content, tmp_path)}
    kinds = ("selection", "precisions", "curves", "equivariance", "filters")
    assert names == {f"{k}.{s}" for k in kinds for s in ("png", "svg")}
    for name in names:
        if name.endswith(".png"):
            with Image.open(tmp_path / name) as picture:
                assert min(picture.size) > 100
        else:
            assert "<svg" in (tmp_path / name).read_text()[:2000]


def test_the_figure_of_filters_shows_those_of_every_layer_and_path(content: Content) -> None:
    figure = figures(content)["filters"]
    shown = [axis for axis in figure.axes if axis.images]
    assert len(shown) == len(content.filters)
    first = content.filters[0].filters
    (image,) = shown[0].images
    values = np.ma.filled(np.ma.asarray(image.get_array()), np.nan)
    np.testing.assert_array_equal(values[:, : first.shape[2]], first[0])
    assert np.isnan(values[:, first.shape[2]]).all()


def test_large_matrices_that_are_stored_as_such_are_shown() -> None:
    groups = GroupSet(trivial(), z2())
    space = groups.space((40, 40), 1)
    layer = ResidualPathway(space, space, groups, "FC+CONV")
    (fc,) = (f for f in filter_pictures(layer) if f.path == "FC")
    (weight,) = (p for n, p in layer.named_parameters() if n.endswith("FC.weight"))
    rows = weight.detach().reshape(-1, 40, 40)
    largest = rows[rows.flatten(1).norm(dim=1).argmax()]
    np.testing.assert_allclose(fc.filters[0], largest.numpy(), rtol=1e-6)


def test_nothing_half_written_is_left(content: Content, tmp_path: Path) -> None:
    write_report(content, tmp_path / "deep" / "report.html")
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["report.html"]


def test_layer_errors_are_zero_exactly_for_strict_layers(network: Trunk) -> None:
    loose = layer_errors(network)
    assert set(loose) == {(f"layers.{i}", g) for i in range(2) for g in ("z2", "p4")}
    assert min(loose.values()) > 1e-3
    strict = layer_errors(network.strict("z2"))
    assert all(v < 1e-5 for (_, g), v in strict.items() if g == "z2")
    assert all(v > 1e-3 for (_, g), v in strict.items() if g == "p4")
    assert max(layer_errors(network.strict("p4")).values()) < 1e-5


def test_pictures_show_the_weights_of_each_path(network: Trunk) -> None:
    pictures = {(p.layer, p.path): p for p in filter_pictures(network, most=5)}
    assert set(pictures) == {(f"layers.{i}", p) for i in range(2) for p in ("trivial", "z2", "p4")}
    shown = pictures["layers.0", "p4"]
    assert shown.kind == "kernels"
    path = network.layers[0].paths["p4"]
    weight = path.filter().detach().double()
    largest = weight.flatten(0, 1).flatten(1).norm(dim=1).max()
    assert np.linalg.norm(shown.filters[0]) == pytest.approx(float(largest), rel=1e-5)
    turned = torch.rot90(torch.from_numpy(shown.filters[0]), 1, (0, 1))
    distances = (weight.flatten(0, 1) - turned).flatten(1).norm(dim=1)
    assert float(distances.min()) < 1e-5
    assert pictures["layers.0", "trivial"].kind == "maps"
    assert pictures["layers.0", "trivial"].filters.shape == (5, 8, 8)


def test_shares_fit_a_narrow_terminal(content: Content) -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(shares_table(content.selection))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "97.0 %" in text
    assert "(0.1 %)" in text
    assert "…" not in text


def test_markdown_table_has_a_cell_for_each_column() -> None:
    assert markdown(["a", "b"], [[1, None]]).splitlines()[2] == "| 1 | – |"
    with pytest.raises(ValueError, match="2 columns"):
        markdown(["a", "b"], [[1]])


def test_what_is_not_a_whole_report_is_named(content: Content, tmp_path: Path) -> None:
    file = content.save(tmp_path / "report.json")
    whole = json.loads(file.read_text(encoding="utf-8"))
    assert Content.load(file).selection == content.selection
    for damaged, message in (
        ({"format": whole["format"]}, "is not a whole report: it lacks 'title'"),
        ({**whole, "outcome": {"accuracy": 1.0, "colour": "red"}}, "is not a whole report"),
        ([], "is not a report"),
    ):
        file.write_text(json.dumps(damaged), encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            Content.load(file)
