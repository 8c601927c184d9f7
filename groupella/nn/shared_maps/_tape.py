"""How a module shows its shared linear maps to whoever is listening.

`record` costs one comparison unless a listener is active. The listener is called during the forward
pass, at the moment when input and output exist, so that neither needs to be kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from torch import Tensor, nn

from ._protocol import HasSharedMaps, SharedLinearMap


class Listener(Protocol):
    """Is told of every use of a shared linear map."""

    def __call__(
        self, module: nn.Module, shared_map: SharedLinearMap, x: Tensor, y: Tensor
    ) -> None: ...


_listener: Listener | None = None


def record(
    module: nn.Module, name: str, x: Tensor, y: Tensor, shared_map: SharedLinearMap | None = None
) -> None:
    """Say that `module` has just computed `y` from `x` with its parameter `name`.

    `y` must be the tensor with which the forward pass continues; what is done to it afterwards,
    also in place, does not matter. `shared_map` is needed only where the map depends on the input
    (`TangentMap`); otherwise it is `module.shared_maps()[name]`.
    """
    if _listener is None:
        return
    if shared_map is None:
        if not isinstance(module, HasSharedMaps):
            raise TypeError(
                f"{type(module).__name__} records {name!r} but has no method shared_maps()."
            )
        shared_map = module.shared_maps()[name]
    _listener(module, shared_map, x, y)


def recording() -> bool:
    """Whether anyone listens: lets a module skip work that only `record` needs."""
    return _listener is not None


@contextmanager
def taping(listener: Listener) -> Iterator[None]:
    """Call `listener` at every `record` inside the block."""
    global _listener
    if _listener is not None:
        raise RuntimeError("Another recording of shared linear maps is active; they do not nest.")
    _listener = listener
    try:
        yield
    finally:
        _listener = None
