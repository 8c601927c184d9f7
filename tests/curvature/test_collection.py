"""`curvature` on whole networks: modes, coverage, good manners, hard cases."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.curvature import curvature, exact, mc, subset
from groupella.curvature._tape import BatchTape
from groupella.evidence.likelihoods import Bernoulli, Categorical, Gaussian
from groupella.nn.shared_maps import BiasMap, LinearMap, record
from groupella.testing._curvature import ggn_blocks


def small_cnn(classes: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 3, padding=1),
        nn.Dropout(0.5),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, classes),
    ).double()


@pytest.fixture
def images() -> tuple[Tensor, Tensor]:
    return torch.randn(6, 2, 4, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize("likelihood", [Categorical(), Bernoulli(), Gaussian(0.5)])
def test_last_layer_is_exact_when_its_inputs_are_alike(
    likelihood: Categorical | Bernoulli | Gaussian,
) -> None:
    """Equal data: Σ_n a aᵀ ⊗ G/N loses nothing, for any likelihood and any number of data."""
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x = torch.randn(1, 3, dtype=torch.float64).repeat(5, 1)
    blocks = curvature(network, likelihood, (x, x))
    for name, expected in ggn_blocks(network, likelihood, x).items():
        torch.testing.assert_close(blocks[name].to_dense(), expected, rtol=0, atol=1e-10)


def test_linear_gaussian_regression_is_exact() -> None:
    network = nn.Linear(4, 2).double()
    x = torch.randn(9, 4, dtype=torch.float64)
    likelihood = Gaussian(0.3)
    blocks = curvature(network, likelihood, (x, x))
    for name, expected in ggn_blocks(network, likelihood, x).items():
        torch.testing.assert_close(blocks[name].to_dense(), expected, rtol=0, atol=1e-10)


def test_biases_are_exact_everywhere(images: tuple[Tensor, Tensor]) -> None:
    network = small_cnn().eval()
    blocks = curvature(network, Categorical(), images)
    for name, expected in ggn_blocks(network, Categorical(), images[0]).items():
        if name.endswith("bias"):
            torch.testing.assert_close(blocks[name].to_dense(), expected, rtol=0, atol=1e-10)


def test_all_ways_to_give_data_agree(images: tuple[Tensor, Tensor]) -> None:
    x, y = images
    network = small_cnn()

    def stream() -> Iterator[tuple[Tensor, Tensor]]:
        for n in range(0, 6, 2):
            yield x[n : n + 2], y[n : n + 2]

    dataset = torch.utils.data.TensorDataset(x, y)
    expected = curvature(network, Categorical(), images, exact())
    for data in (stream(), list(stream()), torch.utils.data.DataLoader(dataset, 4), [x, y]):
        found = curvature(network, Categorical(), data)
        assert found.n_data == 6
        for name in expected:
            torch.testing.assert_close(found[name].to_dense(), expected[name].to_dense())


def test_monte_carlo_is_unbiased_and_reproducible(images: tuple[Tensor, Tensor]) -> None:
    network = small_cnn()
    expected = curvature(network, Categorical(), images)
    many = curvature(network, Categorical(), images, mc(3000))
    for name in expected:
        torch.testing.assert_close(many[name].input_factors, expected[name].input_factors)
        error = (many[name].output_factors - expected[name].output_factors).abs().max()
        assert error < 0.1 * expected[name].output_factors.abs().max()
    one, same, other = (
        curvature(network, Categorical(), images, mc(1, seed=s))["7.weight"].output_factors
        for s in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_subset_estimates_the_sum_over_all_data() -> None:
    network = nn.Linear(3, 2).double()
    x = torch.randn(1, 3, dtype=torch.float64).repeat(20, 1)
    whole = curvature(network, Categorical(), (x, x))
    batches = [(x[:7], None), (x[7:], None)]
    for data in ((x, x), batches):
        for some in (subset(5), 5, subset(5, seed=3), subset(99)):
            part = curvature(network, Categorical(), data, subset=some)
            assert part.n_data == 20
            torch.testing.assert_close(part["weight"].to_dense(), whole["weight"].to_dense())


def test_a_subset_is_drawn_from_all_data() -> None:
    x = torch.arange(100, dtype=torch.float64).reshape(-1, 1)
    network = nn.Linear(1, 2).double()
    sizes = {
        float(curvature(network, Categorical(), (x, x), subset=subset(10, s))["weight"].trace())
        for s in range(3)
    }
    assert len(sizes) == 3


def test_reduce_uses_the_mean_input_and_the_summed_gradient(
    images: tuple[Tensor, Tensor],
) -> None:
    conv = nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular").double()
    network = nn.Sequential(conv, nn.Tanh(), nn.Flatten(), nn.Linear(48, 3).double())
    x, _ = images
    block = curvature(network, Categorical(), images, approximation="reduce")["0.weight"]
    padded = F.pad(x, (1, 1, 1, 1), mode="circular")
    a = F.unfold(padded, 3).mean(2)
    torch.testing.assert_close(block.input_factors[0], a.mT @ a)
    y = conv(x)
    f = network[3](network[2](network[1](y)))
    g = torch.zeros(3, 3, dtype=torch.float64)
    root = Categorical().hessian_root(f).detach()
    for r in range(2):
        (gradient,) = torch.autograd.grad(f, y, root[:, :, r], retain_graph=True)
        total = gradient.sum((2, 3))
        g += total.mT @ total
    torch.testing.assert_close(block.output_factors[0], g)
    assert block.scale == pytest.approx(1 / 6)


def test_expand_and_reduce_agree_where_there_is_one_position(
    images: tuple[Tensor, Tensor],
) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(32, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    one = curvature(network, Categorical(), images)
    two = curvature(network, Categorical(), images, approximation="reduce")
    for name in one:
        torch.testing.assert_close(one[name].to_dense(), two[name].to_dense())


def test_parameters_can_be_left_out_by_name_or_pattern(images: tuple[Tensor, Tensor]) -> None:
    network = nn.Sequential(nn.Flatten(), nn.LayerNorm(32), nn.Linear(32, 3)).double()
    blocks = curvature(network, Categorical(), images, ignore=["1.*"])
    assert set(blocks) == {"2.weight", "2.bias"}
    with pytest.raises(ValueError, match="no parameter is called 'norm'"):
        curvature(network, Categorical(), images, ignore=["norm"])


def test_constants_get_no_block(images: tuple[Tensor, Tensor]) -> None:
    network = small_cnn()
    network[0].requires_grad_(False)
    blocks = curvature(network, Categorical(), images)
    assert list(blocks) == ["3.weight", "3.bias", "7.weight", "7.bias"]


class Changed(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight.square(), self.bias)


def test_a_changed_stock_layer_is_not_taken_for_a_stock_layer() -> None:
    torch.manual_seed(0)
    network, x = Changed(3, 2).double(), torch.randn(4, 3).double()
    blocks = curvature(network, Categorical(), (x, None))
    for name, expected in ggn_blocks(network, Categorical(), x).items():
        torch.testing.assert_close(blocks[name].to_dense(), expected)


class Recurrent(nn.Module):
    """The same weight used twice, by its own record."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.bias = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            y = F.linear(x, self.weight, self.bias)
            record(self, "weight", x, y)
            record(self, "bias", x, y)
            x = y.relu_()
        return x

    def shared_maps(self) -> dict[str, LinearMap | BiasMap]:
        return {"weight": LinearMap("weight", 3, 3), "bias": BiasMap.of_features("bias", 3)}


