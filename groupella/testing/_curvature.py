"""Is the curvature of a module exact? An inheritable test case, and the truth it compares with.

A module with `shared_maps` is right when (i) the maps describe it: Σ_{n,s} g aᵀ is the gradient
that autograd finds; (ii) the fast grams equal the sums that define them; (iii) the collected
factors equal the definition, column by column; and (iv) where Kronecker factors lose nothing (one
datum, one position), the block is the Gauss–Newton matrix Σ_n J_nᵀ Λ_n J_n itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.attention import SDPBackend, sdpa_kernel

from groupella.curvature import BatchTape, Curvature, curvature, listening
from groupella.evidence.likelihoods import Categorical, Likelihood
from groupella.nn.shared_maps import BlockMap, SharedLinearMap


@dataclass(frozen=True, eq=False)
class Recorded:
    """One use of a shared linear map: what went in, and where the output's gradient flows."""

    name: str
    shared_map: SharedLinearMap
    x: Tensor
    edge: GradientEdge
    shape: torch.Size


def recorded_maps(network: nn.Module, x: Tensor) -> tuple[Tensor, list[Recorded]]:
    """The network's output for x and all maps that it used, with a graph in the parameters."""
    names = {id(p): name for name, p in network.named_parameters()}
    uses: list[Recorded] = []

    class Listener(BatchTape):
        def __call__(
            self, module: nn.Module, shared_map: SharedLinearMap, x: Tensor, y: Tensor
        ) -> None:
            name = names[id(getattr(module, shared_map.weight))]
            uses.append(Recorded(name, shared_map, x, get_gradient_edge(y), y.shape))

    with listening(network, Listener(names, x.shape[0]), relayout=True):
        f = network(x)
    return f, uses


def ggn_blocks(
    network: nn.Module, likelihood: Likelihood, x: Tensor, names: Collection[str] | None = None
) -> dict[str, Tensor]:
    """The exact GGN block Σ_n J_nᵀ Λ_n J_n by `torch.func`, (size, size), of parameters or all."""
    parameters = {name: p.detach() for name, p in network.named_parameters()}

    def output(parameter: Tensor, name: str, datum: Tensor) -> Tensor:
        changed = {**parameters, name: parameter}
        f: Tensor = torch.func.functional_call(network, changed, (datum.unsqueeze(0),))
        return f.flatten()

    with torch.no_grad():
        root = likelihood.hessian_root(network(x).flatten(1))
    hessian, k = root @ root.mT, root.shape[1]
    blocks = {}
    for name, parameter in parameters.items():
        if names is not None and name not in names:
            continue
        with sdpa_kernel(SDPBackend.MATH):
            jacobian = torch.stack(
                [torch.func.jacrev(output)(parameter, name, datum).reshape(k, -1) for datum in x]
            )
        blocks[name] = torch.einsum("nkp,nkl,nlq->pq", jacobian, hessian, jacobian)
    return blocks


def gram_by_loops(rows: Tensor) -> Tensor:
    """(N, B, S, D) → (B, D, D) by the definition: a sum of outer products, one by one."""
    n, b, s, d = rows.shape
    total = rows.new_zeros(b, d, d)
    for sample in range(n):
        for block in range(b):
            for position in range(s):
                total[block] += torch.outer(
                    rows[sample, block, position], rows[sample, block, position]
                )
    return total


class Readout(nn.Module):
    """The module under test and a fixed random readout of K outputs after a smooth nonlinearity."""

    def __init__(self, module: nn.Module, x: Tensor, outputs: int = 3) -> None:
        super().__init__()
        self.module = module
        with torch.no_grad():
            size = module(x)[0].numel()
        generator = torch.Generator().manual_seed(0)
        readout = torch.randn(size, outputs, generator=generator, dtype=x.dtype) / size**0.5
        self.register_buffer("readout", readout)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.module(x)
        return torch.tanh(y.flatten(1)) @ self.get_buffer("readout")


