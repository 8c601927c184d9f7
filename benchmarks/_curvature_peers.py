"""Exact KFAC of one batch in other libraries, each as a function without arguments.

All of them ignore `padding_mode="circular"`, so they get explicit `nn.CircularPad2d`s; BackPACK
does not know those and gets the stock network.
"""

# mypy: disable-error-code="import-untyped, import-not-found, no-untyped-call"
from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn

from benchmarks._timing import Step


def peers(stock: nn.Sequential, x: Tensor, y: Tensor) -> dict[str, Step | str]:
    """Library → its step, or why there is none."""
    explicit = with_explicit_padding(stock)
    makers: dict[str, Callable[[], Step]] = {
        "curvlinops": lambda: _curvlinops(explicit, x, y),
        "asdfghjkl": lambda: _asdl(explicit, x),
        "nngeometry": lambda: _nngeometry(explicit, x, y),
        "BackPACK": lambda: _backpack(deepcopy(stock), x, y),
        "laplace-torch": lambda: _laplace(explicit, x, y),
    }
    found: dict[str, Step | str] = {}
    for name, make in makers.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                step = make()
                step()
            found[name] = step
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            found[name] = f"{type(error).__name__}: {first}"
    return found


def with_explicit_padding(stock: nn.Sequential) -> nn.Sequential:
    """The same network with a padding layer before each convolution that pads nothing itself."""
    layers: list[nn.Module] = []
    for layer in deepcopy(stock):
        if isinstance(layer, nn.Conv2d):
            plain = nn.Conv2d(layer.in_channels, layer.out_channels, 3)
            plain.load_state_dict(layer.state_dict())
            layers += [nn.CircularPad2d(1), plain]
        else:
            layers.append(layer)
    return nn.Sequential(*layers)


def _curvlinops(network: nn.Module, x: Tensor, y: Tensor) -> Step:
    from curvlinops import KFACLinearOperator

    def step() -> None:
        operator = KFACLinearOperator(
            network,
            nn.CrossEntropyLoss(reduction="sum"),
            list(network.parameters()),
            [(x, y)],
            fisher_type="type-2",
            check_deterministic=False,
        )
        operator.compute_kronecker_factors()

    return step


def _asdl(network: nn.Module, x: Tensor) -> Step:
    from asdl.fisher import FisherConfig, get_fisher_maker
    from asdl.grad_maker import LOSS_CROSS_ENTROPY
    from asdl.matrices import FISHER_EXACT, SHAPE_KRON

    config = FisherConfig(
        fisher_type=FISHER_EXACT,
        loss_type=LOSS_CROSS_ENTROPY,
        fisher_shapes=[SHAPE_KRON],
        data_size=1,
    )

    def step() -> None:
        maker = get_fisher_maker(network, config)
        dummy = maker.setup_model_call(network, x)
        maker.setup_logits_repr(dummy)
        maker.forward_and_backward()

    return step


def _nngeometry(network: nn.Module, x: Tensor, y: Tensor) -> Step:
    from nngeometry.metrics import FIM
    from nngeometry.object import PMatKFAC

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), x.shape[0])
    return lambda: FIM(model=network, loader=loader, representation=PMatKFAC)


def _backpack(network: nn.Module, x: Tensor, y: Tensor) -> Step:
    from backpack import backpack, extend
    from backpack.extensions import KFLR

    network = extend(network)
    loss = extend(nn.CrossEntropyLoss(reduction="mean"))

    def step() -> None:
        network.zero_grad()
        with backpack(KFLR()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss(network(x), y).backward()

    return step


def _laplace(network: nn.Module, x: Tensor, y: Tensor) -> Step:
    from laplace import KronLaplace
    from laplace.curvature import CurvlinopsGGN

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), x.shape[0])

    def step() -> None:
        KronLaplace(network, "classification", backend=CurvlinopsGGN).fit(loader)

    return step
