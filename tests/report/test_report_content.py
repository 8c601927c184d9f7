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

from groupella.decide.claims import Consequence
from groupella.groups import GroupSet, trivial, z2
from groupella.networks import Trunk
from groupella.nn.layer import ResidualPathway
from groupella.report import (
    ReportContent,
    ReportTable,
    consequences_table,
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


def test_network_obeys_what_every_layer_obeys(content: ReportContent) -> None:
    chosen = content.selection
    assert chosen.verdict == "none"
    assert replace(chosen, layers=chosen.layers[:1]).verdict == "z2"


def test_sentence_names_layers_and_network(content: ReportContent) -> None:
    chosen = content.selection
    assert sentence(chosen) == "The network obeys nothing: layer 1 obeys z2, layer 2 obeys nothing."
    one, other = chosen.layers
    many = replace(chosen, layers=(one, one, one, other))
    assert sentence(many).endswith(": layers 1 to 3 obey z2, layer 4 obeys nothing.")
    assert sentence(replace(chosen, layers=(one, one))) == "Every layer obeys z2."
    assert sentence(replace(chosen, layers=(other, other))) == "No layer obeys any of the groups."
    assert sentence(replace(chosen, layers=(one,))) == "The layer obeys z2."
    dead = replace(one, verdict="undecided")
    assert sentence(replace(chosen, layers=(dead, dead))).startswith("Undecided: no path")
    assert "layer 1 is undecided, layer 2 obeys z2" in sentence(replace(chosen, layers=(dead, one)))


def test_page_is_self_contained_and_escaped(content: ReportContent) -> None:
    text = page(content)
    assert "Turned digits &lt;named&gt;" in text
    assert "<named>" not in text
    assert "<script" not in text
    assert re.findall(r'(?:src|href)="(?!data:image/png|#)[^"]*"', text) == []
    assert "url(" not in text
    assert "@import" not in text


def test_every_share_is_in_the_heat_map(content: ReportContent) -> None:
    shares = re.findall(r"--share:([0-9.]+)", page(content))
    wanted = [p.relative for s in content.selection.layers for p in s.paths]
    assert sorted(map(float, shares)) == pytest.approx(sorted(wanted), abs=6e-4)


def test_saved_content_gives_the_same_page(content: ReportContent, tmp_path: Path) -> None:
    content = replace(
        content,
        consequences=(Consequence("p4", -300.0, 0.95, note="best"), Consequence("chance")),
        tables=(ReportTable("Confidence", ("layer", "confidence"), (("1", None),)),),
    )
    saved = content.save(tmp_path / "report.json")
    once = ReportContent.load(saved)
    assert once.selection == content.selection
    assert once.history == content.history
    assert once.consequences == content.consequences
    assert once.tables == content.tables
    twice = ReportContent.load(once.save(tmp_path / "again.json"))
    assert page(once) == page(twice)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "something else"}'])
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"report\.json"):
        ReportContent.load(path)


def test_history_without_evidence_or_accuracy_still_gives_a_page(content: ReportContent) -> None:
    bare = [
        replace(r, log_evidence=None, accuracy=None, validation_accuracy=None, precisions=None)
        for r in content.history
    ]
    history = type(content.history)(bare)
    assert "Negative log-likelihood" in page(replace(content, history=history))
    assert "Learned filters" not in page(replace(content, filters=(), errors=(), examples=()))


def test_figures_are_written_as_png_and_svg(content: ReportContent, tmp_path: Path) -> None:
    names = {p.name for p in save_figures(content, tmp_path)}
    kinds = ("selection", "precisions", "curves", "equivariance", "filters")
    assert names == {f"{k}.{s}" for k in kinds for s in ("png", "svg")}
    for name in names:
        if name.endswith(".png"):
            with Image.open(tmp_path / name) as picture:
                assert min(picture.size) > 100
        else:
            assert "<svg" in (tmp_path / name).read_text()[:2000]


