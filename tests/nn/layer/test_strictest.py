"""Which paths of a layer are the strictest."""

from __future__ import annotations

import pytest

from groupella.nn.layer import strictest


@pytest.mark.parametrize(
    ("subspaces", "expected"),
    [
        ({"free": (), "z2": ("z2",), "p4": ("z2", "p4")}, ("p4",)),
        ({"free": (), "p4": ("z2", "p4"), "flips": ("z2", "flips")}, ("p4", "flips")),
        ({"one": ("z2",), "other": ("z2",)}, ("one", "other")),
        ({"free": ()}, ("free",)),
        ({}, ()),
    ],
)
def test_no_other_path_lies_in_all_members_of_a_strictest_one_and_more(
    subspaces: dict[str, tuple[str, ...]], expected: tuple[str, ...]
) -> None:
    assert strictest(subspaces) == expected
