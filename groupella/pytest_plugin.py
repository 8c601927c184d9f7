"""Fixtures for pytest, which finds them by itself where groupella is installed.

    def test_shifts(assert_equivariant, image_space):
        images = image_space("z2", "p4", size=16, channels=3)
        assert_equivariant(model, images, None, "z2")

Nothing is imported before a test asks for a fixture. `pytest -p no:groupella` turns them off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from groupella.groups import FeatureSpace
    from groupella.testing import EquivarianceError


@pytest.fixture(scope="session", name="assert_equivariant")
def _assert_equivariant() -> Callable[..., None]:
    """`groupella.testing.assert_equivariant`."""
    from groupella.testing import assert_equivariant

    return assert_equivariant


@pytest.fixture(scope="session", name="equivariance_error")
def _equivariance_error() -> Callable[..., EquivarianceError]:
    """`groupella.testing.equivariance_error`."""
    from groupella.testing import equivariance_error

    return equivariance_error


@pytest.fixture(scope="session", name="assert_rotation_equivariant")
def _assert_rotation_equivariant() -> Callable[..., None]:
    """`groupella.testing.assert_rotation_equivariant`."""
    from groupella.testing import assert_rotation_equivariant

    return assert_rotation_equivariant


@pytest.fixture(scope="session", name="image_space")
def _image_space() -> Callable[..., FeatureSpace]:
    """A function that makes the space of ordinary images, on which some groups act.

    image_space(*groups, size=16, channels=3): names or symmetries; one side, or all sides.
    """
    from groupella.groups import GroupSet

    def image_space(
        *groups: Any, size: int | Sequence[int] = 16, channels: int = 3
    ) -> FeatureSpace:
        chosen = GroupSet(*groups)
        lattice = (size,) * (chosen.ambient.dim or 2) if isinstance(size, int) else tuple(size)
        return chosen.space(lattice, channels, "trivial")

    return image_space