def test_uses_of_one_weight_count_as_positions() -> None:
    block = curvature(Recurrent(), Categorical(), (torch.randn(5, 3), None))["weight"]
    assert block.positions == 2
    assert block.scale == pytest.approx(1 / 10)


class Flattening(nn.Module):
    """`.view` fails on channels-last tensors, which the fast convolutions give."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular")
        self.linear = nn.Linear(48, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.conv(x).view(x.shape[0], -1))  # type: ignore[no-any-return]


def test_networks_that_depend_on_the_memory_layout_work(images: tuple[Tensor, Tensor]) -> None:
    network = Flattening().double()
    same = nn.Sequential(network.conv, nn.Flatten(), network.linear)
    found = curvature(network, Categorical(), images)
    expected = curvature(same, Categorical(), images)
    torch.testing.assert_close(found["conv.weight"].to_dense(), expected["0.weight"].to_dense())


def test_few_data_are_remembered_as_they_were() -> None:
    """Of few data the inputs themselves are kept, whatever happens to them in place afterwards."""
    network = nn.Sequential(
        nn.Linear(40, 30), nn.ReLU(inplace=True), nn.Linear(30, 20), nn.ReLU(inplace=True)
    ).double()
    x = torch.randn(12, 40, dtype=torch.float64)
    for batch_size in (5, 12):
        blocks = curvature(network, Categorical(), (x, x), batch_size=batch_size)
        for name, block in blocks.items():
            dense = torch.linalg.eigvalsh(block.to_dense())
            found = block.eigenvalues().sort().values
            torch.testing.assert_close(found, dense.clamp(min=0), rtol=1e-6, atol=1e-9)
            if name.endswith("weight"):
                assert block.input_rank == 12
                assert block.input_rows is not None


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ArithmeticError("on purpose")


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_behind(images: tuple[Tensor, Tensor], fails: bool) -> None:
    network = small_cnn().train()
    network[5].eval()
    network.get_parameter("3.bias").requires_grad_(False)
    network(images[0]).sum().backward()
    gradients = [None if p.grad is None else p.grad.clone() for p in network.parameters()]
    modes = [m.training for m in network.modules()]
    required = [p.requires_grad for p in network.parameters()]
    attributes = [set(vars(m)) for m in network.modules()]
    hooks = [len(m._forward_hooks) for m in network.modules()]
    torch.manual_seed(1)
    state = torch.get_rng_state()
    if fails:
        network.append(Broken())
        with pytest.raises(ArithmeticError, match="on purpose"):
            curvature(network, Categorical(), images)
        network.pop(-1)
    else:
        curvature(network, Categorical(), images, mc(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in network.modules()] == modes
    assert [p.requires_grad for p in network.parameters()] == required
    assert [set(vars(m)) for m in network.modules()] == attributes
    assert [len(m._forward_hooks) for m in network.modules()] == hooks
    for p, before in zip(network.parameters(), gradients, strict=True):
        assert (p.grad is None) == (before is None)
        if p.grad is not None and before is not None:
            assert torch.equal(p.grad, before)
    curvature(network, Categorical(), images)


def test_the_tape_is_freed(images: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    tapes: list[weakref.ref[BatchTape]] = []
    original = BatchTape.__init__

    def init(self: BatchTape, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)  # type: ignore[arg-type]
        tapes.append(weakref.ref(self))

    monkeypatch.setattr(BatchTape, "__init__", init)
    curvature(small_cnn(), Categorical(), images)
    gc.collect()
    assert tapes
    assert all(tape() is None for tape in tapes)


def test_hard_cases_give_no_nan() -> None:
    """Confident logits, constant inputs, an absent class, a batch of one, dead layers."""
    torch.manual_seed(0)
    confident = nn.Sequential(nn.Flatten(), nn.Linear(32, 3))
    nn.init.zeros_(confident.get_parameter("1.weight"))
    confident.get_parameter("1.bias").data = torch.tensor([50.0, -50.0, -50.0])
    dead = small_cnn().float()
    nn.init.constant_(dead.get_parameter("3.bias"), -1e3)
    x = torch.randn(5, 2, 4, 4)
    cases = [
        (confident, x),
        (dead, x),
        (small_cnn().float(), torch.zeros(4, 2, 4, 4)),
        (small_cnn().float(), torch.ones(4, 2, 4, 4)),
        (small_cnn().float(), x[:1]),
        (small_cnn(2).float(), 1e3 * x),
    ]
    for network, data in cases:
        for mode in (exact(), mc(1)):
            blocks = curvature(network, Categorical(), (data, None), mode)
            for block in blocks.values():
                assert block.eigenvalues().isfinite().all()
                assert block.logdet(1e-3).isfinite()
                assert block.effective_parameters(1e-3) >= 0


def test_an_output_that_is_not_used_has_no_curvature() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            self.b(x)
            return self.a(x)  # type: ignore[no-any-return]

    blocks = curvature(Unused(), Categorical(), (torch.randn(5, 3), None))
    assert blocks["b.weight"].trace() == 0
    assert blocks["b.weight"].output_factors.shape == (1, 4, 4)


def test_wrong_calls_are_refused(images: tuple[Tensor, Tensor]) -> None:
    network = small_cnn()
    for data in (images[0], list(images[0]), [images[0]]):
        with pytest.raises(TypeError, match="pair"):
            curvature(network, Categorical(), data)
    with pytest.raises(ValueError, match="no data"):
        curvature(network, Categorical(), [])
    with pytest.raises(ValueError, match="expand"):
        curvature(network, Categorical(), images, approximation="other")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one"):
        mc(0)
    with pytest.raises(ValueError, match="at least one"):
        subset(0)
    folding = nn.Sequential(nn.Flatten(0, 1), nn.Flatten(), nn.Linear(16, 3)).double()
    with pytest.raises(ValueError, match="fold nothing"):
        curvature(folding, Categorical(), images)
    with pytest.raises(ValueError, match="no parameter is called omega"):
        curvature(network, Categorical(), images, differentiable=["omega"])
    for mode in ("mc", "banana", 3):
        with pytest.raises(TypeError, match=r"exact\(\) or mc\(m\)"):
            curvature(network, Categorical(), images, mode=mode)  # type: ignore[arg-type]
    for likelihood in ("gaussian", Gaussian):
        with pytest.raises(TypeError, match=r"Categorical\(\)"):
            curvature(network, likelihood, images)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="6 inputs and 2 targets"):
        curvature(network, Categorical(), (images[0], images[1][:2]))
    with pytest.raises(ValueError, match="6 inputs and 2 targets"):
        curvature(network, Categorical(), [(images[0], images[1][:2])])
