"""Linear teachers: data, the closed form of the student's MAP weights, and the verdicts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from groupella.experiments.planted import CANDIDATES, LinearCase
from groupella.experiments.planted._linear import (
    LinearStudent,
    coincident,
    draw,
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


@pytest.mark.parametrize("orthogonal", [True, False])
def test_closed_form_is_the_minimum_of_the_objective(orthogonal: bool) -> None:
    case = LinearCase("p4", 60, 0, side=4, orthogonal=orthogonal)
    data = draw(case)
    student = LinearStudent(case, data)
    student.fit(rounds=3)
    student._solve()
    space = student.network.space_in
    x = torch.from_numpy(data.x).view(-1, *space.shape)
    y = torch.from_numpy(data.y).view(-1, *space.shape)
    loss = student.evidence.loss(student.network(x), y, len(x))
    gradients = torch.autograd.grad(loss, list(student.network.parameters()))
    assert max(float(g.abs().max()) for g in gradients) < 1e-7


def test_data_fit_from_moments_is_that_of_a_pass_over_the_data() -> None:
    case = LinearCase("z2", 30, 0, side=4)
    data = draw(case)
    student = LinearStudent(case, data)
    student.fit(rounds=2)
    student._solve()
    known = student.evidence.fit.squares
    space = student.network.space_in
    with torch.no_grad():
        f = student.network(torch.from_numpy(data.x).view(-1, *space.shape)).flatten(1)
    assert known == pytest.approx(float(((f.numpy() - data.y) ** 2).sum()), rel=1e-9)


@pytest.mark.parametrize("planted", CANDIDATES.names)
def test_planted_member_is_named(planted: str, tmp_path: Path) -> None:
    outcome = LinearCase(planted, 100, 0).run(tmp_path)
    assert outcome.right == (True,)
    assert outcome.wrong == (False,)


def test_indistinguishable_plants_do_not_count(tmp_path: Path) -> None:
    outcome = LinearCase("p4", 50, 0, side=4).run(tmp_path)
    assert outcome.counted == (False,)
    assert outcome.verdicts == ("p4m",)
