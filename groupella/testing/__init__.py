"""Test helpers that we and our users share: is this module equivariant, is this curvature exact.

With pytest, `assert_equivariant`, `assert_rotation_equivariant` and `image_space` are fixtures, too
(`groupella.pytest_plugin`).
"""

from ._assert import assert_equivariant as assert_equivariant
from ._curvature import CurvatureCase as CurvatureCase
from ._equivariance import ConstantOutputWarning as ConstantOutputWarning
from ._equivariance import ElementError as ElementError
from ._equivariance import EquivarianceError as EquivarianceError
from ._equivariance import equivariance_error as equivariance_error
from ._equivariance import output_shape as output_shape
from ._fields import field_space as field_space
from ._fields import library_of as library_of
from ._hints import likely_causes as likely_causes
from ._rotations import RotationError as RotationError
from ._rotations import assert_rotation_equivariant as assert_rotation_equivariant
from ._rotations import rotation_error as rotation_error
from ._rotations import turning_error as turning_error
