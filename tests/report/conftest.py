"""A report about a run that was not trained: real layers and filters, made-up history."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from groupella.decide import Candidates, LayerSelection, PathSelection, Rule, Selection
from groupella.decide.claims import Consequence, Difference, Finding, Judgement
from groupella.groups import GroupSet, p4, trivial, z2
from groupella.networks import Trunk, trunk
from groupella.report import (
    Confusion,
    Example,
    HeldOutScore,
    LayerError,
    ReportContent,
    filter_pictures,
)
from groupella.training import EpochRecord, History

VOID = ("meta", "img", "br", "line")
Attributes = dict[str, str | None]


class Node:
    """An element of a page: its tag, attributes and children; `text` is all that stands in it."""

    def __init__(self, tag: str, attributes: Attributes) -> None:
        self.tag, self.attributes = tag, attributes
        self.children: list[Node | str] = []

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def all(self, *tags: str, **attributes: str) -> list[Node]:
        """The elements below this one with those tags and attributes, in order."""
        found = []
        for child in self.children:
            if isinstance(child, str):
                continue
            wanted = all(child.attributes.get(k.strip("_")) == v for k, v in attributes.items())
            if (not tags or child.tag in tags) and wanted:
                found.append(child)
            found += child.all(*tags, **attributes)
        return found

    def table(self, label: str) -> list[list[str]]:
        """The cells of the table in the region of that name, row by row."""
        (region,) = (n for n in self.all("div") if n.attributes.get("aria-label") == label)
        return [[cell.text for cell in row.all("th", "td")] for row in region.all("tr")]


class Parser(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Node("", {})
        self.open = [self.root]
        self.feed(text)
        assert self.open == [self.root], f"<{self.open[-1].tag}> is never closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs))
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


MEMBERS = {"trivial": ("trivial",), "z2": ("trivial", "z2"), "p4": ("trivial", "z2", "p4")}
SHARES = ({"p4": 0.97, "z2": 0.0295, "trivial": 0.0005}, {"p4": 0.6, "z2": 0.0, "trivial": 0.4})


def made_up_selection() -> Selection:
    layers = []
    for number, shares in enumerate(SHARES):
        paths = tuple(
            PathSelection(
                path=name,
                precision=10.0 ** (4 - 4 * share),
                squared_norm=share,
                parameters=100,
                effective_parameters=50 * share,
                relative=share,
                removal=-100 * share,
                alive=share > 0.01,
                members=MEMBERS[name],
                priors=(f"layers.{number}/{name}",),
            )
            for name, share in shares.items()
        )
        layers.append(
            LayerSelection(f"layers.{number}", paths, "none" if number else "z2", 0.47, "p4")
        )
    candidates = Candidates(("z2", "p4"), {"z2": (), "p4": ("z2",)})
    return Selection(tuple(layers), -512.5, 300, Rule("gamma"), candidates)


def made_up_history(epochs: int = 12) -> History:
    records = []
    for epoch in range(epochs):
        fade = math.exp(-epoch / 4)
        records.append(
            EpochRecord(
                epoch=epoch,
                objective=2 * fade,
                nll=1.9 * fade,
                accuracy=1 - 0.9 * fade,
                lr=0.01,
                seconds=0.5,
                log_evidence=-512.5 - 400 * fade if epoch >= 2 else None,
                precisions={
                    f"layers.{i}/{name}": 10.0 ** ((1 - share) * epoch / 2)
                    for i, shares in enumerate(SHARES)
                    for name, share in shares.items()
                },
                validation_nll=2 * fade + 0.1,
                validation_accuracy=0.95 - 0.9 * fade,
            )
        )
    return History(records)


@pytest.fixture(scope="session")
def network() -> Trunk:
    torch.manual_seed(0)
    groups = GroupSet(trivial(), z2(), p4())
    return trunk(groups, None, 1, 8, 3, in_channels=1, blocks=[(1, 2), (2, 2)], hidden=4)


@pytest.fixture(scope="session")
def content(network: Trunk) -> ReportContent:
    generator = np.random.default_rng(0)
    return ReportContent(
        title="Turned digits <named>",
        data="digits: 300 images of 1×8×8",
        groups={"trivial": "no symmetry at all", "z2": "shifts", "p4": "shifts and quarter turns"},
        selection=made_up_selection(),
        history=made_up_history(),
        errors=tuple(
            LayerError(f"layers.{i}", group, 0.04, 3e-7 if i == 0 else 0.31)
            for i in range(2)
            for group in ("z2", "p4")
        ),
        filters=filter_pictures(network),
        examples=tuple(Example(f"{k}, turned", generator.random((8, 8))) for k in range(6)),
        held_out=HeldOutScore(0.951, 0.21, 100),
        settings={"epochs": 12, "seed": 0, "paths": None, "blocks": [[1, 2], [2, 2]]},
        versions={"groupella": "0.1.0"},
        expected="z2",
        remarks=("a 0 is nearly its own half turn",),
    )


@pytest.fixture(scope="session")
def judged(content: ReportContent) -> ReportContent:
    """The same run with a verdict that was tested on held-out data, and ten classes."""
    gap = Difference(-0.01, 0.004)
    findings = (
        Finding("z2", "free", "holds", 0.99, gap, gap, 0.05, "costs nothing"),
        Finding("p4", "z2", "rejected", 0.98, gap, None, 0.05, "averaging costs"),
    )
    judgement = Judgement(
        ("z2",), 0.97, "z2: averaging predictions over it costs nothing", findings
    )
    counts = [[0] * 10 for _ in range(10)]
    for digit in range(10):
        counts[digit][digit] = 100 + digit
    counts[3][8], counts[9][4] = 17, 5
    return replace(
        content,
        selection=replace(content.selection, judgement=judgement),
        consequences=(
            Consequence("chance", accuracy=0.1, nll=2.3),
            Consequence("free", -400.0, 0.9, 0.3, None, 52_000),
            Consequence("z2", -300.25, 0.951, 0.21, 3e-7, 1000),
            Consequence("p4", None, 0.4, 1.3, None, 1000, "z2, averaged over it"),
        ),
        confusion=Confusion(tuple("0123456789"), tuple(map(tuple, counts)), "1,067 test data"),
    )


@pytest.fixture(scope="session")
def read() -> Callable[[str], Node]:
    """Parses a page, whose tags must match."""
    return lambda text: Parser(text).root


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("chromium is not installed: the report is not looked at in a browser")
    return found
