"""Networks that obey turns of images: exact quarter turns, other angles to within an error."""

from __future__ import annotations

import pytest
import torch

from groupella.groups import c4, image_turns, p4
from groupella.harden import harden
from groupella.networks import InvariantNet, fold, invariant_net, made_from, recipe
from groupella.testing import assert_equivariant, rotation_error


def network(turns: int, translations: bool = False, seed: int = 0) -> InvariantNet:
    torch.manual_seed(seed)
    return invariant_net(image_turns(turns, translations), (16, 16), 1, 5)


@pytest.mark.parametrize("turns", [8, 0])
def test_quarter_turns_are_exact_and_others_nearly(turns: int) -> None:
    made = network(turns).double().eval()
    assert_equivariant(made, made.space_in, None, c4(), tolerance=1e-10)
    found, others = [], []
    for seed in range(4):
        found.append(rotation_error(network(turns, seed=seed).double().eval(), (1, 16, 16)))
        torch.manual_seed(seed)
        fourths = invariant_net(c4(), (16, 16), 1, 5).double().eval()
        others.append(rotation_error(fourths, (1, 16, 16)))
    assert all(one.errors[90.0] < 1e-6 and float(one) < 0.1 for one in found)
    assert sum(o.errors[45.0] for o in found) < 0.5 * sum(o.errors[45.0] for o in others)


def test_with_translations_shifts_are_exact() -> None:
    made = network(8, translations=True).double().eval()
    assert_equivariant(made, made.space_in, None, p4(), tolerance=1e-10)


def test_it_is_saved_folded_and_written_as_plain_torch() -> None:
    made = network(8).eval()
    x = torch.randn(3, 1, 16, 16)
    again = made_from(recipe(made))
    again.load_state_dict(made.state_dict())
    torch.testing.assert_close(again(x), made(x))
    folded = fold(made)
    torch.testing.assert_close(folded(x), made(x), atol=1e-4, rtol=1e-4)
    plain = harden(folded)
    assert not any(type(m).__module__.startswith("groupella.nn") for m in plain.modules())
    torch.testing.assert_close(plain(x), folded(x), atol=1e-5, rtol=1e-4)


def test_layers_cannot_obey_more_than_such_outputs() -> None:
    with pytest.raises(ValueError, match="c8 is not"):
        invariant_net(image_turns(8), (16, 16), 1, 5, layers=p4())
