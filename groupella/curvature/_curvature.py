"""`curvature`: named Kronecker blocks of a network on data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from groupella.nn.shared_maps import Sharing

from ._batches import Inputs
from ._collect import Collector, undisturbed
from ._modes import Columns, HasCurvature, Mode, Subset
from ._plan import Plan
from ._sums import Sums
from .approximations import check_approximation
from .kronecker import KroneckerBlock

Data = tuple[Tensor, Tensor] | Iterable[Any]


@dataclass(frozen=True, eq=False)
class Curvature(Mapping[str, KroneckerBlock]):
    """Parameter name → its block. `n_data` data are represented."""

    blocks: Mapping[str, KroneckerBlock]
    n_data: int

    def __getitem__(self, name: str) -> KroneckerBlock:
        return self.blocks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)

    def __add__(self, other: Curvature) -> Curvature:
        """The curvature of both data sets together."""
        if self.blocks.keys() != other.blocks.keys():
            raise ValueError("Only curvatures of the same parameters add.")
        total = {name: block + other[name] for name, block in self.items()}
        return Curvature(total, self.n_data + other.n_data)

    def detach(self) -> Curvature:
        """The same blocks without a graph."""
        return Curvature({name: b.detach() for name, b in self.items()}, self.n_data)

    def __repr__(self) -> str:
        lines = [
            f"  {name}: {b.blocks} × ({b.output_factors.shape[1]} × {b.input_factors.shape[1]})"
            for name, b in self.items()
        ]
        return "\n".join([f"Curvature of {self.n_data} data:", *lines])


def curvature(
    network: nn.Module,
    likelihood: HasCurvature,
    data: Data,
    mode: Mode | None = None,
    approximation: str = "expand",
    subset: Subset | int | None = None,
    ignore: Sequence[str] = (),
    differentiable: bool | Sequence[str] = False,
    group: Any = None,
    sharing: Sharing | None = None,
    batch_size: int = 256,
) -> Curvature:
    """Kronecker-factored curvature (GGN) of Σ_n −log p(y_n | f(x_n)), one block per parameter.

    The network runs in evaluation mode; its gradients, flags, hooks and the random state are left
    unchanged.

    Parameters
    ----------
    network
        Any module. Linear maps get Kronecker factors: `nn.Linear`, `nn.ConvNd`, the projections of
        `nn.MultiheadAttention`, our paths, and layers of your own with `shared_maps`. All other
        parameters get exact blocks, or exact diagonals where they are large.
    likelihood
        One of `groupella.evidence.likelihoods`.
    data
        A pair (x, y) of tensors, taken `batch_size` at a time, or an iterable of such batches. The
        targets are not used.
    mode
        `exact()` (default) or `mc(m)`.
    approximation
        KFAC "expand" or "reduce".
    subset
        `subset(n)` or n: use only n of the data.
    ignore
        Names of parameters, or patterns such as "norm.*", that get no block.
    differentiable
        True, or names of parameters: the factors carry a graph with respect to (those) parameters.
        Named parameters need no block.
    group
        A process group of torch.distributed, or True for the default one: each process contributes
        its own data.
    sharing
        Overrides how factored layers share output factors ("block" or "sum").
    batch_size
        The number of samples in one pass, for a pair of tensors.

    Returns
    -------
    Curvature
        A mapping of parameter names to blocks. Parameters that do not require a gradient are
        constants, without a block.

    Raises
    ------
    ValueError
        If the outputs do not depend on a trainable parameter that is not ignored, if its exact
        block cannot be computed sample by sample, or if there are no data.

    References
    ----------
    Martens and Grosse, "Optimizing Neural Networks with Kronecker-factored Approximate Curvature",
    ICML 2015. Grosse and Martens, "A Kronecker-factored approximate Fisher matrix for convolution
    layers", ICML 2016.
    """
    check_approximation(approximation)
    plan = Plan.of(network, ignore, differentiable)
    collector = Collector(network, Columns(likelihood, mode), plan, approximation, sharing)
    return collect(collector, Inputs(data, subset, batch_size), group)


def collect(collector: Collector, inputs: Inputs, group: Any) -> Curvature:
    """The blocks of all inputs, summed over batches and processes."""
    network, plan = collector.network, collector.plan
    parallel = group not in (None, False)
    if parallel and plan.keep:
        raise ValueError(
            "A graph does not cross processes: use hypergradient(..., passes=2, group=...)."
        )
    sums = Sums()
    with undisturbed(network, plan.keep):
        for x in inputs:
            sums.add(collector.factors(x), x.shape[0])
    if not sums.count:
        raise ValueError("There are no data.")
    seen = sums.all_reduce(inputs.seen, group) if parallel else inputs.seen
    return Curvature(dict(sums.blocks(network, seen)), seen)
