"""Check the installation: packages, hardware, and one equivariance test from end to end.

The test takes a p4 convolution Φ of escnn on a torus (circular padding) and a random feature map x
with a regular fibre, and compares Φ(g·x) with g·Φ(x) for a quarter turn and for a shift:

    (g·x)(f, s) = Σ_f′ ρ(g)[f, f′] x(f′, g⁻¹s).

An incompatible numpy, an incomplete escnn or a broken torch shows up here in a second or two.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from groupella import __version__

TOLERANCE = 1e-4  # float32; a sound convolution is at about 1e-6, a broken one near 1


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    ok: False if groupella does not work because of it
    remedy: the command that repairs it, where there is one
    """

    name: str
    text: str
    ok: bool = True
    remedy: str = ""


def examine() -> Iterator[Finding]:
    """Examine the installation, one finding at a time; never raises."""
    yield Finding("groupella", __version__)
    yield Finding("Python", f"{platform.python_version()} on {platform.platform(terse=True)}")
    yield _dependencies()
    for name in ("numpy", "scipy", "torch"):
        yield _finding(name, functools.partial(_version, name))
    yield _finding("threads", _threads)
    yield _finding("CUDA", _cuda)
    escnn = _finding("escnn", _escnn)
    yield escnn
    yield Finding("py3nj", _py3nj())
    if escnn.ok:
        yield _finding("equivariance", _equivariance)


def _finding(name: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(name, look())
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, ModuleNotFoundError) and error.name == "escnn":
            return Finding(name, reason, ok=False, remedy="pip install --no-deps escnn")
        return Finding(name, f"{type(error).__name__}: {reason}", ok=False)


def _dependencies() -> Finding:
    """The packages that groupella requires, except those of its extras."""
    lines = importlib.metadata.requires("groupella") or []
    names = [re.split(r"[^\w.-]", line)[0] for line in lines if "extra ==" not in line]
    missing = [name for name in names if not _installed(name)]
    if not missing:
        return Finding("dependencies", f"all {len(names)} installed")
    listed = " ".join(missing)
    return Finding(
        "dependencies", f"not installed: {listed}", ok=False, remedy=f"pip install {listed}"
    )


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _version(name: str) -> str:
    return str(importlib.import_module(name).__version__)


def _threads() -> str:
    import torch

    return f"torch uses {torch.get_num_threads()} of {os.cpu_count()} processors"


def _cuda() -> str:
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()} (CUDA {torch.version.cuda})"
    return "not available; everything runs on the CPU"


def _escnn() -> str:
    from groupella.groups.gate import cache_directory, load_group

    load_group()
    where = cache_directory() or "none, the user's cache directory is not writable"
    return f"{importlib.metadata.version('escnn')} (cache: {where})"


def _py3nj() -> str:
    if importlib.util.find_spec("py3nj") is not None:
        return "installed"
    return "not installed, and not needed (it makes SO(3) and O(3) faster)"


def _equivariance() -> str:
    start = time.perf_counter()
    error = p4_convolution_error()
    seconds = time.perf_counter() - start
    if not error < TOLERANCE:
        raise ArithmeticError(
            f"a p4 convolution on a torus is not equivariant: relative error {error:.1e}, "
            f"expected less than {TOLERANCE:.0e}"
        )
    return f"p4 convolution on an 8x8 torus, relative error {error:.1e} ({seconds:.1f} s)"


def p4_convolution_error(seed: int = 0) -> float:
    """Return the largest relative error of Φ(g·x) = g·Φ(x) over a quarter turn and a shift."""
    import torch

    from groupella.groups.gate import load_gspaces, load_nn

    gspaces, nn = load_gspaces(), load_nn()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        space = gspaces.rot2dOnR2(4)
        fields = nn.FieldType(space, [space.regular_repr] * 2)
        layer = nn.R2Conv(fields, fields, kernel_size=3, padding=1, padding_mode="circular")
        x = torch.randn(2, fields.size, 8, 8)

        def apply(x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = layer(fields(x)).tensor
            return y

        rho = torch.as_tensor(
            fields.representation(space.fibergroup.element(1)), dtype=torch.float32
        )

        def turn(x: torch.Tensor) -> torch.Tensor:
            return torch.einsum("fg,nghw->nfhw", rho, torch.rot90(x, 1, (2, 3)))

        def shift(x: torch.Tensor) -> torch.Tensor:
            return torch.roll(x, (1, 3), (2, 3))

        scale = apply(x).abs().max()
        errors = [(apply(g(x)) - g(apply(x))).abs().max() / scale for g in (turn, shift)]
        return float(torch.stack(errors).max())
