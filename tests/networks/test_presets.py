"""Parameter counts of the paper's tables, against the published figures and against formulas."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import ceil

import pytest
import torch

from groupella.curvature import curvature
from groupella.evidence.likelihoods import Categorical
from groupella.networks import PRESETS, Preset, count_parameters, preset
from groupella.networks.__main__ import main

# (channels in, channels out, side, stride) of the eight blocks, after the paper's appendix.
Shape = tuple[int, int, int, int]


def blocks(alpha: int, channels: int) -> list[Shape]:
    a = alpha
    return [
        (channels, a, 32, 1),
        (a, 2 * a, 32, 2),
        (2 * a, 2 * a, 16, 1),
        (2 * a, 4 * a, 16, 2),
        (4 * a, 4 * a, 8, 1),
        (4 * a, 8 * a, 8, 2),
        (8 * a, 8 * a, 4, 2),
        (8 * a, 16 * a, 2, 2),
    ]


def sites(shape: Shape) -> tuple[int, int]:
    _, _, side, stride = shape
    return side**2, (side // stride) ** 2


def fc(s: Shape) -> int:
    c, d, *_ = s
    return c * d * sites(s)[0] * sites(s)[1] + d * sites(s)[1]


def factored(s: Shape) -> int:
    c, d, *_ = s
    return c * d * sum(sites(s)) + d + sites(s)[1]


def sparse(s: Shape) -> int:
    c, d, *_ = s
    return c * d * sum(ceil(p / 2) for p in sites(s)) + d


FORMULAS: dict[str, Callable[[Shape], int]] = {
    "FC": fc,
    "F-FC": factored,
    "S-FC": sparse,
    "CONV": lambda s: s[0] * s[1] * 9 + s[1],
    "S-CONV": lambda s: s[0] * s[1] * 5 + s[1],
    "GCONV": lambda s: s[0] * s[1] * 36 + s[1],
    "GCONV/pointwise": lambda s: s[0] * s[1] * 9 + s[1],
    "GCONV/separable": lambda s: s[0] * 9 + s[0] + s[0] * s[1] * 4 + s[1],
    "GCONV/depthwise": lambda s: s[0] * 9 + s[0] + s[0] * 4 + s[0] + s[0] * s[1] + s[1],
}


def formula(row: Preset) -> int:
    """Weights and biases where the published code has them; FC and CONV count the fibre."""
    fibre = max(len(member.point) for member in row.groups)
    total = 0
    for c, d, side, stride in blocks(row.alpha, row.in_channels):
        for path in row.paths.split("+"):
            f = 1 if path.startswith("GCONV") else fibre
            total += FORMULAS[path]((f * c, f * d, side, stride))
    a = row.alpha
    return total + 16 * a * 64 * a + 64 * a + 64 * a * row.classes + row.classes


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_those_of_the_paper(name: str) -> None:
    row = PRESETS[name]
    count = row.count(paper_biases=True)
    assert count == formula(row)
    if row.published is not None:
        assert count == row.published


def test_design_figures_are_all_there() -> None:
    figures = {
        *(338_770, 133_635_690, 133_865_010, 1_542_625, 1_771_945, 831_820, 237_050, 959_420),
        *(1_237_527, 112_664_170, 112_683_400, 338_590, 357_820, 1_730_805, 1_750_035),
        *(1_025_380, 214_550, 139_725, 371_200, 358_463, 346_215),
    }
    assert {row.published for row in PRESETS.values()} == figures | {None}


def test_one_bias_a_layer_is_never_more() -> None:
    for row in PRESETS.values():
        assert row.count(paper_biases=False) <= row.count(paper_biases=True)


def test_counting_the_real_thing_gives_the_same() -> None:
    for name in ("cifar10/CONV", "rotation/depthwise-separable", "cifar10/S-CONV"):
        network = preset(name)
        assert count_parameters(network, weights_only=True) == PRESETS[name].published
    assert count_parameters(network) == count_parameters(network, weights_only=True) + 8


def test_presets_run_and_take_options() -> None:
    network = preset("groups/mnist", image_size=8, classes=3, alpha=1)
    assert network(torch.randn(2, 1, 8, 8)).shape == (2, 3)


def test_curvature_covers_every_parameter_of_every_architecture() -> None:
    rows = {row.paths: row for row in PRESETS.values() if row.in_channels == 3}
    images, labels = torch.randn(2, 3, 4, 4), torch.tensor([0, 1])
    for row in rows.values():
        network = row.build(alpha=1, image_size=4, classes=2, blocks=((1, 1), (2, 2)), hidden=2)
        factors = curvature(network, Categorical(), (images, labels))
        assert set(factors) == {name for name, _ in network.named_parameters()}


def test_an_unknown_name_points_to_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"did you mean 'cifar10/F-FC\+CONV'"):
        preset("cifar/F-FC+CONV")


def test_the_table_prints_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    line = next(t for t in text.splitlines() if t.startswith("cifar10/F-FC+CONV "))
    assert line.split()[1:4] == ["1,769,810", "1,771,945", "1,771,945"]
    assert len(text.splitlines()) == len(PRESETS) + 1
    assert main(["--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["all_equal"]
    assert [r["name"] for r in answer["presets"]] == list(PRESETS)
