"""`find_symmetry` with turns of images by any angle among the candidates."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from groupella.groups import GroupSet, c4, image_turns
from groupella.training import FindSettings, find_symmetry
from groupella.training._scoring import SCORINGS
from groupella.training._symmetry import _Search

SIDE = 16
SETTINGS = FindSettings(width=16, epochs=12, looks=1)


def stars(n: int, seed: int, by_angle: bool) -> tuple[Tensor, Tensor]:
    """Smooth stars of two to four arms, turned by any angle; the label is the number of arms.

    by_angle: stars of one arm, the label is the quadrant that it points to.
    """
    generator = torch.Generator().manual_seed(seed)
    turn = 2 * math.pi * torch.rand(n, generator=generator)
    y = torch.floor(turn / (math.pi / 2)).long() % 4 if by_angle else torch.arange(n) % 3
    arms = torch.ones(n) if by_angle else y + 2.0
    away = torch.arange(SIDE) - (SIDE - 1) / 2
    r = (away[:, None].square() + away.square()).sqrt()
    phi = torch.atan2(-away[:, None].expand(SIDE, SIDE), away.expand(SIDE, SIDE))
    wave = torch.cos(arms[:, None, None] * (phi - turn[:, None, None]))
    x = (1 + wave) * torch.exp(-((r - 4) ** 2) / 4)
    noise = 0.3 * torch.randn(n, SIDE, SIDE, generator=generator)
    return (x + noise - x.mean())[:, None], y


@pytest.mark.slow
def test_stars_at_any_angle_obey_all_turns_to_within_a_stated_error() -> None:
    groups = GroupSet(c4(), image_turns(8), image_turns(0))
    found = find_symmetry(stars(400, 0, by_angle=False), groups, settings=SETTINGS, progress=False)
    assert found.judgement.obeys == ("so2",)
    assert found.verdict.startswith("so2 to within ")
    rows = {row.name: row.equivariance_error for row in found.consequences}
    assert rows["so2"] == found.judgement.within["so2"] < 0.25
    assert found.symmetry == image_turns(0)


def test_where_labels_are_directions_no_turn_is_asserted() -> None:
    groups = GroupSet(c4(), image_turns(0))
    found = find_symmetry(stars(300, 1, by_angle=True), groups, settings=SETTINGS, progress=False)
    assert found.verdict == "none"


def test_a_network_that_is_tested_again_still_obeys_only_to_within_its_error() -> None:
    """As when two groups hold one by one, and the group that they generate is tested too."""
    data, settings = stars(60, 2, by_angle=False), FindSettings(epochs=1, width=8)
    groups, scoring = GroupSet(image_turns(8)), SCORINGS["classes"](3)
    search = _Search.begun(data, groups, scoring, settings, None, False, None)
    look = search.look(0, every=True)
    before = look.tested["c8"].within
    search._test(look, "c8", look.fits["c8"])
    assert before is not None
    assert look.tested["c8"].within == before == look.rows["c8"].equivariance_error
