"""Deep teachers: what is planted is there, and counts only if it matters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from groupella.curvature import curvature
from groupella.evidence.likelihoods import Gaussian
from groupella.experiments.planted import CANDIDATES, PRESETS, DeepCase
from groupella.experiments.planted import _deep as deep
from groupella.experiments.planted._pyramid import GentleFC, Pyramid
from groupella.nn.layer import ResidualPathway
from groupella.testing import assert_equivariant
from groupella.training import Search

PLANT = ("p4m", "p4", "trivial")


@pytest.fixture(scope="module")
def drawn() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor], Pyramid]:
    return deep.draw(DeepCase(PLANT, n=200))


def test_layers_of_the_teacher_obey_their_plants(
    drawn: tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor], Pyramid],
) -> None:
    for layer, member in zip(drawn[2].layers, PLANT, strict=True):
        assert isinstance(layer, ResidualPathway)
        if member != "trivial":
            assert_equivariant(layer, layer.space_in, layer.space_out, CANDIDATES[member])
        for stricter in deep.next_stricter(member):
            with pytest.raises(AssertionError):
                assert_equivariant(layer, layer.space_in, layer.space_out, CANDIDATES[stricter])


def test_labels_are_spread_and_those_of_the_teacher(
    drawn: tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor], Pyramid],
) -> None:
    train, held_out, teacher = drawn
    everything = torch.cat([train[1], held_out[1]])
    assert float(torch.bincount(everything).max()) <= 0.3 * len(everything)
    assert deep.accuracy(teacher, train) == 1.0


def test_noise_replaces_training_labels_only() -> None:
    clean, held_out, _ = deep.draw(DeepCase(PLANT, n=400))
    noisy, same, _ = deep.draw(DeepCase(PLANT, n=400, noise=0.5))
    changed = float((clean[1] != noisy[1]).double().mean())
    assert 0.35 < changed < 0.52
    assert torch.equal(held_out[1], same[1])


def test_layers_of_a_student_start_small_beside_what_skips_them(
    drawn: tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor], Pyramid],
) -> None:
    (x, _), _, teacher = drawn
    for pyramid, size in ((deep._student(0, 0, x, teacher), deep.LAYER_SIZE), (teacher, 1.0)):
        seen, skipped = pyramid.inputs(0, x)
        made = pyramid.pathway(0)(seen).std() / skipped.std()
        assert float(made.detach()) == pytest.approx(size, rel=0.1)


def test_units_of_the_free_path_change_its_steps_and_nothing_else() -> None:
    space = CANDIDATES.space((2, 2), 1)
    path = GentleFC(space, space).double()
    x = torch.randn(3, *space.shape, dtype=torch.float64)
    expected = x.flatten(1) @ (path.unit * path.weight).T
    torch.testing.assert_close(path(x).flatten(1), expected)
    data = (x, torch.zeros(3, space.size, dtype=torch.float64))
    network = torch.nn.Sequential(path, torch.nn.Flatten())
    block = curvature(network, Gaussian(noise=1.0), data)["0.weight"]
    moment = path.unit**2 * x.flatten(1).T @ x.flatten(1)
    torch.testing.assert_close(
        block.to_dense(), torch.kron(torch.eye(space.size, dtype=torch.float64), moment)
    )


def test_student_started_from_the_teacher_agrees_with_it(
    drawn: tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor], Pyramid],
) -> None:
    train, _, teacher = drawn
    torch.manual_seed(0)
    student = Pyramid(deep.CHANNELS, deep.CLASSES)
    before = deep.accuracy(student.read_as(teacher), train)
    prior = deep.start_from(student, teacher)
    assert deep.accuracy(student, train) > before + 0.4
    assert prior.precision("layers.0/z2") == pytest.approx(300)


def test_next_stricter_members() -> None:
    assert deep.next_stricter("p4m") == ()
    assert set(deep.next_stricter("z2")) == {"p4", "flips"}
    assert deep.next_stricter("trivial") == ("z2",)


def test_plants_do_not_get_stricter_with_depth() -> None:
    for case in PRESETS["full"].cases():
        if isinstance(case, DeepCase):
            for before, after in zip(case.planted, case.planted[1:], strict=False):
                assert CANDIDATES.contains(before, after)


def test_identifiable_means_worse_with_every_stricter_group() -> None:
    forced = [{}, {"p4m": 0.6}, {"p4": 0.99, "flips": 0.5}]
    assert deep.identifiable(forced) == (True, True, False)


@pytest.mark.slow
def test_deep_cases_run_to_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(deep.STUDENT, epochs=2, burn_in=1, curvature_subset=50)
    monkeypatch.setattr(deep, "STUDENT", short)
    monkeypatch.setattr(deep, "FORCED", replace(deep.FORCED, epochs=1))
    monkeypatch.setattr(deep, "SEARCH", Search(restarts=2, first=1, finalists=1, again=1))
    result = DeepCase(("p4m", "p4m", "p4"), n=60).run(tmp_path / "deep")
    assert len(result.verdicts) == 3
    assert set(result.details["forced"][2]) == {"p4m"}
    assert result.part == "deep"


@pytest.mark.slow
def test_a_search_on_a_part_goes_on_and_is_settled_on_all_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = replace(deep.STUDENT, epochs=2, burn_in=1, curvature_subset=50)
    few = Search(restarts=1, first=1, again=1, most_trials=1)
    for name, value in {"STUDENT": short, "WHOLE": short, "SEARCH": few, "SEARCHED": 60}.items():
        monkeypatch.setattr(deep, name, value)
    monkeypatch.setattr(deep, "FORCED", replace(deep.FORCED, epochs=1))
    seen: list[tuple[str, int]] = []
    handed: list[Any] = []

    def spied(name: str) -> Any:
        true = getattr(deep, name)

        def spy(*arguments: Any, **rest: Any) -> Any:
            seen.append((name, len(arguments[1][0])))
            found = true(*arguments, **rest)
            handed.extend((arguments[0], found))
            return found

        return spy

    for name in ("best_start", "go_on", "settle"):
        monkeypatch.setattr(deep, name, spied(name))
    DeepCase(PLANT, n=100).run(tmp_path / "more")
    assert seen == [("best_start", 60), ("go_on", 100), ("settle", 100)]
    assert handed[1] is handed[2]
    assert handed[3] is handed[4]
    seen.clear()
    handed.clear()
    DeepCase(PLANT, n=50).run(tmp_path / "fewer")
    assert seen == [("best_start", 50), ("settle", 50)]
    assert handed[1] is handed[2]
