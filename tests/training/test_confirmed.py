"""A verdict by the evidence is tested on held-out data before it is asserted."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from groupella.decide import Candidates, LayerSelection, PathSelection, Selection
from groupella.groups import GroupSet, flips, trivial, z2
from groupella.training import FindSettings, confirmed

QUICK = FindSettings(width=8, epochs=12)
GROUPS = GroupSet(z2(), flips(), trivial())
SUBSPACES = {"flips": ("z2", "flips"), "z2": ("z2",), "trivial": ()}


def ramps(handed: bool, n: int = 400) -> tuple[Tensor, Tensor]:
    """Rising or falling rows anywhere on the torus; the label says which, or how steep they are."""
    generator = torch.Generator().manual_seed(0)
    falls, steep = torch.randint(2, (2, n), generator=generator)
    ramp = torch.tensor([[0.2, 0.4, 0.6, 0.8], [0.0, 0.0, 0.0, 2.0]])[steep]
    ramp = torch.where(falls[:, None].bool(), ramp.flip(1), ramp)
    x = 0.05 * torch.randn(n, 1, 8, 8, generator=generator)
    x[:, 0, 2, :4] += ramp
    shifts = torch.randint(8, (n, 2), generator=generator).tolist()
    moved = torch.stack([one.roll(tuple(s), (1, 2)) for one, s in zip(x, shifts, strict=True)])
    return moved, falls if handed else steep


def by_evidence(*alive: str) -> Selection:
    """A network of one layer with these paths alive."""
    paths = tuple(
        PathSelection(name, 1.0, 1.0, 9, 5.0, 0.5, -50.0, name in alive, members)
        for name, members in SUBSPACES.items()
    )
    return Selection(
        (LayerSelection("0", paths, "?"),), -10.0, 400, candidates=Candidates.of(GROUPS)
    )


def test_a_wrong_verdict_of_the_evidence_becomes_undecided() -> None:
    claimed = by_evidence("flips")
    assert claimed.verdict == "flips"
    found, table = confirmed(claimed, ramps(handed=True), GROUPS, settings=QUICK, progress=False)
    assert found.verdict == "undecided"
    assert found.judgement is not None
    assert found.judgement.reason.startswith("the evidence says flips, but on held-out data")
    assert found.layers == claimed.layers
    rows = {row.name: row for row in table}
    assert (rows["flips"].accuracy or 0) < 0.6 < 0.7 < (rows["free"].accuracy or 0)


@pytest.mark.parametrize("handed", [False, True])
def test_a_right_verdict_stays_and_has_a_probability(handed: bool) -> None:
    claimed = by_evidence("flips", *(["z2"] if handed else []))
    found, _ = confirmed(claimed, ramps(handed, 800), GROUPS, settings=QUICK, progress=False)
    assert found.verdict == claimed.verdict == ("z2" if handed else "flips")
    assert found.judgement is not None
    assert found.judgement.probability > 0.9


@pytest.mark.parametrize(("alive", "verdict"), [(("trivial",), "none"), ((), "undecided")])
def test_without_a_group_there_is_nothing_to_test(alive: tuple[str, ...], verdict: str) -> None:
    nowhere = (torch.full((4, 1, 8, 8), math.nan), torch.zeros(4, dtype=torch.long))
    found, table = confirmed(by_evidence(*alive), nowhere, GROUPS, progress=False)
    assert (found.verdict, table, found.judgement) == (verdict, (), None)
