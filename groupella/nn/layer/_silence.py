"""Paths that were taken out are not computed.

A path is a linear map whose weights enter by products, so without weights it is constant: nothing,
or its own bias if it has one, which F-FC knows and one sample shows. Whether weights are zero is
looked at once for each change of them: torch counts the changes of a tensor.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from torch import Tensor, nn

from groupella.nn._simple import is_as_written
from groupella.nn.paths import FactoredFC

from ._fusion import is_watched

_Key = tuple[tuple[int, int], ...]
_seen: WeakKeyDictionary[nn.Module, tuple[_Key, bool]] = WeakKeyDictionary()


def is_constant(path: nn.Module) -> bool:
    """Whether all weights of the path but its biases are zero and not trained.

    Hyperparameters do not count. Never where somebody watches the path. Under transforms of
    functions, constants may be variables after all; compiled code cannot look at values.
    """
    known = getattr(path, "hyperparameters", ())
    named = [(n, p) for n, p in path.named_parameters() if n not in known]
    weights = [p for name, p in named if not name.endswith("bias")]
    if not weights or any(p.requires_grad or p.is_inference() for p in weights):
        return False
    if not is_as_written() or is_watched(path):
        return False
    return _are_zero(path, weights)


def is_silent(path: nn.Module) -> bool:
    """Whether a path that `is_constant` has no bias."""
    return not any(name.endswith("bias") for name, _ in path.named_parameters())


def constant_of(path: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """What a path that `is_constant` gives for any sample of x, (C'·F', *lattice).

    And biases on which it does not depend, because weights multiply them.
    """
    if isinstance(path, FactoredFC) and path.point_bias is not None:
        constant = path.point_bias.expand(len(path.theta1), -1).reshape(path.space_out.shape)
        return constant, [] if path.channel_bias is None else [path.channel_bias]
    return path(x[:1].detach())[0], []


def _are_zero(path: nn.Module, weights: list[nn.Parameter]) -> bool:
    key = tuple((p.data_ptr(), p._version) for p in weights)
    found = _seen.get(path)
    if found is None or found[0] != key:
        found = key, not any(bool(p.any()) for p in weights)
        _seen[path] = found
    return found[1]