class CurvatureCase:
    """A test case to inherit from: define the module and its inputs, and run pytest.

        class TestMyPath(CurvatureCase):
            def module(self): return MyPath(...)
            def inputs(self): return torch.randn(3, ...)
            def exact_case(self): return MyPath(<one position>), torch.randn(1, ...)

    Everything runs in float64. `exact_case` gives a module and one datum for which the Kronecker
    product is the GGN block; leave it out if there is none.
    """

    likelihood: Likelihood = Categorical()
    tolerance: float = 1e-10

    def module(self) -> nn.Module:
        """The module under test."""
        raise TypeError(f"{type(self).__name__} must define module().")

    def inputs(self) -> Tensor:
        """A batch of at least two inputs."""
        raise TypeError(f"{type(self).__name__} must define inputs().")

    def exact_case(self) -> tuple[nn.Module, Tensor] | None:
        """A module and one datum for which Kronecker factors lose nothing."""
        return None

    def test_maps_describe_the_module(self) -> None:
        network, x = self._network(self.module, self.inputs)
        f, uses = recorded_maps(network, x)
        assert {use.name for use in uses} == {name for name, _ in network.named_parameters()}
        columns = torch.randn(f.shape, dtype=f.dtype, generator=torch.Generator().manual_seed(1))
        edges = [use.edge for use in uses]
        parameters = dict(network.named_parameters())
        weights = list(parameters.values())
        gradients = torch.autograd.grad(f, edges, columns, retain_graph=True)
        expected = dict(zip(parameters, torch.autograd.grad(f, weights, columns), strict=True))
        found: dict[str, Tensor] = {}
        for use, g in zip(uses, gradients, strict=True):
            shared_map = use.shared_map
            if isinstance(shared_map, BlockMap):
                shared_map = replace(shared_map, sharing="block")
            a, z = shared_map.inputs(use.x), shared_map.outputs(g)
            product = (z.unsqueeze(-1) * a.unsqueeze(-2)).sum((0, 2))
            found[use.name] = found.get(use.name, torch.zeros_like(product)) + product
            entries = shared_map.as_blocks(expected[use.name])
            assert entries.shape == product.shape, use.name
        for use in uses:
            self._assert_close(
                found[use.name], use.shared_map.as_blocks(expected[use.name]), use.name
            )

    def test_grams_equal_their_definition(self) -> None:
        network, x = self._network(self.module, self.inputs)
        _, uses = recorded_maps(network, x)
        generator = torch.Generator().manual_seed(2)
        for use in uses:
            g = torch.randn(use.shape, dtype=x.dtype, generator=generator)
            shared_map = use.shared_map
            a, z = shared_map.inputs(use.x), shared_map.outputs(g)
            assert a.shape[2] == shared_map.positions or z.shape[2] == shared_map.positions
            self._assert_close(shared_map.input_gram(use.x), gram_by_loops(a), use.name)
            self._assert_close(shared_map.output_gram(g), gram_by_loops(z), use.name)

    def test_factors_equal_their_definition(self) -> None:
        network, x = self._network(self.module, self.inputs)
        blocks = curvature(network, self.likelihood, (x, x))
        f, uses = recorded_maps(network, x)
        root = self.likelihood.hessian_root(f).detach()
        for use in uses:
            z = torch.zeros_like(blocks[use.name].output_factors)
            for r in range(root.shape[2]):
                (g,) = torch.autograd.grad(f, [use.edge], root[:, :, r], retain_graph=True)
                z += gram_by_loops(use.shared_map.outputs(g))
            a = gram_by_loops(use.shared_map.inputs(use.x))
            self._assert_close(blocks[use.name].input_factors, a, use.name)
            self._assert_close(blocks[use.name].output_factors, z, use.name)

    def test_blocks_do_not_depend_on_the_batch_size(self) -> None:
        network, x = self._network(self.module, self.inputs)
        whole = curvature(network, self.likelihood, (x, x))
        parts = curvature(network, self.likelihood, (x, x), batch_size=1)
        self._assert_equal_blocks(whole, parts)
        self._assert_equal_blocks(
            whole,
            curvature(network, self.likelihood, (x[:1], x[:1]))
            + curvature(network, self.likelihood, (x[1:], x[1:])),
        )

    def test_block_is_the_ggn_where_it_can_be(self) -> None:
        case = self.exact_case()
        if case is None:
            return
        network, x = self._network(lambda: case[0], lambda: case[1])
        blocks = curvature(network, self.likelihood, (x, x))
        for name, expected in ggn_blocks(network, self.likelihood, x).items():
            self._assert_close(blocks[name].to_dense(), expected, name)

    def _network(
        self, module: Callable[[], nn.Module], inputs: Callable[[], Tensor]
    ) -> tuple[nn.Module, Tensor]:
        x = inputs().double()
        made = module().double()
        return Readout(made, x), x

    def _assert_equal_blocks(self, a: Curvature, b: Curvature) -> None:
        assert a.n_data == b.n_data
        for name in a:
            self._assert_close(a[name].eigenvalues(), b[name].eigenvalues(), name)

    def _assert_close(self, a: Tensor, b: Tensor, name: str) -> None:
        error = (a - b).abs().max().item()
        scale = max(1.0, b.abs().max().item())
        assert error <= self.tolerance * scale, f"{name}: error {error:.2e}, size {scale:.2e}"
