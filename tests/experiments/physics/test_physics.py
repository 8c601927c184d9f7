"""The laws obey what their task says and no more, and the study counts right and wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from groupella.experiments import physics
from groupella.experiments.physics import TASKS, Outcome, Study
from groupella.runs import RunError


@pytest.mark.parametrize("name", TASKS)
def test_a_law_obeys_its_group_and_no_stricter_one(name: str) -> None:
    task = TASKS[name]
    groups = task.groups
    space_in, space_out = task.spaces()
    x = task.draw(torch.randn(20, *space_in.shape, dtype=torch.double))
    y = task.law(x)
    assert y.shape == (20, space_out.size)
    spread = (y - y.mean(0)).square().mean().sqrt()
    for member in groups:
        obeyed = task.obeys != "none" and groups.contains(task.obeys, member.name)
        errors = []
        for g in space_in.sample(member, 6, seed=1):
            moved, expected = task.law(space_in.act(g, x)), space_out.act(g, y)
            errors.append(((moved - expected).square().mean().sqrt() / spread).item())
        bound = task.within or 1e-10
        assert max(errors) < bound if obeyed else max(errors) > max(bound, 0.05), member
        assert not (task.within and obeyed) or max(errors) > 1e-3


def test_inertia_of_one_mass_by_hand() -> None:
    """A mass 2 at (0, 0, 3): 18 about x and y, nothing about z."""
    x = torch.zeros(1, 5, 4, dtype=torch.double)
    x[0, 0] = torch.tensor([2.0, 0.0, 0.0, 3.0])
    found = TASKS["inertia"].law(x.view(1, -1)).view(3, 3)
    torch.testing.assert_close(found, torch.diag(torch.tensor([18.0, 18.0, 0.0])).double())


def test_right_and_wrong_verdicts() -> None:
    def outcome(task: str, verdict: str) -> Outcome:
        return Outcome(task, 0, TASKS[task].obeys, verdict, 0.9, "", 0.1, 0.2, 0.3)

    assert outcome("inertia", "O(3)").right
    assert not outcome("inertia", "SO(3)").wrong  # true, though not all of it
    assert outcome("torque", "O(3)").wrong
    assert outcome("wind", "SO(2)z").wrong
    assert outcome("wind", "none").right
    assert not outcome("torque", "undecided").wrong
    counted = physics.summary([outcome("torque", "O(3)"), outcome("wind", "none")])
    assert (counted["cases"], counted["right"], counted["wrong"]) == (2, 1, 1)


def test_finished_cases_are_not_repeated(tmp_path: Path) -> None:
    study = Study(tasks=("torque",), n=60, training={"epochs": 1, "channels": 2, "depth": 1})
    first = physics.run_all(study.cases(0), study, tmp_path)
    (path,) = tmp_path.iterdir()
    content = json.loads(path.read_text("utf-8"))
    content["result"]["reason"] = "read"
    path.write_text(json.dumps(content), "utf-8")
    again = physics.run_all(study.cases(0), study, tmp_path)
    assert first[0].verdict == "undecided"
    assert again[0].reason == "read"
    content["result"]["error"] = "small"
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(
        RunError, match=r"torque-0\.json is not the result of a case: error must be"
    ):
        physics.run_all(study.cases(0), study, tmp_path)
