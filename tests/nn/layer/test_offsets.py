"""Offsets of paths: which there are, what removes them, their evidence, what they explain."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
from torch import Tensor, nn

from groupella.decide import selection
from groupella.evidence import Evidence, Prior, removal
from groupella.evidence.likelihoods import Categorical, Gaussian
from groupella.groups import GroupSet, Symmetry, c4, flips, p4, p4m, permutations, trivial, z2
from groupella.harden import harden
from groupella.networks import preset, trunk
from groupella.nn.layer import ResidualPathway, rescale
from groupella.testing import assert_equivariant
from groupella.training import fit

GROUPS = GroupSet(z2(), trivial())
FREE = ("FC", "F-FC", "F-FC/group", "S-FC")


def layer_of(free: str = "F-FC", groups: GroupSet = GROUPS, **options: object) -> ResidualPathway:
    torch.manual_seed(0)
    source, target = groups.space((4, 4), 2), groups.space((4, 4), 3)
    layer = ResidualPathway(source, target, groups, free=free, **options)  # type: ignore[arg-type]
    for name, parameter in layer.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    return layer.double()


def offset(layer: ResidualPathway) -> Tensor:
    found = layer.offsets["trivial"].offset
    assert isinstance(found, Tensor)
    return found


@pytest.mark.parametrize("free", FREE)
def test_it_is_added_by_the_free_path_and_dropped_with_it(free: str) -> None:
    layer = layer_of(free, GroupSet(z2(), p4(), trivial()))
    x = torch.randn(2, *layer.space_in.shape, dtype=torch.float64)
    with torch.no_grad():
        y, before = layer(x), offset(layer).clone()
        # Without its means over sites: they are constants of translations.
        expected = before.view(3, 4, 16) - before.view(3, 4, 16).mean(2, keepdim=True)
        offset(layer).zero_()
        torch.testing.assert_close(y, layer(x) + expected.reshape(layer.space_out.shape))
        offset(layer).copy_(before)
    for member in (p4(), z2()):
        strict = layer.strict(member.name)
        assert "trivial" not in strict.offsets
        assert_equivariant(strict, layer.space_in, layer.space_out, member, dtype=torch.float64)


@pytest.mark.parametrize("free", FREE)
def test_it_stays_in_the_plain_network(free: str) -> None:
    layer = layer_of(free, GroupSet(z2(), p4(), trivial()))
    x = torch.randn(2, *layer.space_in.shape, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(harden(layer)(x), layer(x))
        kept = [path for path in layer.paths if path != "trivial"]
        torch.testing.assert_close(harden(layer, {"": kept})(x), layer.only(kept)(x))


@pytest.mark.parametrize("options", [{"offsets": False}, {"bias": False}, {"paper_biases": True}])
def test_it_is_an_option(options: dict[str, bool]) -> None:
    layer = layer_of("F-FC", **options)
    assert not [n for n, _ in layer.named_parameters() if "offset" in n]


MOLECULE = Symmetry.from_generators("molecule", 5, [[1, 0, 2, 3, 4], [0, 1, 3, 4, 2]])


@pytest.mark.parametrize(
    ("groups", "lattice"),
    [
        (GroupSet(z2(), p4(), p4m(), trivial()), (4, 4)),
        (GroupSet(z2(), p4(), flips()), (4, 4)),
        (GroupSet(c4(), z2(), trivial()), (2, 2)),
        (GroupSet(permutations(5), MOLECULE, trivial()), (5,)),
    ],
    ids=str,
)
def test_what_a_strict_layer_may_add_is_what_its_member_leaves_unchanged(
    groups: GroupSet, lattice: tuple[int, ...]
) -> None:
    """As many numbers as the member has orbits in fibre × sites, and no direction twice."""
    space = groups.space(lattice, 1)
    layer = ResidualPathway(space, space, groups).double()
    numbers = np.arange(space.size, dtype=float).reshape(1, *space.shape)
    for member in groups:
        strict = layer.strict(member.name)
        owned = [p for n, p in strict.named_parameters() if n == "bias" or "offset" in n]
        rows = []
        for parameter in owned:
            for entry in range(parameter.numel()):
                with torch.no_grad():
                    parameter.view(-1)[entry] = 1.0
                    constant = strict.constant()
                    assert constant is not None
                    rows.append(constant.expand(space.shape).flatten().numpy().copy())
                    parameter.zero_()
        parent = list(range(space.size))
        for g in space.generators(member):
            for a, b in enumerate(space.act(g, numbers).ravel().astype(int)):
                old, new = parent[a], parent[b]
                parent = [new if p == old else p for p in parent]
        assert np.linalg.matrix_rank(np.array(rows)) == len(set(parent))
    parts = {n: b.above.array for n, b in layer.offsets.items()}
    for name, above in parts.items():
        nn.init.normal_(layer.offsets[name].offset)
        given = layer.offsets[name]().detach().expand(space.shape).flatten().numpy()
        if above.shape[1] < space.size:
            above = np.repeat(above, space.lattice.size, 1)
        np.testing.assert_allclose(above @ given, 0, atol=1e-12)
        nn.init.zeros_(layer.offsets[name].offset)


def test_a_layer_to_scalars_needs_none() -> None:
    scalars = GROUPS.space((), 3, "trivial")
    layer = ResidualPathway(scalars, scalars, GROUPS, "FC")
    assert not [n for n, _ in layer.named_parameters() if "offset" in n]


def test_the_papers_networks_have_none() -> None:
    with torch.device("meta"):
        for made in (preset("toy-digit/F-FC+CONV"), preset("cifar10/FC", paper_biases=False)):
            assert not [n for n, _ in made.named_parameters() if "offset" in n]
        ours = trunk(GROUPS, "F-FC+CONV", 2)
        assert [n for n, _ in ours.named_parameters() if "offset" in n]


def test_it_is_rescaled_with_its_channel() -> None:
    layer = layer_of("F-FC")
    x = torch.randn(2, *layer.space_in.shape, dtype=torch.float64)
    factor, shift = torch.rand(3).double() + 0.5, torch.randn(3).double()
    with torch.no_grad():
        expected = layer(x) * factor.view(-1, 1, 1) + shift.view(-1, 1, 1)
        rescale(layer, factor, shift)
        torch.testing.assert_close(layer(x), expected)


def test_its_block_is_that_of_the_exact_ggn() -> None:
    """JᵀΛJ with the Jacobian from autograd and Λ = diag(p) − ppᵀ."""
    layer = layer_of("F-FC")
    network = nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.Linear(48, 3).double())
    x, y = torch.randn(5, 2, 4, 4, dtype=torch.float64), torch.arange(5) % 3
    evidence = Evidence(network, Categorical())
    evidence.collect((x, y))
    bias = offset(layer)
    exact = torch.zeros(bias.numel(), bias.numel(), dtype=torch.float64)
    for one in x:
        f = network(one[None])[0]
        rows = [torch.autograd.grad(k, bias, retain_graph=True)[0].flatten() for k in f]
        p = f.detach().softmax(0)
        jacobian = torch.stack(rows)
        exact += jacobian.T @ (torch.diag(p) - torch.outer(p, p)) @ jacobian
    w = torch.randn_like(bias)
    found = evidence.blocks["0.offsets.trivial.offset"].matvec(w.detach())
    torch.testing.assert_close(found.flatten(), exact @ w.flatten(), rtol=1e-8, atol=1e-10)


def test_its_evidence_and_its_removal_are_exact_for_offsets_in_noise() -> None:
    """y = b + ε, b ~ N(0, 1/δ): a Gaussian whose density scipy knows, with and without b."""
    layer = layer_of("FC", bias=True)
    network = nn.Sequential(layer, nn.Flatten())
    rng = np.random.default_rng(0)
    n, noise, delta = 6, 1.0, 2.0
    y = rng.standard_normal((1, 48)) + noise * rng.standard_normal((n, 48))
    centre = np.kron(np.eye(3), np.eye(16) - 1 / 16)  # means over sites belong to the bias
    free = scipy.linalg.orth(centre)
    name = "0/trivial/offset"
    prior = Prior.from_network(network, precisions={name: delta})
    others = [group for group in prior.names if group != name]
    prior.take_out(network, others)
    with torch.no_grad():
        map_estimate = centre @ y.sum(0) / noise**2 / (n / noise**2 + delta)
        offset(layer).copy_(torch.from_numpy(map_estimate).view(3, 16))
    likelihood = Gaussian(noise, learned=False).double()
    evidence = Evidence(network, likelihood, prior)
    evidence.collect((torch.zeros(n, 2, 4, 4, dtype=torch.float64), torch.from_numpy(y)))
    one, all_ones = np.eye(n) * noise**2, np.ones((n, n))
    with_bias = scipy.stats.multivariate_normal(np.zeros(n), one + all_ones / delta)
    without = scipy.stats.multivariate_normal(np.zeros(n), one)
    means = float(without.logpdf((y @ np.kron(np.eye(3), np.full((16, 1), 0.25))).T).sum())
    expected = float(with_bias.logpdf((y @ free).T).sum()) + means
    assert float(evidence.log_marginal_likelihood().detach()) == pytest.approx(expected, abs=1e-6)
    change = float(without.logpdf(y.T).sum()) - expected
    assert removal(evidence, [name]) == pytest.approx(change, abs=1e-6)


def planted(offset: float) -> tuple[Tensor, Tensor]:
    """A convolution of the torus, plus one number for every site, plus noise of 0.1."""
    g = torch.Generator().manual_seed(0)
    x, w = torch.randn(300, 1, 4, 4, generator=g), torch.randn(3, 3, generator=g) / 3
    y = sum(w[i, j] * x.roll((1 - i, 1 - j), (2, 3)) for i in range(3) for j in range(3))
    y = y + offset * torch.randn(1, 1, 4, 4, generator=g)
    return x, (y + 0.1 * torch.randn(y.shape, generator=g)).flatten(1)


@pytest.mark.parametrize(("offset", "verdict"), [(1.0, "none"), (0.0, "z2")])
def test_offsets_of_sites_are_learned_as_such_and_not_as_noise(offset: float, verdict: str) -> None:
    """And the layer with offsets obeys no shifts, while one without does."""
    torch.manual_seed(0)
    space = GROUPS.space((4, 4), 1)
    network = nn.Sequential(ResidualPathway(space, space, GROUPS), nn.Flatten())
    done = fit(network, planted(offset), Gaussian(), epochs=30, lr=0.02, progress=False)
    assert math.isclose(float(done.likelihood.noise.detach()), 0.1, rel_tol=0.1)
    assert selection(network, done.evidence).verdict == verdict
    # Weights and offset of the free path are pruned each on its own.
    assert done.prior.is_out("0/trivial")
    if offset:
        assert not done.prior.is_out("0/trivial/offset")
