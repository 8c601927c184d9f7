"""The units of inputs and targets change neither start, precisions nor verdict."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from groupella.evidence.likelihoods import Categorical, Gaussian
from groupella.groups import (
    GroupSet,
    Symmetry,
    line_reflections,
    p4,
    permutations,
    translations,
    trivial,
    z2,
)
from groupella.harden import harden
from groupella.networks import Trunk, invariant_net, trunk, with_units
from groupella.nn.layer import ResidualPathway
from groupella.nn.pooling import GlobalPool
from groupella.nn.standardise import Standardise
from groupella.training import (
    FindSettings,
    Fit,
    find_symmetry,
    fit,
    load_checkpoint,
    r_squared,
)

UNITS = {"1e-6": (1e-6, 0.0), "1e6": (1e6, 0.0), "+1e8": (1.0, 1e8), "1e-9": (1e-9, 0.0)}


def images(n: int = 60) -> tuple[Tensor, Tensor]:
    """Bars along one of the two axes, anywhere, in float64."""
    generator = torch.Generator().manual_seed(0)
    x = 0.2 * torch.randn(n, 1, 4, 4, generator=generator, dtype=torch.float64) + 3.0
    y = torch.randint(0, 2, (n,), generator=generator)
    at = torch.randint(0, 4, (n,), generator=generator)
    for i in range(n):
        bar = x[i, 0, at[i]] if y[i] else x[i, 0, :, at[i]]
        bar += 1.0
    return x, y


def network(outputs: int = 2) -> Trunk:
    torch.manual_seed(0)
    groups = GroupSet(z2(), p4(), trivial())
    return trunk(groups, None, 2, 4, outputs, in_channels=1, blocks=[(1, 1), (1, 2)], hidden=2)


def own_network(outputs: int) -> nn.Module:
    torch.manual_seed(0)
    groups = GroupSet(z2(), p4(), trivial())
    space = groups.space((4, 4), 1, "trivial")
    hidden = groups.space((4, 4), 2)
    layers = ResidualPathway(space, hidden, groups), ResidualPathway(hidden, hidden, groups)
    head = GlobalPool(hidden), nn.Linear(8, outputs)
    return with_units(nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), *head))


def trained(x: Tensor, y: Tensor, likelihood: nn.Module | None = None, **options: object) -> Fit:
    outputs = 2 if likelihood is None else y.shape[1]
    schedule = {"epochs": 6, "burn_in": 2, "update_every": 2, "batch_size": 20}
    make = options.pop("make", network)
    return fit(make(outputs), (x, y), likelihood, **schedule, progress=False, **options)  # type: ignore[operator]


def same(found: Fit, plain: Fit) -> None:
    for name, value in plain.prior.state_dict().items():
        torch.testing.assert_close(found.prior.state_dict()[name], value, rtol=1e-3, atol=1e-3)
    for (name, value), other in zip(
        plain.network.named_parameters(), found.network.parameters(), strict=True
    ):
        torch.testing.assert_close(other, value, rtol=1e-3, atol=1e-3, msg=name)
    verdicts = [[layer.verdict for layer in f.selection().layers] for f in (found, plain)]
    assert verdicts[0] == verdicts[1]


@pytest.fixture(scope="module")
def plain() -> Fit:
    return trained(*images())


@pytest.mark.parametrize("name", UNITS)
def test_units_of_the_inputs(name: str, plain: Fit) -> None:
    x, y = images()
    factor, offset = UNITS[name]
    found = trained(factor * x + offset, y)
    same(found, plain)
    assert found.log_evidence == pytest.approx(plain.log_evidence, abs=0.05)
    logits = [f.network.eval()(a) for f, a in ((found, factor * x + offset), (plain, x))]
    torch.testing.assert_close(*logits, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("factor", "offset"), [(1e-6, 0.0), (1e6, 0.0), (1e6, 3e6)])
def test_units_of_the_targets(factor: float, offset: float) -> None:
    x, label = images()
    y = torch.stack([label.double(), 0.5 * x[:, 0, 0, 0]], 1)
    likelihoods = Gaussian(), Gaussian()
    plain = trained(x, y, likelihoods[0])
    found = trained(1e6 * x, factor * y + offset, likelihoods[1])
    same(found, plain)
    ratio = found.likelihood.noise / plain.likelihood.noise
    assert float(ratio.detach()) == pytest.approx(factor, rel=1e-3)
    shift = -y.numel() * math.log(factor)
    assert found.log_evidence - shift == pytest.approx(plain.log_evidence, abs=0.05)
    expected = factor * plain.network.eval()(x) + offset
    spread = factor * float(y.std())
    torch.testing.assert_close(found.network.eval()(1e6 * x), expected, rtol=0, atol=1e-2 * spread)
    hard = harden(found.network).eval()(1e6 * x)
    torch.testing.assert_close(hard, found.network(1e6 * x), rtol=1e-5, atol=1e-4 * spread)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_units_of_a_users_own_network(factor: float) -> None:
    x, label = images()
    plain = trained(x, label, make=own_network)
    found = trained(factor * x, label, make=own_network)
    same(found, plain)
    assert found.log_evidence == pytest.approx(plain.log_evidence, abs=0.05)
    y = torch.stack([label.double(), 0.5 * x[:, 0, 0, 0]], 1)
    plain = trained(x, y, Gaussian(), make=own_network)
    found = trained(x / factor, factor * (y + 3.0), Gaussian(), make=own_network)
    same(found, plain)
    shift = -y.numel() * math.log(factor)
    assert found.log_evidence - shift == pytest.approx(plain.log_evidence, abs=0.05)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_a_planted_symmetry_and_noise_are_found_in_any_units(factor: float) -> None:
    """y = x − ½ (x moved by a site) + noise of 0.1 obeys shifts and no reflection."""
    random = torch.Generator().manual_seed(0)
    x, noise = torch.randn(2, 100, 1, 6, generator=random, dtype=torch.float64)
    y = (x - 0.5 * x.roll(1, 2) + 0.1 * noise).flatten(1)
    groups = GroupSet(trivial(), translations(1), line_reflections())
    space = groups.space((6,), 1, "trivial")
    torch.manual_seed(0)
    own = with_units(nn.Sequential(ResidualPathway(space, space, groups), nn.Flatten()))
    schedule = {"epochs": 20, "lr": 0.1, "burn_in": 4, "update_every": 4, "batch_size": 25}
    found = fit(own, (x / factor, factor * y), Gaussian(), **schedule, progress=False)
    assert found.selection().verdict == "z1"
    assert float(found.likelihood.noise.detach()) == pytest.approx(0.1 * factor, rel=0.1)


def test_a_noise_that_is_given_is_in_the_units_of_the_targets() -> None:
    x, label = images()
    y = 1e3 * label.double()[:, None]
    settings = {"epochs": 1, "method": "map", "progress": False}
    for likelihood in (Gaussian(5.0), Gaussian(5.0, learned=False)):
        fit(network(1), (x, y), likelihood, **settings)
        assert float(likelihood.noise.detach()) == pytest.approx(5.0, rel=0.2)


def test_arrays_and_integers_are_accepted(plain: Fit) -> None:
    x, y = images()
    same(trained((x + 1e8).numpy(), y.numpy()), plain)
    rounded = (1000 * x).round()
    assert torch.equal(
        trained(rounded.int(), y).network(rounded.int()), trained(rounded, y).network(rounded)
    )


def test_the_saved_and_the_hardened_network_take_raw_inputs(tmp_path: Path) -> None:
    x, y = images()
    x = 1e-6 * x + 1.0
    found = trained(x, y, directory=tmp_path)
    expected = found.network.eval()(x)
    assert expected.std() > 1e-3
    again = network().eval()
    again.load_state_dict(load_checkpoint(tmp_path / "last.safetensors").section("network"))
    assert torch.equal(again(x), expected)
    torch.testing.assert_close(harden(found.network).eval()(x), expected)
    resumed = trained(x, y, directory=tmp_path)
    assert torch.equal(resumed.network.eval()(x), expected)


def test_a_second_fit_keeps_the_first_units() -> None:
    x, y = images()
    found = trained(x, y)
    mean = found.network.inputs.mean.clone()
    fit(found.network, (x[:20], y[:20]), epochs=1, method="map", progress=False)
    assert torch.equal(found.network.inputs.mean, mean)


def test_precision_changes_and_older_files_do_no_harm() -> None:
    x, _ = images()
    module = Standardise(GroupSet(p4()).space((4, 4), 1, "trivial"))
    assert module(x) is x
    module.calibrate([x[:7] + 1e8, x[7:] + 1e8])
    expected = ((x - x.mean()) / x.std(correction=0)).float()
    for changed in (module, copy.deepcopy(module).half().float(), copy.deepcopy(module).to("cpu")):
        torch.testing.assert_close(changed(x + 1e8), expected, rtol=1e-5, atol=1e-5)
    assert copy.deepcopy(module).double()(x).dtype == torch.float64
    module.load_state_dict({})
    assert module(x) is x


def test_where_signs_change_nothing_is_subtracted() -> None:
    signs = Symmetry.from_generators("signs", (4,), [np.diag([-1.0, -1.0, 1.0, 1.0])])
    net = invariant_net(signs, (4,), 1, 2)
    x = torch.randn(50, 1, 4) + 5.0
    fit(net, (x, torch.arange(50) % 2), Categorical(), epochs=1, method="map", progress=False)
    assert net.inputs.calibrated
    assert float(net.inputs.mean.abs().max()) == 0.0
    net.eval()
    moved = x * torch.tensor([-1.0, -1.0, 1.0, 1.0])
    torch.testing.assert_close(net(moved), net(x), rtol=1e-4, atol=1e-5)


def test_a_search_refuses_targets_whose_offset_hides_them() -> None:
    x, label = images()
    y = 1e8 + label[:, None].double()
    with pytest.raises(ValueError, match=r"a mean of 1e\+08, 1,000 times .*subtract it"):
        find_symmetry((x, y), GroupSet(z2()), task="regression", progress=False)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_a_search_does_not_depend_on_the_units_of_its_targets(
    factor: float, weighted: bool
) -> None:
    """y = Σx obeys permutations; its network answers in the units of its targets.

    Rounding grows during training: the same data plus 3 change log-likelihoods by 0.02.
    """
    random = torch.Generator().manual_seed(0)
    x = torch.randn(200, 1, 5, generator=random)
    y = x.sum(2) + 0.2 * torch.randn(200, 1, generator=random)
    weights = torch.ones(200) if weighted else None
    settings = FindSettings(epochs=8, width=8, looks=1)
    options = {"settings": settings, "task": "regression", "weights": weights, "progress": False}
    found = [
        find_symmetry((a, b), GroupSet(permutations(5), trivial()), **options)  # type: ignore[arg-type]
        for a, b in ((x, y), (x / factor, factor * (y + 3.0)))
    ]
    assert found[0].verdict == found[1].verdict == "s5"
    for one, other in zip(*(f.consequences for f in found), strict=True):
        assert one.nll == pytest.approx(other.nll, abs=0.06)
        assert one.r2 == pytest.approx(other.r2, abs=0.02)
    with torch.no_grad():
        plain, other = found[0].network(x), found[1].network(x / factor) / factor - 3.0
    assert r_squared(other, y) == pytest.approx(r_squared(plain, y), abs=0.02)


@pytest.mark.parametrize("name", ["1e-6", "+1e8"])
def test_the_verdict_of_a_search(name: str) -> None:
    x, y = images(120)
    factor, offset = UNITS[name]
    settings = FindSettings(epochs=2, width=8, looks=1, layers=False)
    found = [
        find_symmetry((a, y), GroupSet(z2(), p4()), settings=settings, progress=False)
        for a in (x, factor * x + offset)
    ]
    assert found[0].verdict == found[1].verdict
    for one, other in zip(*(f.consequences for f in found), strict=True):
        assert one.nll == pytest.approx(other.nll, abs=1e-2)
    logits = [f.network(a) for f, a in zip(found, (x, factor * x + offset), strict=True)]
    torch.testing.assert_close(*logits, rtol=1e-2, atol=1e-2)
