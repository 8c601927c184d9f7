"""Test helpers that we and our users share: is this module equivariant, is this curvature exact."""

from ._curvature import CurvatureCase as CurvatureCase
from ._equivariance import ConstantOutputWarning as ConstantOutputWarning
from ._equivariance import ElementError as ElementError
from ._equivariance import EquivarianceError as EquivarianceError
from ._equivariance import assert_equivariant as assert_equivariant
from ._equivariance import equivariance_error as equivariance_error
