"""The comparison of evidences: exact and kernel agree, the factors do not, blocks bound."""

from __future__ import annotations

import pytest

from groupella.experiments.planted.evidence_error import compare, digits, trained


def test_the_kernel_agrees_with_all_weights_together_and_factors_do_not() -> None:
    data = digits(20)
    found = compare(trained("F-FC", False, data, steps=60), data, block=5)
    assert found.occam["kernel"] == pytest.approx(found.occam["exact"], rel=1e-8)
    assert found.occam["blocks"] > found.occam["exact"] + 0.1
    assert found.occam["KFAC"] > found.occam["exact"] + 1
