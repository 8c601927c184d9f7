"""Polyphase components of a torus whose sides the stride s divides, as plain tensor code.

Of x (batch, channels, *lattice) the component of phase a ∈ {0, …, s−1}^d holds the sites s·j + a.
Phases are numbered with the last axis fastest. `choose_phase` finds, for each sample on its own,
the phase of the largest norm; `take_phase` gathers it. A lattice symmetry permutes the components
as it permutes the sites, so with a norm that does not depend on the order of summation (the
maximum) the choice moves exactly along.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from groupella.nn._simple import is_unrecorded

from ._pattern import Pattern, matches

Norm = Literal["inf", "l1", "l2"]
NORMS: tuple[Norm, ...] = get_args(Norm)
ROUNDING = 64  # of a match, in units of the precision times the norm of the sample


def choose_phase(
    x: Tensor,
    norm: Norm = "inf",
    fibre: int = 1,
    pattern: Pattern | None = None,
    stride: int = 2,
) -> Tensor:
    """The phase of the largest norm of each sample, (batch,).

    Ties, up to what rounding can do, go to the larger ℓ2 norm, then to the phase in which the
    sample best matches a fixed pattern, so that the choice moves with the image also where it is
    sparse, binary or quantised. Phases that are tied after that are exchanged by a symmetry of the
    sample. Not differentiable: the choice is locally constant.

    Parameters
    ----------
    x
        (batch, C·fibre, *lattice), every side of the lattice a multiple of the stride.
    norm
        "inf", "l1" or "l2".
    fibre
        With `fibre` > 1 the entry of a site and channel is the ℓ2 norm of its fibre, for fibres
        that a group rotates rather than permutes.
    pattern
        The pattern of the features' space; without it the last ties go to the first phase.
    stride
        The factor by which sides shrink, 2 by default.
    """
    with torch.no_grad():
        x = x.detach()
        lattice = tuple(x.shape[2:])
        chain = () if pattern is None else pattern.chain
        if norm == "inf" and fibre == 1 and x.stride(1) == 1:
            score = _largest_of_rows(x, lattice, stride)
        else:
            score = phase_scores(x, lattice, norm, fibre, stride)
        best = nearly_largest(score, x)
        tied = tied_samples(best)
        if tied is None:
            best = break_ties(x, best, lattice, *_factors(pattern, x), chain=chain, stride=stride)
        elif len(tied):
            some = x[tied], best[tied]
            factors = _factors(pattern, x)
            best[tied] = break_ties(*some, lattice, *factors, chain=chain, stride=stride)
        return best.to(torch.uint8).argmax(1)


def take_phase(x: Tensor, phase: Tensor, stride: int = 2) -> Tensor:
    """Component `phase[n]` of sample n: (batch, C, *lattice) to (batch, C, *lattice / stride).

    Keeps the memory layout of x (channels-last or contiguous).
    """
    check_sides(x.shape[2:], stride)
    taken = take_sites(x, _sites(phase, tuple(x.shape[2:]), stride))
    return taken.view(*x.shape[:2], *(n // stride for n in x.shape[2:]))


def take_sites(x: Tensor, index: Tensor) -> Tensor:
    """The sites index[n] of sample n: (batch, channels, *lattice), (batch, p) to (batch, C, p)."""
    if torch.compiler.is_compiling():  # which cannot trace the derivatives of `_Take`
        return x.flatten(2).gather(2, index.unsqueeze(1).expand(-1, x.shape[1], -1))
    if is_unrecorded():
        return _Take.forward(x, index)
    taken: Tensor = _Take.apply(x, index)  # type: ignore[no-untyped-call]
    return taken


def put_sites(g: Tensor, index: Tensor, lattice: Sequence[int]) -> Tensor:
    """The adjoint of `take_sites`, for sites that differ: (batch, C, p) to (batch, C, *lattice)."""
    put = _Put.forward if is_unrecorded() else _Put.apply
    sites: Tensor = put(g, index, math.prod(lattice))
    return sites.view(*g.shape[:2], *lattice)


def check_sides(lattice: Sequence[int], stride: int = 2) -> None:
    """Raise unless the stride divides every side and there is one."""
    if lattice and not any(n % stride for n in lattice):
        return
    what = "halves" if stride == 2 else f"divides by {stride}"
    must = "be even" if stride == 2 else f"be a multiple of {stride}"
    raise ValueError(
        f"polyphase pooling {what} every side of the lattice, which must {must}; got "
        f"{tuple(lattice)}. Bring images to such a size (groupella.data.Size crops, pads or "
        "stretches them), or use stride=1 here"
    )


def phase_scores(
    x: Tensor, lattice: Sequence[int], norm: Norm, fibre: int = 1, stride: int = 2
) -> Tensor:
    """Return the norm of each phase, first over channels, then over sites: (batch, phases)."""
    if fibre > 1:
        split = torch.unflatten(x.double(), 1, (-1, fibre))
        x = torch.linalg.vector_norm(split, dim=2)
    if norm == "inf":
        sites = torch.maximum(x.amax(1), -x.amin(1))
        return _by_phase(sites, lattice, stride).amax(2)
    sites = x.abs() if norm == "l1" else x.square()
    return _by_phase(sites.sum(1, dtype=torch.float64), lattice, stride).sum(2)


def _largest_of_rows(x: Tensor, lattice: Sequence[int], stride: int) -> Tensor:
    """`phase_scores` of norm "inf", fast where channels come last in memory.

    Maxima over sites come first: the rows that are compared are longer than a few channels.
    """
    rows = x.movedim(1, -1).reshape(len(x), lattice[0] // stride, -1)
    largest = torch.maximum(rows.amax(1), -rows.amin(1))
    phases = stride
    for size in lattice[1:]:
        largest = largest.reshape(len(x), phases, size // stride, -1).amax(2)
        phases *= stride
    return largest.reshape(len(x), phases, -1).amax(2)


def nearly_largest(score: Tensor, x: Tensor) -> Tensor:
    """Return which phases (batch, phases) have the largest score, up to rounding of x."""
    return score >= score.amax(1, keepdim=True) * (1 - _precision(x) ** 0.6)


def _precision(x: Tensor) -> Tensor | float:
    """|3 (4/3 − 1) − 1|, that of the dtype; where x is traced, it is not asked for it."""
    if isinstance(x, Tensor) and not torch.compiler.is_compiling():
        return torch.finfo(x.dtype).eps
    one = x.new_ones(())
    return (3 * (4 * one / 3 - one) - one).abs().double()


def break_ties(
    x: Tensor,
    best: Tensor,
    lattice: Sequence[int],
    *pattern: Tensor,
    chain: Sequence[Sequence[int]] = (),
    stride: int = 2,
) -> Tensor:
    """Return which of the phases that are `best` so far (batch, phases) also win the further keys.

    These are the ℓ2 norm, up to rounding, and the match with the `pattern`, where one is given, by
    each group of the `chain` in turn. Phases that tie for one group are exchanged by its elements
    that map the sample to itself; where layers above obey less, the next group has to choose.
    """
    energy = _by_phase(x.square().sum(1, dtype=torch.float64), lattice, stride).sum(2)
    best = best & nearly_largest(torch.where(best, energy, -torch.ones_like(energy)), x)
    if not pattern:
        return best
    rounding = ROUNDING * _precision(x) * energy.sum(1, keepdim=True).sqrt()
    every = matches(x, *pattern)
    for number, elements in enumerate(chain, 1):
        found = _by_phase(every[:, list(elements)].amax(1), lattice, stride).amax(2)
        found = torch.where(best, found, torch.full_like(found, -torch.inf))
        slack = rounding if number < len(chain) else 0.0
        best = found >= found.amax(1, keepdim=True) - slack
    return best


def _by_phase(sites: Tensor, lattice: Sequence[int], stride: int) -> Tensor:
    """(batch, *lattice) to (batch, stride^d, sites of a phase)."""
    d = len(lattice)
    parts = sites.reshape(-1, *[v for size in lattice for v in (size // stride, stride)])
    return (
        parts.permute(0, *range(2, 2 * d + 1, 2), *range(1, 2 * d + 1, 2))
        .flatten(d + 1)
        .flatten(1, d)
    )


def tied_samples(best: Tensor) -> Tensor | None:
    """Return the samples with several best phases; `None` where values are not known."""
    if torch.compiler.is_compiling():
        return None
    try:
        return (best.sum(1) > 1).nonzero().squeeze(1)
    except RuntimeError:  # under vmap
        return None


def _factors(pattern: Pattern | None, x: Tensor) -> tuple[Tensor, ...]:
    return () if pattern is None else pattern.like(x.new_empty((), dtype=torch.float64))


def _sites(phase: Tensor, lattice: tuple[int, ...], stride: int) -> Tensor:
    """(batch, sites of a phase): the flat site indices of the chosen phase."""
    d = len(lattice)
    index = torch.zeros_like(phase).unsqueeze(1)
    for axis, size in enumerate(lattice):
        offset = (phase // stride ** (d - 1 - axis)) % stride
        steps = torch.arange(0, size, stride, device=phase.device)
        along = (steps + offset.unsqueeze(1)) % size
        index = (index.unsqueeze(2) * size + along.unsqueeze(1)).flatten(1)
    return index


class _Take(torch.autograd.Function):
    """(batch, C, *lattice), (batch, p) -> (batch, C, p). Its adjoint is `_Put`."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], x: Tensor, index: Tensor) -> Any:
        taken = _Take.apply(*_merged(info, in_dims, x, index))  # type: ignore[no-untyped-call]
        return taken.unflatten(0, (info.batch_size, -1)), 0

    @staticmethod
    def forward(x: Tensor, index: Tensor) -> Tensor:
        n, c = x.shape[:2]
        last = x.movedim(1, -1)
        if last.stride(-1) == 1:
            rows = last.reshape(-1, c).index_select(0, _rows(index, last.shape[1:-1].numel()))
            return rows.view(n, -1, c).movedim(-1, 1)
        return x.flatten(2).gather(2, index.unsqueeze(1).expand(-1, c, -1))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        x, index = inputs
        ctx.save_for_backward(index)
        ctx.save_for_forward(index)
        ctx.lattice = x.shape[2:]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        put: Tensor = _Put.apply(g, index, ctx.lattice.numel())  # type: ignore[no-untyped-call]
        return put.view(*put.shape[:2], *ctx.lattice), None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor, _: None) -> Tensor:
        taken: Tensor = _Take.apply(dx, *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        return taken


class _Put(torch.autograd.Function):
    """(batch, C, p), (batch, p) -> (batch, C, sites), zero where nothing was taken."""

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], g: Tensor, index: Tensor, sites: int
    ) -> Any:
        put = _Put.apply(*_merged(info, in_dims, g, index), sites)  # type: ignore[no-untyped-call]
        return put.unflatten(0, (info.batch_size, -1)), 0

    @staticmethod
    def forward(g: Tensor, index: Tensor, sites: int) -> Tensor:
        n, c = g.shape[:2]
        last = g.movedim(1, -1)
        if last.stride(-1) == 1:
            rows = g.new_zeros(n * sites, c)
            rows.index_copy_(0, _rows(index, sites), last.reshape(-1, c))
            return rows.view(n, sites, c).movedim(-1, 1)
        return g.new_zeros(n, c, sites).scatter(2, index.unsqueeze(1).expand(-1, c, -1), g)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        _, index, ctx.sites = inputs
        ctx.save_for_backward(index)
        ctx.save_for_forward(index)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor, None, None]:
        taken: Tensor = _Take.apply(v, *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        return taken, None, None

    @staticmethod
    def jvp(ctx: Any, dg: Tensor, *_: None) -> Tensor:
        put: Tensor = _Put.apply(dg, *ctx.saved_tensors, ctx.sites)  # type: ignore[no-untyped-call]
        return put


def _merged(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> list[Tensor]:
    """Return the tensors with the axis that vmap added as part of the batch."""
    return [
        (t.expand(info.batch_size, *t.shape) if axis is None else t.movedim(axis, 0)).flatten(0, 1)
        for t, axis in zip(tensors, in_dims, strict=False)
    ]


def _rows(index: Tensor, sites: int) -> Tensor:
    """Indices into the rows of (batch · sites, C)."""
    start = torch.arange(index.shape[0], device=index.device) * sites
    return (index + start.unsqueeze(1)).flatten()