def test_the_figure_of_filters_shows_those_of_every_layer_and_path(content: ReportContent) -> None:
    figure = figures(content)["filters"]
    shown = [axis for axis in figure.axes if axis.images]
    assert len(shown) == len(content.filters)
    first = content.filters[0].filters
    (image,) = shown[0].images
    pixels = np.asarray(image.get_array(), float)
    # No path of that kind is alive, so that all paths of the layer share the scale.
    scale = max(np.abs(f.filters).max() for f in content.filters if f.layer == "layers.0")
    strength = scale * pixels[..., 3] / 255
    width = first.shape[2]
    np.testing.assert_allclose(strength[:, :width], np.abs(first[0]), rtol=0, atol=scale / 500)
    reddish = pixels[:, :width, 0] > pixels[:, :width, 2]
    np.testing.assert_array_equal(reddish, first[0] >= 0)
    assert (strength[:, width] == 0).all()


def test_large_matrices_that_are_stored_as_such_are_shown() -> None:
    groups = GroupSet(trivial(), z2())
    space = groups.space((40, 40), 1)
    layer = ResidualPathway(space, space, groups, "FC+CONV")
    (fc,) = (f for f in filter_pictures(layer) if f.path == "FC")
    (weight,) = (p for n, p in layer.named_parameters() if n.endswith("FC.weight"))
    rows = weight.detach().reshape(-1, 40, 40)
    largest = rows[rows.flatten(1).norm(dim=1).argmax()]
    np.testing.assert_allclose(fc.filters[0], largest.numpy(), rtol=1e-6)


def test_nothing_half_written_is_left(content: ReportContent, tmp_path: Path) -> None:
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


def test_shares_fit_a_narrow_terminal(content: ReportContent) -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(shares_table(content.selection))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "97.0 %" in text
    assert "(0.1 %)" in text
    assert "…" not in text


def test_nothing_in_a_cell_of_markdown_ends_its_row_or_column() -> None:
    lines = markdown(["a\nb", "c|d"], [["one\r\ntwo\n\n| x | y |", "\u2028"]]).splitlines()
    assert lines[0] == r"| a b | c\|d |"
    assert lines[2] == r"| one two \| x \| y \| |  |"
    assert len(lines) == 3


def test_markdown_table_has_a_cell_for_each_column() -> None:
    assert markdown(["a", "b"], [[1, None]]).splitlines()[2] == "| 1 | – |"
    with pytest.raises(ValueError, match="2 columns"):
        markdown(["a", "b"], [[1]])


def test_what_is_not_a_complete_report_is_named(content: ReportContent, tmp_path: Path) -> None:
    file = content.save(tmp_path / "report.json")
    whole = json.loads(file.read_text(encoding="utf-8"))
    assert ReportContent.load(file).selection == content.selection
    for damaged, message in (
        ({"format": whole["format"]}, "has format version None; this groupella reads version 2"),
        ({"format": whole["format"], "version": 2}, "is not a complete report: it lacks 'title'"),
        ({**whole, "held_out": {"accuracy": 1.0, "colour": "red"}}, "is not a complete report"),
        ([], "is not a report"),
    ):
        file.write_text(json.dumps(damaged), encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            ReportContent.load(file)


def test_a_table_has_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match="'Confidence' has 1 cells for 2 columns"):
        ReportTable("Confidence", ("layer", "confidence"), (("1",),))


def test_consequences_fit_a_narrow_terminal_and_lose_no_character() -> None:
    rows = [
        Consequence("p4[x]", -300.0, 0.951, 0.21, 3e-7, 1_000_000),
        Consequence("chance", accuracy=0.1),
    ]
    console = Console(file=io.StringIO(), width=80)
    console.print(consequences_table(rows))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for words in ("p4[x]", "−300.0", "95.1%", "0.210", "3e-07", "1,000,000", "chance", "10.0%"):
        assert words in text
    assert "…" not in text
    assert "note" not in text
