"""What users need first is in `groupella.nn` itself, and its parts stay importable."""

from __future__ import annotations

import importlib

import pytest

from groupella import nn

FIRST = {
    "ResidualPathway": "layer",
    "PolyphasePool": "pooling",
    "GroupPool": "pooling",
    "GlobalPool": "pooling",
    "Lift": "pooling",
    "circular_conv": "circular",
}


@pytest.mark.parametrize("name", FIRST)
def test_a_name_used_first_is_that_of_its_part(name: str) -> None:
    part = importlib.import_module(f"groupella.nn.{FIRST[name]}")
    assert getattr(nn, name) is getattr(part, name)


@pytest.mark.parametrize(
    "part", ["paths", "layer", "pooling", "shared_maps", "circular", "nonlinearity"]
)
def test_parts_are_modules_of_the_package(part: str) -> None:
    assert getattr(nn, part) is importlib.import_module(f"groupella.nn.{part}")
