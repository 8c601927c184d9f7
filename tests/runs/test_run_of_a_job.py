"""A run does what its job says: augmentation, prior, and errors measured before and after."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from groupella.data import Augmentation, ImageData
from groupella.networks import Trunk
from groupella.runs.directory import load, run
from groupella.runs.jobs import Job

JOB = Job(
    title="a dot in a corner",
    data="made here",
    groups="z2",
    alpha=1,
    hidden=4,
    blocks=((1, 1), (2, 2)),
    init="balanced",
    training={
        "epochs": 2,
        "burn_in": 2,
        "lr": 0.05,
        "curvature_subset": 20,
        "curvature_samples": 1,
        "batch_size": 20,
    },
)


def dots(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noise with a bright dot in one of four corners; the label says in which."""
    generator = torch.Generator().manual_seed(seed)
    x = 0.1 * torch.rand(n, 1, 4, 4, generator=generator)
    y = torch.randint(4, (n,), generator=generator)
    x[torch.arange(n), 0, 3 * (y // 2), 3 * (y % 2)] = 3.0
    return x, y


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> ImageData:
    """What every job loads."""
    names = ("top left", "top right", "bottom left", "bottom right")
    made = ImageData(*dots(60, 1), *dots(40, 2), names, "dots", 0, (0.0,), (1.0,))
    monkeypatch.setattr(Job, "load", lambda job, *_, **__: made)
    return made


def test_a_run_augments_its_training_batches_as_the_data_say(
    data: ImageData, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[Tensor] = []

    class Noted(Augmentation):
        def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
            given.append(x.clone())
            return super().__call__(x, generator)

    augmented = replace(data, augmentation=Noted(shift=1))
    monkeypatch.setattr(Job, "load", lambda job, *_, **__: augmented)
    run(JOB, tmp_path, progress=False)
    assert [len(x) for x in given] == [20] * 6
    for epoch in (torch.cat(given[:3]), torch.cat(given[3:])):
        one, other = (x.flatten(1).sort(0).values for x in (epoch, data.train_x))
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("prior", ["weights", "lengthscales"])
def test_a_run_has_the_prior_of_its_job(data: ImageData, tmp_path: Path, prior: str) -> None:
    job = replace(JOB, paths="S-FC+S-CONV", increments=False, prior=prior)
    done = run(job, tmp_path, progress=False)
    assert done.fit is not None
    found = done.fit.prior
    learned = {g.role for g in found if g.learn and g.path is not None}
    assert learned == {"path" if prior == "weights" else "lengthscale", "offset"}
    # What is learned moves, and what is not stays where it was.
    anchors = [found.precision(g.name) for g in found if g.role == "path"]
    assert len(anchors) == 4
    assert all((value == 1.0) == (prior == "lengthscales") for value in anchors)


def test_a_report_tells_errors_before_training_from_errors_after(
    data: ImageData, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fresh = Job.network

    def strict_at_first(job: Job, data: ImageData) -> Trunk:
        """One factor of every free path is zero, which a step of training changes."""
        network = fresh(job, data)
        with torch.no_grad():
            for layer in network.layers:
                layer.paths["trivial"].theta1.zero_()
        return network

    monkeypatch.setattr(Job, "network", strict_at_first)
    by_map = replace(JOB, training={**JOB.training, "method": "map"})
    done = run(by_map, tmp_path, progress=False)
    assert [(e.layer, e.group) for e in done.content.errors] == [
        ("layers.0", "z2"),
        ("layers.1", "z2"),
    ]
    for error in done.content.errors:
        assert error.before is not None
        assert error.after is not None
        assert error.before < 1e-5
        assert error.after > 1e-4
    assert done.fit is not None
    first = done.fit.network.layers[0].eval()
    x = torch.randn(4, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        moved, expected = first(x.roll(1, 2)), first(x).roll(1, 2)
    by_hand = float((moved - expected).abs().max() / expected.abs().max())
    assert 0.2 < by_hand / (done.content.errors[0].after or 0.0) < 5  # other inputs
    assert load(tmp_path).content.errors == done.content.errors
    page = done.report.read_text(encoding="utf-8")
    rows = re.findall(r"<td class=\"exact\">[^<]*</td><td>([^<]*)</td>", page)
    assert [float(after) for after in rows] == pytest.approx(
        [e.after for e in done.content.errors], rel=0.1
    )
