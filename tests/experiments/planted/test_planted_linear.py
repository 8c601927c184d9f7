"""Linear teachers: data, the exact evidence of hypotheses, and the verdicts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from groupella.bases import increments
from groupella.experiments.planted import CANDIDATES, LinearCase
from groupella.experiments.planted._hypotheses import Hypothesis, Moments
from groupella.experiments.planted._linear import (
    Data,
    coincident,
    decide,
    draw,
    log_evidences,
    member_bases,
)


def test_teacher_obeys_the_planted_member_and_no_stricter_one() -> None:
    bases = member_bases(8, "trivial")
    for planted in ("z2", "flips", "p4", "p4m"):
        teacher = draw(LinearCase(planted, 10, 0)).teacher
        for name, basis in bases.items():
            inside = np.allclose(basis.project(teacher), teacher)
            assert inside == CANDIDATES.contains(planted, name)


def test_noise_is_relative_to_the_signal() -> None:
    data = draw(LinearCase("z2", 4000, 0, noise=0.5))
    clean = data.x @ data.teacher.T
    assert np.std(data.y - clean) / np.std(clean) == pytest.approx(0.5, rel=0.02)


def test_coincident_subspaces_are_named() -> None:
    assert coincident(8, "trivial") == {}
    assert coincident(4, "trivial") == {"p4": "p4m"}


def hypothesis(free: bool) -> tuple[Hypothesis, Data]:
    """Two increments on few data with correlated inputs."""
    data = draw(LinearCase("z2", 7, 0, side=4))
    x = data.x @ np.random.default_rng(0).standard_normal((16, 16))
    moments = Moments.of(x, data.y, (4, 4))
    bases = increments(member_bases(4, "trivial")).bases.values()
    return Hypothesis(moments, [b.matrix for b in bases], free), Data(x, data.y, data.teacher)


@pytest.mark.parametrize("free", [False, True])
def test_evidence_is_the_density_of_the_targets(free: bool) -> None:
    found, data = hypothesis(free)
    x, y = (a / np.sqrt(np.mean(a**2)) for a in (data.x, data.y))
    logs = np.linspace(-1.0, 1.0, len(found.sizes) + free)
    covariance = np.eye(y.size)
    bases = increments(member_bases(4, "trivial")).bases.values()
    for basis, log in zip(bases, logs, strict=False):
        for matrix in basis.tensor:
            f = (x @ matrix.T).reshape(-1)
            covariance += math.exp(log) * np.outer(f, f)
    if free:
        covariance += math.exp(logs[-1]) * np.kron(x @ x.T, np.eye(16))
    target = y.reshape(-1)
    noise = target @ np.linalg.solve(covariance, target) / y.size
    log_determinant = np.linalg.slogdet(2 * math.pi * noise * covariance)[1]
    assert found.value(logs)[0] == pytest.approx(-0.5 * (y.size + log_determinant), abs=1e-8)


@pytest.mark.parametrize("free", [False, True])
def test_gradient_is_that_of_differences(free: bool) -> None:
    found, _ = hypothesis(free)
    logs = np.linspace(-1.0, 1.0, len(found.sizes) + free + 1)
    _, gradient = found._loss(logs)
    for i, step in enumerate(1e-5 * np.eye(len(logs))):
        difference = found._loss(logs + step)[0] - found._loss(logs - step)[0]
        assert gradient[i] == pytest.approx(difference / 2e-5, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("planted", CANDIDATES.names)
def test_planted_member_is_named(planted: str, tmp_path: Path) -> None:
    result = LinearCase(planted, 100, 0).run(tmp_path)
    assert result.right == (True,)
    assert result.wrong == (False,)


@pytest.mark.parametrize("units", [(1e-3, 1e3), (1e3, 1e-3), (1e3, 1e3)])
def test_units_of_inputs_and_outputs_do_not_matter(units: tuple[float, float]) -> None:
    data = draw(LinearCase("z2", 30, 1, noise=1.0))
    before = decide(data.x, data.y)
    after = decide(units[0] * data.x, units[1] * data.y)
    assert after.verdict == before.verdict
    assert after.probabilities == pytest.approx(before.probabilities, abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_a_symmetry_that_holds_but_for_three_percent_is_not_asserted(seed: int) -> None:
    data = draw(LinearCase("p4m", 1000, seed))
    rng = np.random.default_rng(seed)
    y = data.y + 0.03 * data.x @ rng.standard_normal((64, 64)) / 8
    assert decide(data.x, y).verdict == "none"


def test_a_free_map_in_strong_noise_is_not_taken_for_a_symmetry() -> None:
    assert LinearCase("trivial", 300, 200, noise=3.0).run(Path()).verdicts == ("none",)


def test_noise_alone_leaves_it_open() -> None:
    rng = np.random.default_rng(0)
    found = decide(rng.standard_normal((50, 64)), rng.standard_normal((50, 64)))
    assert found.is_undecided
    assert found.established == ("none",)


def test_indistinguishable_plants_do_not_count(tmp_path: Path) -> None:
    result = LinearCase("p4", 50, 0, side=4).run(tmp_path)
    assert result.counted == (False,)
    assert result.verdicts == ("p4m",)
    data = draw(LinearCase("p4", 50, 0, side=4))
    assert "p4" not in log_evidences(data.x, data.y, 4, "trivial")
