"""Curvature of parameters that belong to no linear map we know: positional parameters, scalars.

The gradient ĝ of a column of the outputs is computed for each sample by itself (`torch.func`), so
that Σ_n ĝ ĝᵀ is the GGN block, whatever the network does with the parameter. Large parameters keep
the blocks of their rows, or the diagonal (`exact_blocks`).
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from math import prod

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from groupella.nn.fast_path import without_fast_path
from groupella.nn.shared_maps import BiasMap, exact_blocks, gradient_gram

from ._tape import Factors

MOST_NUMBERS = 2**25
MOST_SAMPLES = 64


def check_used(network: nn.Module, names: Collection[str], x: Tensor) -> None:
    """Raise unless the outputs depend on every named parameter."""
    parameters = dict(network.named_parameters())
    wanted = {n: parameters[n].detach().requires_grad_() for n in names}
    with torch.enable_grad():
        f = functional_call(network, wanted, (x[:1].detach(),))
    unused = list(names)
    if f.requires_grad:
        found = torch.autograd.grad(f.sum(), list(wanted.values()), allow_unused=True)
        unused = [n for n, g in zip(wanted, found, strict=True) if g is None]
    if unused:
        unused = sorted(unused)
        raise ValueError(
            f"The network's outputs do not depend on the parameter(s) {', '.join(unused)}: "
            "forward() does not use them, or detaches what they compute. Remove them, freeze them "
            f"(requires_grad_(False)), or leave them out on purpose with ignore={unused!r}."
        )


def sample_gradients(
    network: nn.Module, names: Collection[str], x: Tensor, root: Tensor
) -> Iterator[dict[str, Tensor]]:
    """The gradients of S_rᵀ f for every sample and column: (n, R, *shape) of each parameter.

    `root` is S (N, K, R). The samples come in parts, in their order.

    Raises
    ------
    ValueError
        If the network cannot be evaluated sample by sample with `torch.func.vmap`.
    """
    parameters = dict(network.named_parameters())
    chosen = {n: parameters[n].detach() for n in names}

    def pull(datum: Tensor, columns: Tensor) -> Mapping[str, Tensor]:
        def outputs(values: Mapping[str, Tensor]) -> Tensor:
            f: Tensor = functional_call(network, dict(values), (datum.unsqueeze(0),))
            return f.flatten()

        back = vjp(outputs, chosen)[1]
        (found,) = vmap(back)(columns.T)
        gradients: Mapping[str, Tensor] = found
        return gradients

    numbers = root.shape[2] * sum(prod(p.shape) for p in chosen.values())
    step = min(MOST_SAMPLES, max(1, MOST_NUMBERS // max(1, numbers)))
    for part, columns in zip(
        torch.split(x.detach(), step), torch.split(root.detach(), step), strict=True
    ):
        try:
            # Fused attention has no rule for batches.
            with sdpa_kernel(SDPBackend.MATH), without_fast_path(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "There is a performance drop")
                found = vmap(pull, randomness="different")(part, columns)
        except (RuntimeError, NotImplementedError, TypeError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ValueError(
                f"No shared linear map covers the parameter(s) {', '.join(sorted(names))}, and "
                f"their gradients cannot be taken sample by sample ({reason}). Give their module a "
                "method shared_maps() and record() its maps in forward(), or leave them out on "
                f"purpose with ignore={sorted(names)!r}."
            ) from error
        yield {name: gradients.detach() for name, gradients in found.items()}


def loose_factors(
    network: nn.Module, names: Collection[str], x: Tensor, root: Tensor
) -> dict[str, Factors]:
    """The factors of the named parameters for one batch, from the root S (N, K, R)."""
    n, terms = len(x), len(x) * root.shape[2]
    found: dict[str, Factors] = {}
    for part in sample_gradients(network, names, x, root):
        for name, gradients in part.items():
            blocks = exact_blocks(gradients.shape[2:])
            rows = gradients.reshape(-1, max(1, prod(gradients.shape[2:])))
            gram = gradient_gram(rows, blocks)
            if name in found:
                found[name].output_gram += gram
                continue
            count = gram.new_full((1, 1, 1), float(n))
            leaf = name.rpartition(".")[2]
            own = BiasMap(leaf, lambda g: g.flatten(1), blocks=blocks)
            found[name] = Factors(own, count, gram, n, n, terms)
    return found
