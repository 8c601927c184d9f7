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
from groupella.groups import GroupSet, Symmetry, p4, trivial, z2
from groupella.harden import harden
from groupella.networks import Trunk, invariant_net, trunk
from groupella.nn.standardise import Standardise
from groupella.training import FindSettings, Fit, find_symmetry, fit, load_checkpoint

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


def trained(x: Tensor, y: Tensor, likelihood: nn.Module | None = None, **options: object) -> Fit:
    outputs = 2 if likelihood is None else y.shape[1]
    schedule = {"epochs": 6, "burn_in": 2, "update_every": 2, "batch_size": 20}
    return fit(network(outputs), (x, y), likelihood, **schedule, progress=False, **options)


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
