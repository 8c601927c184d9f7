"""Every parameter of ordinary networks: norms, embeddings, attention, loose parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.curvature import check_coverage, curvature, hypergradient
from groupella.evidence import Evidence, Predictive, Prior, exact_evidence, kernel_evidence
from groupella.evidence.likelihoods import Categorical, Gaussian
from groupella.groups import p4
from groupella.networks import invariant_net
from groupella.testing import CurvatureCase
from groupella.testing._curvature import ggn_blocks


def with_statistics(norm: nn.Module, *sites: int) -> nn.Module:
    """A norm in evaluation mode with statistics, factors and biases of some batch."""
    torch.manual_seed(1)
    norm(3 * torch.randn(50, 4, *sites) + 1)
    for p in norm.parameters():
        nn.init.normal_(p)
    return norm.eval()


DIAGONAL: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "BatchNorm1d": (lambda: with_statistics(nn.BatchNorm1d(4)), (4,)),
    "BatchNorm2d": (lambda: with_statistics(nn.BatchNorm2d(4), 3, 2), (4, 3, 2)),
    "BatchNorm3d": (lambda: with_statistics(nn.BatchNorm3d(4), 2, 2, 2), (4, 2, 2, 2)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (4, 3, 2)),
    "InstanceNorm": (lambda: nn.InstanceNorm2d(4, affine=True), (4, 3, 2)),
    "LayerNorm of tokens": (lambda: nn.LayerNorm(5), (3, 5)),
    "LayerNorm of images": (lambda: nn.LayerNorm((4, 3)), (2, 4, 3)),
    "LayerNorm without bias": (lambda: nn.LayerNorm(5, bias=False), (3, 5)),
    "RMSNorm": (lambda: nn.RMSNorm(5), (3, 5)),
    "PReLU": (lambda: nn.PReLU(4), (4, 3)),
    "PReLU with one slope": (lambda: nn.PReLU(), (4, 3)),
}


@pytest.mark.parametrize("kind", DIAGONAL)
class TestDiagonalMaps(CurvatureCase):
    """Factors and biases are exact for any number of samples and positions."""

    @pytest.fixture(autouse=True)
    def _choose(self, kind: str) -> None:
        self.kind = kind
        torch.manual_seed(0)

    def module(self) -> nn.Module:
        return DIAGONAL[self.kind][0]()

    def inputs(self) -> Tensor:
        return torch.randn(3, *DIAGONAL[self.kind][1])

    def exact_case(self) -> tuple[nn.Module, Tensor]:
        return self.module(), self.inputs()


class Tokens(nn.Module):
    """Integers from floats, then a table: `CurvatureCase` feeds floats."""

    def __init__(self, **options: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(7, 3, **options)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.table(x.long())
        return y


class TestEmbedding(CurvatureCase):
    def module(self) -> nn.Module:
        return Tokens()

    def inputs(self) -> Tensor:
        return torch.tensor([[0, 3, 3, 6], [1, 3, 0, 0]])

    def exact_case(self) -> tuple[nn.Module, Tensor]:
        """One row in each sample: there is no curvature between rows."""
        return self.module(), torch.tensor([[0, 0], [3, 3], [0, 0]])


class TestEmbeddingWithPadding(TestEmbedding):
    def module(self) -> nn.Module:
        return Tokens(padding_idx=3)


def in_blocks(dense: Tensor, blocks: int) -> Tensor:
    """Only the diagonal blocks of a matrix."""
    size = len(dense) // blocks
    mask = torch.block_diag(*[torch.ones(size, size)] * blocks)  # type: ignore[no-untyped-call]
    return dense * mask


def test_a_table_with_many_rows_keeps_the_exact_blocks_of_its_rows_or_its_diagonal() -> None:
    index = torch.tensor([[0, 3, 3], [299, 3, 0], [5, 6, 7]])
    for rows, width, blocks in ((300, 4, 300), (700, 80, 56000)):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Embedding(rows, width), nn.Flatten(), nn.Linear(3 * width, 2))
        network = network.double()
        block = curvature(network, Categorical(), (index, index))["0.weight"]
        assert block.blocks == blocks
        used = index.unique()
        j = torch.stack([_jacobian(network, one) for one in index])[:, :, used]
        root = Categorical().hessian_root(network(index)).detach()
        rooted = torch.einsum("nkr,nkvd->nrvd", root, j)
        if blocks == rows:
            expected = torch.einsum("nrvd,nrve->vde", rooted, rooted)
            found = block.scale * block.output_factors[used] * block.input_factors
        else:
            expected = rooted.square().sum((0, 1))
            found = (block.scale * block.output_factors * block.input_factors).reshape(rows, width)
            found = found[used]
        torch.testing.assert_close(found, expected)


def _jacobian(network: nn.Sequential, one: Tensor) -> Tensor:
    """(K, rows, width)."""
    f = network(one[None])[0]
    weight = network[0].weight
    return torch.stack([torch.autograd.grad(v, weight, retain_graph=True)[0] for v in f])


class Attention(nn.Module):
    def __init__(self, keys: str = "same", **options: object) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.keys = keys
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, **options)  # type: ignore[arg-type]
        for p in self.parameters():
            nn.init.normal_(p, std=0.5)

    def forward(self, x: Tensor) -> Tensor:
        if self.keys == "same":
            y, _ = self.attention(x, x, x, need_weights=False)
        elif self.keys == "own":
            z = F.pad(x, (0, 2))
            y, _ = self.attention(x, z, 2 * z)
        else:
            y, _ = self.attention(x[:, :1], x, 2 * x, need_weights=False)
        return y  # type: ignore[no-any-return]


class TestSelfAttention(CurvatureCase):
    def module(self) -> nn.Module:
        return Attention()

    def inputs(self) -> Tensor:
        torch.manual_seed(0)
        return torch.randn(3, 5, 4)

    def exact_case(self) -> tuple[nn.Module, Tensor]:
        return self.module(), self.inputs()[:1, :1]


class OwnAttention(nn.Module):
    """Linear layers around torch's product of queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.out = nn.Linear(4, 12), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(2, (2, 2)).transpose(1, 2) for t in self.qkv(x).chunk(3, 2))
        y: Tensor = self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return y


