"""A recipe, through JSON, makes the same network again."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from groupella.groups import GroupSet, Symmetry, p4, permutations, translations, trivial, z2
from groupella.networks import fold, invariant_net, made_from, recipe, trunk
from groupella.nn.paths import Conv

SIGNED = Symmetry.from_generators("odd", (3,), [-np.eye(3)], fibre=[[[0.0, 1.0], [1.0, 0.0]]])
TURN = Symmetry.from_generators("turn", (2,), [[[0.0, -1.0], [1.0, 0.0]]])


def again(network: nn.Module) -> nn.Module:
    made = made_from(json.loads(json.dumps(recipe(network))))
    made.load_state_dict(network.state_dict())
    return made


@pytest.mark.parametrize(
    ("symmetry", "lattice"),
    [
        (p4(), (8, 8)),
        (trivial(), (8, 8)),
        (translations(1), (12,)),
        (permutations(5), (5,)),
        (GroupSet(p4(), "flips").join("p4", "flips"), (8, 8)),
    ],
    ids=str,
)
@pytest.mark.parametrize("folded", [False, True])
def test_an_invariant_network_is_made_again(
    symmetry: Symmetry, lattice: tuple[int, ...], folded: bool
) -> None:
    torch.manual_seed(0)
    network = invariant_net(symmetry, lattice, 2, 3, width=4, convolutions=len(lattice) > 1)
    x = torch.randn(4, 2, *lattice)
    network.train()(x)  # moves the statistics of the normalisation
    network = fold(network) if folded else network.eval()
    assert torch.equal(again(network)(x), network(x))


def test_a_trunk_is_made_again() -> None:
    torch.manual_seed(0)
    network = trunk(
        GroupSet(z2(), p4()), alpha=2, image_size=(8, 8), in_channels=1, init="balanced"
    )
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(again(network)(x), network(x))


@pytest.mark.parametrize("symmetry", [p4(), trivial(), SIGNED, TURN, permutations(4)], ids=str)
def test_a_symmetry_survives_json(symmetry: Symmetry) -> None:
    assert Symmetry.from_dict(json.loads(json.dumps(symmetry.as_dict()))) == symmetry


def test_what_cannot_be_made_again_is_refused() -> None:
    with pytest.raises(ValueError, match="not known how this Linear was made"):
        recipe(nn.Linear(1, 1))
    own = trunk(GroupSet(z2()), {"mine": Conv}, alpha=1, image_size=4, blocks=[(1, 1)])
    with pytest.raises(ValueError, match=r"paths=.* cannot be saved"):
        recipe(own)
    with pytest.raises(ValueError, match="not known"):
        recipe(trunk(GroupSet(z2()), alpha=1, image_size=4, blocks=[(1, 1)]).strict("z2"))
