"""The common protocol: tasks obey their truth, numbers become verdicts, verdicts are counted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from groupella.cli.app import app
from groupella.experiments import peers
from groupella.experiments.peers import METHODS, PRESETS, TASKS, TUNING, Found, PeerCase, draw, tune
from groupella.experiments.peers import _rpp as rpp
from groupella.experiments.peers import _tasks as tasks
from groupella.experiments.peers._networks import StageNet
from groupella.experiments.peers._problem import FREE, Problem
from groupella.experiments.peers._protocol import judged, outcome, tuned_threshold, verdict
from groupella.experiments.peers._tasks import FAMILIES
from groupella.experiments.peers._thresholds import THRESHOLDS
from groupella.experiments.planted import CaseResult
from groupella.groups import GroupSet, flips, p4, p4m, z2

IMAGES = GroupSet(z2(), flips(), p4(), p4m())


@pytest.mark.parametrize("obeys", tasks.COSETS)
def test_labels_of_moved_digits_obey_their_truth_and_nothing_more(obeys: str) -> None:
    space = IMAGES.space((8, 8), 1, "trivial")
    elements = space.sample(p4m(), 60, 0)
    true = set() if obeys == "trivial" else set(IMAGES.subgroups(obeys))
    for member in IMAGES:
        same = all(
            tasks._coset(h * g, obeys) == tasks._coset(g, obeys)
            for g in elements
            for h in space.generators(member)
        )
        assert same == (member.name in true)


def test_images_stay_the_same_but_for_their_motion() -> None:
    p4m_labels, z2_labels = draw("digits-p4m", 3), draw("digits-z2", 3)
    assert torch.equal(p4m_labels.pool[0], z2_labels.pool[0])
    assert torch.equal(p4m_labels.pool[1], z2_labels.pool[1] // 4)
    assert float(p4m_labels.pool[0].mean()) == pytest.approx(0.0, abs=1e-4)
    assert float(p4m_labels.pool[0].std()) == pytest.approx(1.0, abs=1e-4)
    assert p4m_labels.pool[0].shape == (1000, 1, 64)


def test_the_map_of_a_linear_task_obeys_its_truth() -> None:
    problem = draw("linear-p4", 0)
    x, y = problem.test
    w = torch.linalg.lstsq(
        torch.cat([x, problem.pool[0]]).flatten(1), torch.cat([y, problem.pool[1]])
    ).solution.T
    share = problem.stages[0].asymmetries(w[None, None])
    assert share["p4"] < 0.03 < 0.3 < share["p4m"]  # half of it is what p4m lacks
    assert problem.true_members == ["z2", "p4"]


def test_linear_problems_are_scored_by_what_is_left_of_the_test_data() -> None:
    """On held-out data that a method was trained on, noise would look smaller."""
    problem = draw("linear-p4", 0)
    _, y = problem.test
    r2, nll = problem.score(lambda x: y - 0.2 * (-1) ** torch.arange(len(x))[:, None])
    assert r2 == pytest.approx(1 - 0.04 / float(y.var()), rel=1e-4)
    normal = torch.distributions.Normal(0.0, 0.2)
    assert nll == pytest.approx(-float(normal.log_prob(torch.tensor(0.2))), rel=1e-4)


def test_held_out_data_are_a_quarter_and_test_data_others() -> None:
    problem = draw("sets-s8", 0)
    assert (len(problem.fit[0]), len(problem.val[0]), len(problem.test[0])) == (750, 250, 250)
    assert torch.equal(torch.cat([problem.fit[0], problem.val[0]]), problem.pool[0])


def test_motions_are_those_of_the_group() -> None:
    problem = draw("sets-cyclic8", 0)
    shifts = problem.motions["cyclic8"]
    assert {tuple(m.tolist()) for m in shifts} == {
        tuple((i + s) % 8 for i in range(8)) for s in range(8)
    }
    x = torch.randn(5, 1, 8)
    moved, index = problem.moved(x, "s8", torch.Generator().manual_seed(0))
    torch.testing.assert_close(moved[:, 0], x[:, 0].gather(1, index))
    assert problem.order("s8") == 40320
    assert problem.order(FREE) == 1


def test_paths_of_a_stage_span_their_candidates_and_name_all_that_they_obey() -> None:
    stage = draw("linear-p4", 0).stages[0]
    dims = {part.name: 0 if part.rows is None else len(part.rows) for part in stage.parts()}
    # Offsets of a 5×5 torus: 25, of which 15, 7 and 6 orbits under flips, p4 and p4m.
    assert dims == {"z2": 25 - 15 - 7 + 6, "flips": 15 - 6, "p4": 7 - 6, "p4m": 6, "free": 0}
    members = {part.name: set(part.members) for part in stage.whole()}
    assert members["p4"] == {"z2", "p4"}
    assert members["p4m"] == {"z2", "flips", "p4", "p4m"}
    heads = draw("digits-p4", 0).stages[-1].whole()
    assert [len(part.members) for part in heads] == [4, 0]


def test_verdicts_name_the_strictest_candidates_below_the_threshold() -> None:
    candidates = draw("linear-p4", 0).candidates
    numbers = {"z2": 0.01, "flips": 0.2, "p4": 0.02, "p4m": 0.6}
    assert verdict(numbers, 0.1, candidates) == "p4"
    assert verdict(numbers, 0.3, candidates) == "flips and p4"
    assert verdict(numbers, 0.001, candidates) == "none"


def test_the_layers_of_a_deep_task_obey_what_its_name_says() -> None:
    problem = draw("deep-p4m-p4-none", 0)
    assert problem.layers == ("p4m", "p4", "none")
    rng = np.random.default_rng([0, 0, 1, 4])  # as the task draws
    h = rng.standard_normal((600, 25))
    assert np.allclose(problem.pool[0][:, 0], h[:400], atol=1e-6)
    members = ("p4m", "p4", "trivial")
    for number, (member, truth) in enumerate(zip(members, problem.layers, strict=True)):
        w = tasks._map(member, problem.groups, rng)
        shares = problem.stages[number].asymmetries(torch.tensor(w).float()[None, None])
        for name, share in shares.items():
            assert share < 1e-6 if name in problem.below(truth) else share > 0.2
        h = (h + h @ w.T) / 2**0.5
        h = h if number == 2 else np.maximum(h, 0.3 * h)
    noise = problem.pool[1].numpy() - h[:400]
    assert noise.std() / h.std() == pytest.approx(0.1, rel=0.02)


def test_networks_of_deep_tasks_have_the_skips_of_the_teacher() -> None:
    problem = draw("deep-p4m-p4-none", 0)
    network = StageNet(problem, rpp.make)
    x = problem.pool[0][:5]
    matrices = [layer.matrices()[0, 0].detach() for layer in network.layers]
    one = torch.nn.functional.leaky_relu((x[:, 0] + x[:, 0] @ matrices[0].T) / 2**0.5, 0.3)
    two = torch.nn.functional.leaky_relu((one + one @ matrices[1].T) / 2**0.5, 0.3)
    expected = (two + two @ matrices[2].T) / 2**0.5
    torch.testing.assert_close(network(x).detach(), expected, atol=1e-5, rtol=1e-4)
    # A tenth of a layer that doubles the mean square.
    size = float((matrices[0] ** 2).sum()) / 25
    assert size == pytest.approx(0.01 * 2, rel=0.5)


def test_larger_digits_are_those_of_select() -> None:
    problem = draw("digits16-p4", 0)
    assert problem.lattice == (16, 16)
    assert problem.outputs == 10  # five digits, and of the motion whether it mirrors
    assert problem.true_members == ["z2", "p4"]
    assert len(problem.pool[0]) > 500
    assert float(problem.pool[0].std()) == pytest.approx(1.0, abs=0.05)


def test_verdicts_on_layers_are_judged_one_by_one() -> None:
    case = result("rpp", "sequences-z1", "z1", z1=0.0, line_reflections=1.0)
    details = {
        **case.details,
        "numbers": [
            {"z1": 0.0, "line_reflections": 0.1},
            {"z1": 0.4, "line_reflections": 0.9},
            None,
        ],
        "true_members": [["z1"], ["z1"], []],
    }
    planted = ("z1", "z1", "none")
    case = replace(case, planted=planted, verdicts=planted, counted=(True,) * 3, details=details)
    found = judged(case, 0.2)
    assert found.verdicts == ("line_reflections", "none", "undecided")
    assert found.details["outcomes"] == ["wrong", "weaker", "undecided"]


def test_a_network_obeys_what_all_its_layers_obey() -> None:
    found = Found.of_layers([{"z2": 0.1, "p4": 0.2}, {"z2": 0.0, "p4": 0.9}], lambda x: x)
    assert found.numbers == {"z2": 0.1, "p4": 0.9}


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ("p4", "right"),
        ("p4m", "wrong"),
        ("flips and p4", "wrong"),
        ("z2", "weaker"),
        ("none", "weaker"),
        ("undecided", "undecided"),
    ],
)
def test_outcomes(found: str, kind: str) -> None:
    assert outcome(found, "p4", ["z2", "p4"]) == kind


def result(method: str, task: str, found: str, **numbers: float) -> CaseResult:
    truth = task.split("-")[1]
    candidates = {"z1": [], "line_reflections": ["z1"]}
    true = [] if truth == "none" else [*candidates[truth], truth]
    details = {
        "method": method,
        "task": task,
        "outcomes": [outcome(found, truth, true)],
        "accuracy": 0.5,
        "nll": 1.0,
        "numbers": [numbers],
        "candidates": candidates,
        "true_members": [true],
    }
    return CaseResult("peers", "k", (truth,), (found,), (True,), 9, 0.0, 0, 2.0, details)


def test_the_tuned_threshold_has_most_right_less_wrong_verdicts() -> None:
    results = [
        result("rpp", "sequences-z1", "z1", z1=0.01, line_reflections=0.5),
        result("rpp", "sequences-line_reflections", "z1", z1=0.02, line_reflections=0.2),
        result("rpp", "sequences-none", "none", z1=0.4, line_reflections=0.9),
    ]
    # Below 0.2 the second is weaker; from 0.4 the third is wrong.
    assert 0.2 <= tuned_threshold(results) < 0.4


def test_the_summary_counts_verdicts_with_wilson_intervals(tmp_path: Path) -> None:
    results = [
        result("rpp", "sequences-z1", "z1", z1=0.0, line_reflections=1.0),
        result("rpp", "sequences-z1", "line_reflections", z1=0.0, line_reflections=0.0),
        result("grid", "sequences-z1", "none", z1=1.0, line_reflections=1.0),
    ]
    content = peers.write_summary(tmp_path, results, "quick", "a title")
    rpp = content["methods"]["rpp"]
    assert (rpp["right"], rpp["wrong"], rpp["cases"], rpp["seconds"]) == (1, 1, 2, 2.0)
    # Wilson's interval of one in two, by hand: (½ + z²/4 ± z √(1/8 + z²/16)) / (1 + z²/2).
    assert rpp["right_interval"] == pytest.approx([0.0945, 0.9055], abs=1e-3)
    assert content["methods"]["grid"]["weaker"] == 1
    assert rpp["families"]["sequences"]["tasks"] == {
        "sequences-z1": {"z1": 1, "line_reflections": 1}
    }
    text = (tmp_path / "summary.md").read_text("utf-8")
    assert "| rpp (Finzi 2021)" in text
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| sequences-z1")]
    assert [cell.strip() for cell in rows[0][2:4]] == ["none", "z1, **line_reflections**"]
    assert (tmp_path / "right-wrong.png").stat().st_size > 1000


def test_peers_that_beat_ours_are_named_first(tmp_path: Path) -> None:
    results = [
        result("ours", "sequences-z1", "none", z1=1.0, line_reflections=1.0),
        result("rpp", "sequences-z1", "z1", z1=0.0, line_reflections=1.0),
        result("grid", "sequences-z1", "line_reflections", z1=0.0, line_reflections=0.0),
    ]
    results[1].details["accuracy"], results[2].details["accuracy"] = 0.7, 0.9
    peers.write_summary(tmp_path, results, "quick", "a title")
    first = (tmp_path / "summary.md").read_text("utf-8").split("| method")[0]
    assert "- all tasks: rpp (1 right, 0 wrong); ours 0 right, 0 wrong\n" in first
    assert "- sequences: rpp (1 right, 0 wrong); ours 0 right, 0 wrong\n" in first
    assert "accuracy: grid 0.900, rpp 0.700; ours 0.500" in first
    assert "  - NLL" not in first


def test_presets_have_every_method_on_every_task_that_it_applies_to() -> None:
    cases = PRESETS["quick"].cases(5)
    assert {c.method for c in cases} == set(METHODS)
    assert {c.task for c in cases} == set(TASKS)
    assert {c.seed for c in cases} == {5}
    assert {c.task.split("-")[0] for c in cases if c.method == "lconv"} == {"sets", "sequences"}
    deep = {c.method for c in cases if c.task.startswith("deep-")}
    assert deep == {n for n, m in METHODS.items() if m.layer_wise} - {"lconv"}
    tuning = {seed for seeds in TUNING.values() for seed in seeds}
    for preset in PRESETS.values():
        assert not tuning & {c.seed for c in preset.cases()}


def test_methods_without_a_published_criterion_have_a_threshold_for_each_family() -> None:
    for method in METHODS.values():
        if method.criterion == "tuned":
            own = {f for f in FAMILIES if method.applies(f) and f != "digits16"}
            assert set(THRESHOLDS[method.name]) == own
            if "digits" in own:
                assert method.threshold("digits16-p4") == THRESHOLDS[method.name]["digits"]
        else:
            assert method.name not in THRESHOLDS


def test_reproduce_runs_chosen_rows(tmp_path: Path) -> None:
    place = str(tmp_path / "out")
    row = "grid-linear-z2-s0"
    done = CliRunner().invoke(app, ["reproduce", "peers", "--row", row, "--out", place, "--json"])
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout.splitlines()[-1])
    assert content["study"] == "peers"
    assert set(content["methods"]) == {"grid"}
    assert {"right", "wrong", "accuracy", "seconds"} <= set(content["methods"]["grid"])


def test_a_case_of_a_method_that_cannot_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(problem: Problem) -> Found:
        return Found(dict.fromkeys(problem.names, 1.0), lambda x: x.flatten(1), undecided=True)

    method = METHODS["ours"]
    monkeypatch.setitem(METHODS, "ours", method.__class__("ours", "select", search))
    found = PeerCase("ours", "linear-z2", 0).run(Path())
    assert found.verdicts == ("undecided",)
    assert found.details["outcomes"] == ["undecided"]


def test_tuning_finds_the_threshold_between_what_holds_and_what_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def search(problem: Problem) -> Found:
        true = problem.true_members
        numbers = {n: 0.2 if n in true else 0.6 for n in problem.names}
        return Found(numbers, lambda x: x.flatten(1))

    method = METHODS["rpp"].__class__("rpp", "Finzi 2021", search, "tuned")
    monkeypatch.setitem(METHODS, "rpp", method)
    monkeypatch.setattr(tune, "METHODS", {"rpp": method, "grid": METHODS["grid"]})
    found = tune.tune(tmp_path, ("linear",))
    assert set(found) == {"rpp"}
    assert set(found["rpp"]) == {"linear"}
    assert 0.2 < found["rpp"]["linear"] < 0.6
    said = f"rpp, linear: {THRESHOLDS['rpp']['linear']:g}, most favourable"
    assert said in capsys.readouterr().out
