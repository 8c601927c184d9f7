"""What a shared linear map provides, and how a module reports the use of one.

`record` costs one comparison unless a listener is active. The listener is called during the forward
pass, when input and output exist, so that neither needs to be kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from torch import Tensor, nn


@runtime_checkable
class SharedLinearMap(Protocol):
    """One matrix (or one per block) applied at S positions of every sample.

    With a = `inputs(x)` and g = `outputs(grad)`, the Kronecker factors of its curvature are
    A_b = Σ_{n,s} a aᵀ and G_b = Σ_{n,s} g gᵀ. `inputs` and `outputs` are the definition;
    `input_gram` and `output_gram` compute the same sums in the fastest way.
    """

    @property
    def weight(self) -> str:
        """The name of the parameter inside its module, such as "weight" or "theta1"."""

    @property
    def positions(self) -> int:
        """S, the number of positions per sample (and block)."""

    def as_blocks(self, weight: Tensor) -> Tensor:
        """The parameter's entries as (blocks, D_out, D_in); one block when U is dense."""

    def inputs(self, x: Tensor) -> Tensor:
        """(N, blocks_in, S, D_in) with blocks_in either 1 or blocks."""

    def outputs(self, g: Tensor) -> Tensor:
        """(N, blocks_out, S, D_out) with blocks_out either 1 or blocks."""

    def input_gram(self, x: Tensor) -> Tensor:
        """Σ_{n,s} a aᵀ: (blocks_in, D_in, D_in)."""

    def output_gram(self, g: Tensor) -> Tensor:
        """Σ_{n,s} g gᵀ: (blocks_out, D_out, D_out)."""


@runtime_checkable
class HasSharedMaps(Protocol):
    """A module that names the shared linear map of each of its own parameters."""

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        """Parameter name → map. Parameters of child modules belong to the children."""


class Listener(Protocol):
    """Is called for every use of a shared linear map."""

    def __call__(
        self, module: nn.Module, shared_map: SharedLinearMap, x: Tensor, y: Tensor
    ) -> None: ...


_listener: Listener | None = None


def record(
    module: nn.Module, name: str, x: Tensor, y: Tensor, shared_map: SharedLinearMap | None = None
) -> None:
    """Report that `module` has just computed `y` from `x` with its parameter `name`.

    Parameters
    ----------
    module, name
        The module and the name of its parameter.
    x, y
        Input and output of the map. `y` must be the tensor with which the forward pass continues;
        it may be changed afterwards, also in place.
    shared_map
        Needed only where the map depends on the input (`BiasMap.of_tangents`); the default is
        `module.shared_maps()[name]`.

    Raises
    ------
    TypeError
        If no map is given and the module has no method `shared_maps`.
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
    """Whether a listener is active: lets a module skip work that only `record` needs."""
    return _listener is not None


@contextmanager
def taping(listener: Listener) -> Iterator[None]:
    """Call `listener` at every `record` inside the block; such blocks do not nest."""
    global _listener
    if _listener is not None:
        raise RuntimeError("Another recording of shared linear maps is active; they do not nest.")
    _listener = listener
    try:
        yield
    finally:
        _listener = None
