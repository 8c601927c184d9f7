"""The page, as a reader sees it: tables by their cells, curves by their axes, pictures by pixels.

Nothing here is compared with what the code that draws it computed: values of curves are read off
the labels of the axes, colours off decoded images.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from PIL import Image

from groupella.decide import Rule
from groupella.decide.claims import Consequence
from groupella.report import (
    FilterPicture,
    ReportContent,
    ReportTable,
    figures,
    page,
    sentence,
)
from groupella.training import History

Read = Callable[[str], Any]
SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
ORANGE, BLUE = (214, 94, 0), (0, 114, 178)


def chart(parsed: Any, label: str) -> Any:
    (found,) = (n for n in parsed.all("svg") if n.attributes.get("aria-label") == label)
    return found


def number(text: str) -> float:
    """A label of an axis: 0.5, −2, 1,000 or 10⁴."""
    if re.fullmatch("10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+", text):
        return 10.0 ** int(text[2:].translate(SUPERSCRIPTS))
    return float(text.replace("−", "-").replace(",", ""))


def curve(found: Any, name: str, log: bool = False) -> list[tuple[float, float]]:
    """The points of a curve in the units of the labels beside the axes."""
    ups, acrosses = [], []
    for tick in found.all("g"):
        # A tick is a group of a grid line, an invisible mark and a label.
        if [len(tick.all(t)) for t in ("g", "path", "text")] != [3, 1, 1]:
            continue
        corners = numbers(tick.all("path")[0])
        if len(corners) != 2:
            continue  # an entry of the legend
        (x, y), (x_end, _) = corners
        value = number(tick.all("text")[0].text)
        if x == x_end:
            acrosses.append((x, value))
        else:
            ups.append((y, np.log10(value) if log else value))
    (line,) = named(found, name)
    up = np.polyfit(*np.transpose(ups), 1)
    across = np.polyfit(*np.transpose(acrosses), 1)
    values = [(np.polyval(across, x), np.polyval(up, y)) for x, y in numbers(line.all("path")[0])]
    return [(x, 10**y if log else y) for x, y in values]


def named(found: Any, name: str) -> list[Any]:
    """The groups of a chart with that tooltip."""
    firsts = ((group, group.children[0]) for group in found.all("g") if group.children)
    return [g for g, first in firsts if not isinstance(first, str) and first.text == name]


def numbers(path: Any) -> list[tuple[float, float]]:
    """The corners of a path."""
    found = [float(v) for v in re.findall(r"-?[0-9.]+", path.attributes["d"])]
    return list(zip(found[::2], found[1::2], strict=True))


def pixels(node: Any) -> Any:
    """What an image element shows."""
    kind, _, data = node.attributes["src"].partition(",")
    assert kind == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def on_white(image: Any) -> Any:
    """The colours of an image of a figure, which is printed on white."""
    rgba = np.asarray(image.to_rgba(image.get_array()))
    return 255 * (rgba[..., :3] * rgba[..., 3:] + 1 - rgba[..., 3:])


def test_headings_go_down_one_step_at_a_time(content: ReportContent, read: Read) -> None:
    for text in (page(content), page([content, content])):
        levels = [int(n.tag[1]) for n in read(text).all("h1", "h2", "h3", "h4")]
        assert levels[0] == 1
        assert all(b <= a + 1 for a, b in pairwise(levels))


def test_the_verdict_comes_first_then_what_groups_mean_and_what_to_beware_of(
    content: ReportContent, read: Read
) -> None:
    text = read(page(content)).all("main")[0].text
    wanted = [
        "Turned digits <named>",
        "The network obeys nothing: layer 1 obeys z2, layer 2 obeys nothing.",
        "none no symmetry at all; z2 shifts; p4 shifts and quarter turns.",
        "test accuracy95.1 %",
        "labels obey, by constructionz2",
        "a 0 is nearly its own half turn",
        "What each layer uses",
    ]
    places = [text.index(words) for words in wanted]
    assert places == sorted(places)


def test_many_layers_are_counted_instead_of_listed(content: ReportContent) -> None:
    one, other = content.selection.layers
    many = replace(content.selection, layers=(one, other) * 25)
    assert sentence(many) == "The network obeys nothing: 25 layers obey z2, 25 layers obey nothing."
    some = replace(content.selection, layers=(one, other) * 2)
    assert sentence(some).endswith(
        "layer 1 obeys z2, layer 2 obeys nothing, layer 3 obeys z2, layer 4 obeys nothing."
    )


def test_the_heat_map_has_every_share_in_its_place_and_dead_ones_in_brackets(
    content: ReportContent, read: Read
) -> None:
    head, *rows = read(page(content)).table("what each layer uses")
    assert head == ["layer", "obeys", "p4", "none", "z2", "how clear"]  # the most used first
    assert [row[0] for row in rows] == ["layer 1layers.0", "layer 2layers.1"]
    assert [row[1] for row in rows] == ["z2", "none"]
    assert rows[0][2:5] == ["97 %", "(< 0.1 %)", "2.9 %"]
    assert rows[1][2:5] == ["60 %", "40 %", "(0 %)"]


def test_a_layer_without_a_live_path_says_so(content: ReportContent, read: Read) -> None:
    first, second = content.selection.layers
    dead = replace(first, paths=tuple(replace(p, alive=False) for p in first.paths))
    chosen = replace(content.selection, layers=(dead, second))
    _, *rows = read(page(replace(content, selection=chosen))).table("what each layer uses")
    assert rows[0][-1].startswith("uses no path")
    assert "uses no path" not in rows[1][-1]


def test_curves_show_training_and_test_where_they_were(content: ReportContent, read: Read) -> None:
    parsed = read(page(content))
    history = list(content.history)
    for label, wanted in {
        "Accuracy, %": {
            "training": [100 * r.accuracy for r in history],
            "test": [100 * r.validation_accuracy for r in history],
        },
        "Negative log-likelihood": {
            "training": [r.nll for r in history],
            "test": [r.validation_nll for r in history],
        },
    }.items():
        for name, values in wanted.items():
            points = curve(chart(parsed, label), name)
            assert [x for x, _ in points] == pytest.approx(range(1, len(values) + 1), abs=0.05)
            assert [y for _, y in points] == pytest.approx(values, abs=0.01 * max(values))
    evidence = curve(chart(parsed, "Log evidence, nats per example"), "training")
    assert [x for x, _ in evidence] == pytest.approx(range(3, 13), abs=0.05)
    assert evidence[-1][1] == pytest.approx(history[-1].log_evidence / 300, abs=0.01)


def test_precisions_are_drawn_by_layer_and_path(content: ReportContent, read: Read) -> None:
    parsed = read(page(content))
    for i, verdict in enumerate(("z2", "none")):
        for path, name in (("p4", "p4"), ("trivial", "none")):
            points = curve(
                chart(parsed, f"prior precision δ, layer {i + 1}: {verdict}"), name, log=True
            )
            wanted = [r.precisions[f"layers.{i}/{path}"] for r in content.history]
            assert [y for _, y in points] == pytest.approx(wanted, rel=0.05)


def _with_z2_taken_out(content: ReportContent) -> ReportContent:
    """After the eighth epoch, as pruning does: the precision goes to the bound and stays there."""
    records = [
        replace(
            r,
            precisions={
                k: 1e12 if k == "layers.0/z2" and r.epoch >= 7 else 2.0 + r.epoch
                for k in r.precisions
            },
            taken_out=("layers.0/z2",) if r.epoch == 7 else (),
            remarks=("epoch 7: took out layers.0/z2",) if r.epoch == 7 else (),
        )
        for r in content.history
    ]
    return replace(content, history=History(records))


def test_a_path_that_was_taken_out_ends_in_a_cross_and_leaves_room_for_others(
    content: ReportContent, read: Read
) -> None:
    parsed = read(page(_with_z2_taken_out(content)))
    found = chart(parsed, "prior precision δ, layer 1: z2")
    points = curve(found, "z2", log=True)
    assert [x for x, _ in points] == pytest.approx(range(1, 8), abs=0.05)
    (cross,) = named(found, "z2: removed after epoch 8")
    (mark,) = cross.all("use")
    (z2,) = named(found, "z2")
    end = numbers(z2.all("path")[0])[-1]
    assert (float(mark.attributes["x"]), float(mark.attributes["y"])) == pytest.approx(end)
    assert chart(parsed, "prior precision δ, layer 2: none").all("use") == []
    heights = [y for _, y in curve(found, "p4", log=True)]
    assert heights == pytest.approx([2.0 + e for e in range(12)], rel=0.05)
    (drawn,) = named(found, "p4")
    ys = [y for _, y in numbers(drawn.all("path")[0])]
    assert max(ys) - min(ys) > 40, "live curves lie in a small part of the chart"
    assert "took out layers.0/z2" in parsed.text


def test_the_figure_of_precisions_ends_where_a_path_was_taken_out(content: ReportContent) -> None:
    first = figures(_with_z2_taken_out(content))["precisions"].axes[0]
    lines = {line.get_label(): np.asarray(line.get_ydata(), float) for line in first.get_lines()}
    assert np.isnan(lines["z2"][7:]).all()
    assert np.isfinite(lines["z2"][:7]).all()
    assert first.get_ylim()[1] < 100


def test_precisions_are_those_of_the_priors_that_decide(content: ReportContent, read: Read) -> None:
    layers = tuple(
        replace(
            layer,
            paths=tuple(
                replace(p, priors=(f"{layer.layer}/{p.path}/lengthscale",)) for p in layer.paths
            ),
        )
        for layer in content.selection.layers
    )
    records = [
        replace(
            r,
            precisions={
                **dict.fromkeys(r.precisions, 1.0),
                **{f"{k}/lengthscale": v for k, v in r.precisions.items()},
            },
        )
        for r in content.history
    ]
    chosen = replace(content.selection, layers=layers)
    changed = replace(content, selection=chosen, history=History(records))
    points = curve(chart(read(page(changed)), "prior precision δ, layer 1: z2"), "none", log=True)
    wanted = [r.precisions["layers.0/trivial"] for r in content.history]
    assert [y for _, y in points] == pytest.approx(wanted, rel=0.05)


def test_fixed_precisions_are_not_shown_as_if_they_were_learned(
    content: ReportContent, read: Read
) -> None:
    records = [replace(r, precisions=dict.fromkeys(r.precisions, 1.0)) for r in content.history]
    settings = {**content.settings, "method": "map"}
    text = page(replace(content, history=History(records), settings=settings))
    assert "kept their initial values" in text
    assert "prior precision δ, layer" not in text
    assert "trained byMAP, fixed precisions" in read(text).text
    assert "kept their initial values" not in page(content)


def test_figures_show_only_what_was_recorded(content: ReportContent) -> None:
    bare = [
        replace(r, log_evidence=None, accuracy=None, validation_accuracy=None)
        for r in content.history
    ]
    (only,) = figures(replace(content, history=History(bare)))["curves"].axes
    assert only.get_title() == "Negative log-likelihood"
    assert {line.get_label() for line in only.get_lines()} == {"training", "test"}
    assert len(figures(content)["curves"].axes) == 3


def test_filters_have_one_colour_for_each_sign_and_are_left_out_where_they_would_be_blank(
    content: ReportContent, read: Read
) -> None:
    values = np.array([[[1.0, -1.0, 0.0], [0.5, 0.0, 0.0]]])
    pictures = (
        FilterPicture("layers.0", "p4", "kernels", values),
        FilterPicture("layers.0", "trivial", "kernels", 0 * values),
    )
    changed = replace(content, filters=pictures)
    images = read(page(changed)).all("img")
    (live,) = (n for n in images if n.attributes["alt"].startswith("filter"))
    assert live.attributes["alt"] == "filter 1 of p4"
    shown = pixels(live)
    assert tuple(shown[0, 0]) == (*ORANGE, 255)
    assert tuple(shown[0, 1]) == (*BLUE, 255)
    assert shown[0, 2, 3] == 0
    assert shown[1, 0, 3] in (127, 128)
    assert "none (dead), largest weight 0: too small to see" in read(page(changed)).text

    (drawn,) = (a.images[0] for a in figures(changed)["filters"].axes if a.images)
    colours = on_white(drawn)
    assert colours[0, 0] == pytest.approx(ORANGE, abs=1.5)
    assert colours[0, 1] == pytest.approx(BLUE, abs=1.5)
    assert colours[0, 2] == pytest.approx((255, 255, 255), abs=1.5)


def test_examples_are_shown_with_their_labels(content: ReportContent, read: Read) -> None:
    parsed = read(page(content))
    shown = [n for n in parsed.all("figure") if n.all("figcaption")]
    assert [n.text for n in shown] == [e.label for e in content.examples]
    for node, example in zip(shown, content.examples, strict=True):
        (picture,) = node.all("img")
        assert picture.attributes["alt"] == example.label
        assert pixels(picture) / 255 == pytest.approx(example.pixels, abs=0.003)


def test_all_numbers_settings_and_versions_are_there(content: ReportContent, read: Read) -> None:
    parsed = read(page(content))
    head, *rows = parsed.table("all numbers")
    assert len(rows) == 6
    first = dict(zip(head, rows[0], strict=True))
    assert first["layer"] == "layer 1layers.0"
    assert (first["path"], first["state"], first["parameters P"]) == ("p4", "alive", "100")
    assert (first["effective parameters γ"], first["γ/P"], first["share"]) == (
        "48.5",
        "0.48",
        "97 %",
    )
    assert first["log evidence if removed, nats"] == "−97.0"
    (listed,) = parsed.all("dl")
    entries = dict(zip(*([n.text for n in listed.all(t)] for t in ("dt", "dd")), strict=True))
    assert entries == {
        "epochs": "12",
        "seed": "0",
        "paths": "None",
        "blocks": "1, 2, 2, 2",
        "version of groupella": "0.1.0",
    }


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("gamma", "A path is alive if it has at least 1 % of the layer"),
        ("evidence", "A path is alive if removing it costs at least 5 nats of log evidence."),
        ("both", "costs at least 5 nats of log evidence and it has at least 1 % of"),
    ],
)
def test_the_rule_is_told(content: ReportContent, rule: Any, words: str) -> None:
    chosen = replace(content.selection, rule=Rule(rule))
    assert words in page(replace(content, selection=chosen))


def test_nothing_in_a_report_is_taken_for_markup(content: ReportContent, read: Read) -> None:
    """A report.json may come from somebody else."""
    evil = '"><script>alert(1)</script><b class="'
    layer, other = content.selection.layers
    paths = tuple(replace(p, path=evil + p.path, priors=(evil,)) for p in layer.paths)
    chosen = replace(layer, layer=evil, paths=paths, verdict=evil)
    changed = replace(
        content,
        title=evil,
        data=evil,
        groups={evil: f"{evil} described"},
        selection=replace(content.selection, layers=(chosen, other)),
        history=History(
            [replace(r, precisions={evil: 1.0 + r.epoch}, remarks=(evil,)) for r in content.history]
        ),
        errors=tuple(replace(e, layer=evil, group=evil) for e in content.errors),
        filters=(FilterPicture(evil, evil, evil, np.ones((1, 3, 3))),),
        examples=tuple(replace(e, label=evil) for e in content.examples),
        consequences=(Consequence(evil, note=evil),),
        tables=(ReportTable(evil, (evil,), ((evil,),), evil),),
        settings={evil: evil},
        versions={evil: evil},
        expected=evil,
        remarks=(evil,),
    )
    for text in (page(changed), page([changed, content], evil)):
        assert "<script" not in text
        assert read(text).all("script") == []
        assert text.count("&lt;script&gt;") > 30
    tags = {node.tag for node in read(page(content)).all()}
    assert {node.tag for node in read(page(changed)).all()} <= tags


def test_consequences_and_further_tables_are_sections_of_the_page(
    content: ReportContent, read: Read
) -> None:
    rows = (
        Consequence("p4", -300.25, 0.951, 0.21, 3e-7, 1000, "the strictest that costs nothing"),
        Consequence("trivial", -400.0, 0.9, 0.3, 0.412, 52_000),
        Consequence("chance", accuracy=0.1),
    )
    more = ReportTable("Confidence", ("layer", "confidence"), (("layer 1", "0.99"), ("2", None)))
    parsed = read(page(replace(content, consequences=rows, tables=(more,))))
    assert parsed.table("each group imposed on the whole network") == [
        ["group", "accuracy", "NLL", "parameters", "equivariance error", "log evidence", "note"],
        ["p4", "95.1%", "0.210", "1,000", "3e-07", "−300.2", "the strictest that costs nothing"],
        ["none", "90.0%", "0.300", "52,000", "0.41", "−400.0", ""],
        ["chance", "10.0%", "–", "–", "–", "–", ""],
    ]
    assert parsed.table("confidence") == [["layer", "confidence"], ["layer 1", "0.99"], ["2", "–"]]
    titles = {"Each group imposed on the whole network", "Confidence"}
    assert titles <= {heading.text for heading in parsed.all("h3")}
    assert not titles & {heading.text for heading in read(page(content)).all("h3")}
    bare = read(page(replace(content, consequences=(Consequence("p4", accuracy=0.5),))))
    assert bare.table("each group imposed on the whole network")[0] == ["group", "accuracy"]


def test_page_and_file_show_the_same_curves(content: ReportContent, read: Read) -> None:
    parsed = read(page(content))
    for axis in figures(content)["curves"].axes:
        for line in axis.get_lines():
            points = curve(chart(parsed, axis.get_title()), line.get_label())
            xs, ys = line.get_data()
            there = np.isfinite(np.asarray(ys, float))
            assert [x for x, _ in points] == pytest.approx(list(np.asarray(xs)[there]), abs=0.01)
            assert [y for _, y in points] == pytest.approx(list(np.asarray(ys)[there]), rel=1e-3)