class TestOwnAttention(TestSelfAttention):
    def module(self) -> nn.Module:
        return OwnAttention()


class TestAttentionWithMore(TestSelfAttention):
    def module(self) -> nn.Module:
        return Attention(add_bias_kv=True, add_zero_attn=True)


class TestCrossAttention(TestSelfAttention):
    """One query and several keys: all blocks are exact."""

    def module(self) -> nn.Module:
        return Attention("cross")

    def exact_case(self) -> tuple[nn.Module, Tensor]:
        return self.module(), self.inputs()[:1]


class TestAttentionWithMatricesOfItsOwn(TestSelfAttention):
    def module(self) -> nn.Module:
        return Attention("own", kdim=6, vdim=6)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_recorded_attention_is_that_of_torch(batch_first: bool, need_weights: bool) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(
        6, 3, batch_first=batch_first, add_bias_kv=True, add_zero_attn=True
    ).double()
    x, z = torch.randn(2, 4, 6).double(), torch.randn(2, 5, 6).double()
    masks = {
        "attn_mask": torch.randn(4, 5).double(),
        "key_padding_mask": torch.tensor([[0.0] * 5, [0.0, 0.0, -1.0, 0.3, -9.0]]).double(),
    }
    bool_mask = {
        "attn_mask": torch.rand(6, 4, 5) < 0.3,
        "key_padding_mask": torch.tensor([[False] * 5, [False, False, True, False, True]]),
    }
    own = [t if batch_first else t.transpose(0, 1) for t in (x, z)]
    seen: list[tuple[Tensor, Tensor | None]] = []

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Tensor) -> Tensor:
            for options in (masks, bool_mask, {}):
                a, b = self.module(own[0], own[1], own[1], need_weights=need_weights, **options)
                seen.append((a, b))
            return torch.zeros(len(x), 1) + seen[-1][0].sum()

    net = Net()
    with torch.no_grad():
        net(x)
    plain, seen = seen, []
    check_coverage(net, x)
    assert len(seen) == len(plain)
    for (a, b), (c, d) in zip(seen, plain, strict=True):
        torch.testing.assert_close(a, c)
        torch.testing.assert_close(b, d) if need_weights else None


