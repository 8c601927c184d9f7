"""Training steps as an accelerator sees them: where they wait for the host, devices, compilation.

No machine here has an accelerator. Tensors on "meta" have no values and refuse to be mixed with
tensors on the CPU, as those of an accelerator do; to read a number from one raises.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from groupella.groups import GroupSet, named_group, trivial
from groupella.networks import invariant_net, preset, trunk
from groupella.nn.pooling import PolyphasePool
from groupella.training import fit
from groupella.training._run import Run

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    **{
        name: lambda name=name: preset(name, alpha=1)  # type: ignore[misc]
        for name in ("cifar10/F-FC+CONV", "cifar10/S-FC+S-CONV", "rotation/depthwise-separable")
    },
    "z2": lambda: invariant_net(named_group("z2"), (32, 32), 3, 10, width=4),
    "p4m": lambda: invariant_net(named_group("p4m"), (32, 32), 3, 10, width=8),
    "increments": lambda: trunk(GroupSet(trivial(), *map(named_group, ("z2", "p4"))), alpha=1),
}


def gradients(network: nn.Module, run: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, ...]:
    y = torch.arange(len(x), device=x.device) % 10
    weights = [p for p in network.parameters() if p.requires_grad]
    return torch.autograd.grad(F.cross_entropy(run(x), y), weights)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_training_step_stays_on_its_device(name: str) -> None:
    network = NETWORKS[name]().train().to("meta")
    found = gradients(network, network, torch.empty(4, 3, 32, 32, device="meta"))
    assert {g.device.type for g in found} == {"meta"}


class Waits(TorchDispatchMode):
    """Counts the operations for whose result an accelerator's host would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2"):
            self.found[name] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["cifar10/CONV", "cifar10/F-FC+CONV"])
def test_a_step_waits_for_loss_accuracy_and_ties_of_phases_only(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    true, waits = Run.train_step, []

    def watched(run: Run) -> None:
        with Waits() as mode:
            true(run)
        waits.append(mode.found)

    monkeypatch.setattr(Run, "train_step", watched)
    x, y = torch.randn(24, 3, 32, 32), torch.arange(24) % 10
    fit(preset(name, alpha=1), (x, y), epochs=1, batch_size=8, method="map", progress=False)
    assert len(waits) == 3
    for found in waits[1:]:  # the first one also looks for weights that are zero
        assert found == {"_local_scalar_dense": 2, "nonzero": 5}  # five layers halve the lattice


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_a_training_step_compiles_without_graph_breaks(name: str) -> None:
    torch.manual_seed(0)
    network, x = NETWORKS[name]().train(), torch.randn(4, 3, 32, 32)
    truth = gradients(network, network, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        torch._dynamo.reset()
        compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
        found = gradients(network, compiled, x)  # type: ignore[arg-type]
    for one, other in zip(found, truth, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_training_step_runs_in_mixed_precision(name: str) -> None:
    torch.manual_seed(0)
    network, x = NETWORKS[name]().train(), torch.randn(8, 3, 32, 32)
    full = network(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = network(x)
        found = gradients(network, lambda z: network(z).float(), x)  # type: ignore[no-any-return]
    assert all(bool(torch.isfinite(g).all()) and g.dtype == torch.float32 for g in found)
    if not any(isinstance(m, PolyphasePool) for m in network.modules()):  # rounding moves a choice
        assert float((mixed - full).detach().abs().max()) < 0.05 * float(full.detach().abs().max())
