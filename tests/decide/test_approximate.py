"""Symmetries that networks obey only approximately: the verdict says how well."""

from __future__ import annotations

import numpy as np

from groupella.decide import Candidates, claims
from groupella.decide.claims import FREE, Comparison, Judgement
from groupella.groups import GroupSet, c4, image_turns


def test_the_verdict_says_how_well_and_is_read_back() -> None:
    said = Judgement(("so2",), 0.99, "why", within={"so2": 0.031, "c8": 0.2})
    assert said.verdict == "so2 to within 3.1 %"
    assert Judgement.from_dict(said.as_dict()) == said
    assert (
        Judgement(("p4", "c8"), 0.9, "", within={"c8": 0.2}).verdict == "p4 and c8 to within 20.0 %"
    )
    assert Judgement(None, 0.0, "", within={"c8": 0.2}).verdict == "undecided"
    assert Judgement((), 0.9, "").verdict == "none"


def compared(within: float) -> Judgement:
    """Averaging and imposing both groups costs nothing."""
    rng = np.random.default_rng(0)
    scores = -0.1 + 0.01 * rng.standard_normal(400)
    names = ("c4", "c8")
    averaged = dict.fromkeys(names, scores + 0.001)
    told = dict.fromkeys(names, 0.5)
    tested = {n: claims.Tested(scores, averaged, told, told) for n in (FREE, "c4")}
    tested["c8"] = claims.Tested(scores, averaged, told, told, within)
    chance = np.full(400, -1.4)
    groups = Candidates.of(GroupSet(c4(), image_turns(8)))
    return Comparison(tested, chance, np.arange(400) % 4, groups, guess=chance).judgement


def test_a_network_that_is_too_far_from_its_symmetry_asserts_nothing() -> None:
    near = compared(0.04)
    assert near.obeys == ("c8",)
    assert near.verdict == "c8 to within 4.0 %"
    far = compared(0.6)
    assert far.obeys == ("c4",)
    assert far.open == ("c8",)
    assert "only to within 60%" in next(f.reason for f in far.findings if f.candidate == "c8")