class Vit(nn.Module):
    """A class token, positions, an encoder of torch, scales, and a temperature."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.patches = nn.Conv2d(1, 4, 2, stride=2)
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.positions = nn.Parameter(torch.randn(5, 4))
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True)
        self.scale = nn.Parameter(torch.rand(4))
        self.temperature = nn.Parameter(torch.tensor(0.3))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        z = self.patches(x).flatten(2).mT
        z = torch.cat([self.token.expand(len(z), -1, -1), z], 1) + self.positions
        z = z + self.scale * self.encoder(z)
        f: Tensor = self.head(z[:, 0]) / self.temperature.exp()
        return f


LOOSE = ("token", "positions", "scale", "temperature", "encoder.norm1.weight", "head.bias")


def test_positions_tokens_and_scalars_have_their_exact_block() -> None:
    network, x = Vit().double(), torch.randn(5, 1, 4, 4).double()
    blocks = curvature(network, Categorical(), (x, x), batch_size=3)
    assert set(blocks) == {n for n, _ in network.named_parameters()}
    network.eval()
    for name, expected in ggn_blocks(network, Categorical(), x, LOOSE).items():
        torch.testing.assert_close(blocks[name].to_dense(), expected)
    network.train()
    assert torch.backends.mha.get_fastpath_enabled()
    assert all(p.requires_grad and p.grad is None for p in network.parameters())


def test_what_comes_after_an_encoder_needs_no_fused_kernel() -> None:
    """Torch's fast path of an encoder warns under vmap; warnings are errors here."""
    network, x = Vit().eval(), torch.randn(6, 1, 4, 4)
    before = [name for name, _ in network.named_parameters() if name != "temperature"]
    found = curvature(network, Categorical(), (x, None), ignore=before)
    assert list(found) == ["temperature"]


def test_our_own_normalisation_has_its_exact_block() -> None:
    torch.manual_seed(0)
    network = invariant_net(p4(), (8, 8), 1, 2, width=8)
    x = torch.randn(5, 1, 8, 8)
    network.train()(x)
    network = network.double()
    blocks = curvature(network, Categorical(), (x.double(), None))
    names = ["norms.0.weight", "norms.0.bias"]
    for name, expected in ggn_blocks(network.eval(), Categorical(), x.double(), names).items():
        torch.testing.assert_close(blocks[name].to_dense(), expected)


def test_a_large_loose_parameter_keeps_the_exact_blocks_of_its_rows() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.positions = nn.Parameter(torch.randn(64, 20))

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.positions.tanh()).sum(2)[:, :3]

    network, x = Wide().double(), torch.randn(2, 64, 20).double()
    block = curvature(network, Categorical(), (x, x))["positions"]
    assert block.blocks == 64
    expected = ggn_blocks(network, Categorical(), x)["positions"]
    torch.testing.assert_close(block.to_dense(), in_blocks(expected, 64))


