"""The presets "paper" are the published protocol, for every row of every study.

Adam with a rate of 0.01 for weights and 0.1 for hyperparameters, both cosine-annealed to zero, in
batches of 128, for 4000 epochs on CIFAR-10 and 1000 on MNIST; hyperparameters every 5 epochs after
10; all data, and unit prior variances at the start.
"""

from __future__ import annotations

import pytest
import torch

from groupella.data import ImageData
from groupella.evidence import Prior
from groupella.experiments.commands.reproduce import SCALES, find, studies
from groupella.networks import PRESETS, Trunk, count_parameters
from groupella.runs.study import Row

# model of the roto-translation table: α, printed number of parameters, accuracy
ROTATIONS = {
    "full": (10, 1025380, 73.70),
    "separable": (10, 214550, 61.31),
    "depthwise-separable": (10, 139735, 51.63),
    "full-matched": (6, 371200, 69.89),
    "separable-matched": (13, 358463, 59.99),
    "depthwise-separable-matched": (16, 346215, 49.77),
    "pointwise": (10, 338770, 66.77),
    "classical": (10, 338770, 57.89),
}
ALPHA = {"toy": 10, "cifar10": 10, "multigroup": 2, "layers": 10}


def learns(study: str, row: Row) -> bool:
    """Whether the table's column is that of learned hyperparameters, not of MAP."""
    return study == "layers" or row.name.endswith(" evidence")


def network_of(row: Row) -> Trunk:
    """Its network on 32×32 images, without memory for weights."""
    preset = PRESETS[str(row.job.preset)]
    channels, classes = preset.in_channels, preset.classes
    x, y = torch.zeros(1, channels, 32, 32), torch.zeros(1, dtype=torch.int64)
    names = tuple(map(str, range(classes)))
    shape = ImageData(x, y, x, y, names, "shape", 0, (0.0,) * channels, (1.0,) * channels)
    with torch.device("meta"):
        return row.job.network(shape)


@pytest.mark.parametrize("study", studies())
def test_every_row_trains_as_published(study: str) -> None:
    chosen = find(study, "paper")
    assert chosen.budget is None
    for row in chosen.rows(0):
        job, settings = row.job, row.job.settings()
        epochs = 4000 if job.data.startswith("cifar10") else 1000
        assert (settings.epochs, settings.batch_size, settings.lr) == (epochs, 128, 0.01), row.name
        assert (settings.schedule, settings.prior_step) == ("cosine", "gradient")
        assert (settings.clip, settings.patience) == (None, None)
        assert (job.train_size, job.init) == (None, "balanced")
        assert job.data.startswith(("cifar10", "mnist"))
        if not learns(study, row):
            assert settings.method == "map", row.name
            continue
        assert settings.method == "adam", row.name
        assert (settings.hyper_lr, settings.hyper_schedule) == (0.1, "cosine")
        assert (settings.burn_in, settings.update_every) == (10, 5)
        assert (settings.curvature_subset, settings.curvature_samples) == (None, None)
        assert (settings.prune_from, settings.network_hyper) == (None, "evidence")


@pytest.mark.parametrize("study", ALPHA)
def test_every_row_is_as_wide_as_published(study: str) -> None:
    assert {row.job.alpha for row in find(study, "paper").rows(0)} == {ALPHA[study]}


def test_rows_of_the_separable_table_are_the_published_networks() -> None:
    rows = {row.name: row for row in find("separable", "paper").rows(0)}
    assert list(rows) == list(ROTATIONS)
    for name, (alpha, parameters, accuracy) in ROTATIONS.items():
        job = rows[name].job
        assert (job.data, job.alpha) == ("cifar10:rotated", alpha)
        assert [m.name for m in job.group_set()] == ["z2" if name == "classical" else "p4"]
        assert rows[name].paper == {"accuracy": accuracy}
        # One of the printed numbers is ten more than there are.
        count = count_parameters(network_of(rows[name]), weights_only=True)
        assert parameters - count == (10 if name == "depthwise-separable" else 0)


def test_the_inspected_network_is_the_published_one() -> None:
    (row,) = find("layers", "paper").rows(0)
    assert (row.name, row.job.data, row.job.prior) == ("FC+CONV", "cifar10", "weights")
    assert row.paper == {"nll": 0.489, "accuracy": 83.32, "evidence": 1.019}
    network = network_of(row)
    assert [list(layer.paths) for layer in network.layers] == [["FC", "CONV"]] * 8
    assert round(count_parameters(network, weights_only=True) / 1e6, 1) == 133.9


@pytest.mark.parametrize("study", ["toy", "cifar10", "multigroup", "layers"])
def test_prior_variances_are_one_at_the_start(study: str) -> None:
    rows = [row for row in find(study, "paper").rows(0) if learns(study, row)]
    for row in {row.job.preset: row for row in rows}.values():
        prior = Prior.from_network(network_of(row), on=row.job.prior)  # type: ignore[arg-type]
        assert {group.initial for group in prior} == {1.0}, row.name


@pytest.mark.parametrize("scale", SCALES)
def test_the_last_three_networks_of_the_cifar_table_have_priors_on_lengthscales(scale: str) -> None:
    for row in find("cifar10", scale).rows(0):
        on_lengthscales = row.name.rsplit(" ", 1)[0] in {
            "S-FC:lengthscales",
            "S-CONV:lengthscales",
            "S-FC+S-CONV:lengthscales",
        }
        assert row.job.prior == ("lengthscales" if on_lengthscales else "weights"), row.name
    if scale != "quick":
        priors = [row.job.prior for row in find("cifar10", scale).rows(0)]
        assert priors.count("lengthscales") == 6
