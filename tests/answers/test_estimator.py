"""`SymmetrySelector` is an estimator of scikit-learn, by scikit-learn's own checks."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from groupella import SymmetrySelector

CANNOT_APPLY = {
    "check_sample_weight_equivalence_on_dense_data": "data are split and batched at random, so a "
    "repeated sample is not the same as one of twice the weight, bit for bit",
    "check_sample_weight_equivalence_on_sparse_data": "as on dense data",
}


def cannot_apply(estimator: Any) -> dict[str, str]:
    return CANNOT_APPLY


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([SymmetrySelector(epochs=6, width=8)], expected_failed_checks=cannot_apply)
def test_it_passes_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    if check.func.__name__ in CANNOT_APPLY:
        pytest.xfail(CANNOT_APPLY[check.func.__name__])
    if "array_api" in str(check) and "SCIPY_ARRAY_API" not in os.environ:
        pytest.skip("SCIPY_ARRAY_API is not set")
    check(estimator)


def test_masked_samples_are_refused() -> None:
    x = np.ma.masked_greater(np.arange(12.0).reshape(4, 3), 10)
    with pytest.raises(ValueError, match="X has 1 masked entries: fill them in"):
        SymmetrySelector("permutations").fit(x, [0, 1, 0, 1])


def test_it_finds_that_features_are_exchangeable() -> None:
    x = np.random.default_rng(0).standard_normal((300, 4))
    y = np.where(x.sum(1) > 0, "high", "low")
    found = SymmetrySelector(epochs=12, width=8).fit(x, y)
    assert found.groups_ == ("s4",)
    assert found.verdict_ == "s4"
    assert found.score(x, y) > 0.9
    assert found.predict_proba(x).shape == (300, 2)
    assert found.classes_.tolist() == ["high", "low"]