class Tied(nn.Module):
    """A table that is also the last layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        f: Tensor = self.head(torch.tanh(self.table(x).mean(1)))
        return f


def test_tied_weights_of_two_kinds_of_layers_have_their_exact_block() -> None:
    network, x = Tied().double(), torch.tensor([[0, 1, 1], [2, 4, 0]])
    blocks = curvature(network, Categorical(), (x, x))
    assert list(blocks) == ["table.weight"]
    expected = ggn_blocks(network, Categorical(), x)
    torch.testing.assert_close(blocks["table.weight"].to_dense(), expected["table.weight"])


@pytest.mark.parametrize("make", [Vit, Tied])
def test_exact_and_kernel_evidence_know_all_parameters_and_agree(
    make: Callable[[], nn.Module],
) -> None:
    network = make().double()
    x = torch.randn(6, 1, 4, 4).double() if make is Vit else torch.randint(5, (6, 3))
    y = torch.arange(6) % 3
    evidence = Evidence(network, Categorical())
    one = exact_evidence(evidence, (x, y), steps=0, left_out=0.0)
    other = kernel_evidence(evidence, (x, y))
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-8)
    assert set(one.effective_parameters) == set(evidence.prior.names)
    evidence.collect((x, y))
    probabilities = Predictive(evidence).probabilities(x, "probit")
    torch.testing.assert_close(probabilities.sum(1), torch.ones(6).double())
    assert not torch.allclose(probabilities, network.eval()(x).softmax(1))


def test_the_predictive_counts_loose_parameters() -> None:
    class Wave(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.phase = nn.Parameter(torch.tensor([0.3, -0.4]))

        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(x + self.phase).cumsum(1)

    network, x = Wave().double(), torch.randn(7, 2).double()
    evidence = Evidence(network, Gaussian(0.5))
    evidence.collect((x, x))
    _, covariance = Predictive(evidence).normal(x[:3])
    j = torch.stack([torch.func.jacrev(_at(network, one))(network.phase.detach()) for one in x])
    h = torch.einsum("nkp,nkq->pq", j, j) / 0.25 + torch.eye(2).double()
    expected = j[:3] @ torch.linalg.inv(h) @ j[:3].mT
    noise = covariance - expected
    torch.testing.assert_close(noise, noise[0, 0, 0] * torch.eye(2).double().expand(3, 2, 2))


def _at(network: nn.Module, datum: Tensor) -> Callable[[Tensor], Tensor]:
    def output(phase: Tensor) -> Tensor:
        f: Tensor = torch.func.functional_call(network, {"phase": phase}, (datum[None],))
        return f[0]

    return output


def test_a_parameter_that_is_not_used_is_named() -> None:
    class Unused(nn.Linear):
        def __init__(self) -> None:
            super().__init__(3, 2)
            self.spare = nn.Parameter(torch.zeros(4))

    network = nn.Sequential(nn.Identity(), Unused())
    x = torch.randn(4, 3)
    message = r"do not depend on the parameter\(s\) 1.spare: .*ignore=\['1.spare'\]"
    with pytest.raises(ValueError, match=message):
        curvature(network, Categorical(), (x, x))
    with pytest.raises(ValueError, match=message):
        check_coverage(network, x)
    check_coverage(network, x, ignore=["1.sp*"])
    assert set(curvature(network, Categorical(), (x, x), ignore=["1.spare"])) == {
        "1.weight",
        "1.bias",
    }


def test_what_cannot_be_taken_sample_by_sample_is_said() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            y = self.scale * x
            return y if float(y.detach().sum()) > 0 else -y

    with pytest.raises(ValueError, match=r"scale, .*sample by sample .*ignore=\['scale'\]"):
        check_coverage(Branching(), torch.randn(4, 3))


def test_batch_statistics_are_refused() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False))
    with pytest.raises(ValueError, match="track_running_stats=True"):
        curvature(network, Categorical(), (torch.randn(5, 3), None))


def test_curvature_leaves_the_statistics_of_a_batch_norm_alone() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    network(torch.randn(9, 3))
    before = {k: v.clone() for k, v in network.state_dict().items()}
    curvature(network, Categorical(), (torch.randn(5, 3), None))
    assert all(torch.equal(v, before[k]) for k, v in network.state_dict().items())
    assert network[1].training


def test_a_derivative_through_a_loose_block_is_refused() -> None:
    network, x = Vit(), torch.randn(2, 1, 4, 4)
    for passes in (1, 2):
        with pytest.raises(ValueError, match="curvature has no derivative"):
            hypergradient(
                lambda blocks: torch.stack([b.trace() for b in blocks.values()]).sum(),
                network,
                Categorical(),
                (x, x),
                wrt=["head.weight"],
                passes=passes,
            )


def test_scale_before_a_batch_norm_leaves_the_evidence_with_learned_precisions_alone() -> None:
    """k·w with the statistics that belong to it is the same function, and δ/k² the same prior."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(3, 6, bias=False), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)
    ).double()
    x, y = torch.randn(40, 3).double(), torch.randint(2, (40,))
    bn = network[1]
    bn.eps, bn.momentum = 1e-30, None
    values = []
    for factor in (1.0, 30.0):
        with torch.no_grad():
            network[0].weight.mul_(factor)
        bn.reset_running_stats()
        network.train()(x)
        evidence = Evidence(network, Categorical())
        evidence.update((x, y), steps=200)
        values.append((evidence.log_evidence, evidence.prior.precision("0")))
    (a, delta), (b, rescaled) = values
    assert a == pytest.approx(b, abs=1e-6)
    assert delta / rescaled == pytest.approx(900.0, rel=1e-6)


@pytest.mark.parametrize("likelihood", [Categorical(), Gaussian(1.0)])
def test_ignored_parameters_have_neither_prior_nor_curvature(likelihood: Categorical) -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    x = torch.randn(8, 3)
    y = torch.randint(2, (8,)) if likelihood.has_classes else torch.randn(8, 2)
    evidence = Evidence(network, likelihood, ignore=["1.*"])
    assert evidence.prior.ignored == ("1.weight", "1.bias")
    evidence.update((x, y))
    assert set(evidence.blocks) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    with pytest.raises(ValueError, match=r"Did you mean '1\.weight'"):
        Evidence(network, likelihood, ignore=["1.weigth"])
    with pytest.raises(TypeError, match="sequence of names"):
        Prior.from_network(network, ignore="1.*")
    with pytest.raises(ValueError, match=r"Prior.from_network\(network, ignore="):
        Evidence(network, likelihood, Prior.from_network(network), ignore=["1.*"])
    Evidence(network, likelihood, Prior.from_network(network, ignore=["1.*"]))


def test_reparametrised_weights_have_exact_blocks_in_silence() -> None:
    torch.manual_seed(0)
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 5))
    network = nn.Sequential(layer, nn.Tanh(), nn.Linear(5, 3)).double()
    x = torch.randn(3, 4).double()
    name = "0.parametrizations.weight.original0"
    block = curvature(network, Categorical(), (x, None))[name]  # no warning of torch's
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = ggn_blocks(network, Categorical(), x)[name]
    torch.testing.assert_close(block.to_dense(), expected)
