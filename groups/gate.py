"""The gate to escnn: the only module that imports it.

escnn supplies the catalogue of groups and representations. It is not a dependency of the package,
because it requires py3nj, which needs a Fortran compiler to build and which escnn works without.
Where escnn is missing, the gate says what to type. Five of its habits are handled here, once:

* Its dependency ``lie_learn`` is compiled for numpy 1. Where that cannot be imported, our own
  ``_wigner`` replaces the one function that escnn uses from it.
* It passes ``np.matrix`` to scikit-learn's ``randomized_svd``, which scikit-learn has rejected
  since 1.2. escnn is kept from using that function and falls back on scipy's exact SVD.
* It warns at import that ``py3nj`` is missing, although that only makes SO(3) slower.
* It writes ``joblib`` caches into its own package directory. They go to the user's cache directory.
* When a result is not cached, it may redirect standard output to a file that it never closes, which
  is a ``ResourceWarning``. It gets a stream that needs no closing.

The import takes about a second on top of torch, so it happens on first use: call ``load_group()``
and its siblings inside functions, never at module level.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import io
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_lock = threading.RLock()

MISSING = "groupella needs escnn, which is not installed: pip install --no-deps escnn"

_EXTMATH = "sklearn.utils.extmath"
_WIGNER = "lie_learn.representations.SO3.wigner_d"


def load_group() -> types.ModuleType:
    """Return ``escnn.group``: groups, their elements and representations.

    Raises
    ------
    ModuleNotFoundError
        If escnn is not installed; the message says how to install it.
    """
    return _load("group")


def load_gspaces() -> types.ModuleType:
    """Return ``escnn.gspaces``: groups acting on R² and R³."""
    return _load("gspaces")


def load_nn() -> types.ModuleType:
    """Return ``escnn.nn``: field types, geometric tensors and modules (imports ``torch.nn``)."""
    return _load("nn")


def cache_directory() -> Path | None:
    """Return the directory of escnn's cached results; ``None`` if it cannot be written."""
    import platformdirs

    try:
        path = Path(platformdirs.user_cache_dir("groupella", appauthor=False)) / "escnn"
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # a user without a home
        return None
    return path


def _load(name: str) -> types.ModuleType:
    with _lock:
        _import_escnn()
        return importlib.import_module(f"escnn.{name}")


@functools.cache
def _import_escnn() -> None:
    if sys.modules.get("escnn") is not None:
        _mend_imported()
        return
    if importlib.util.find_spec("escnn") is None:
        raise ModuleNotFoundError(MISSING, name="escnn")
    with (
        warnings.catch_warnings(),
        _without_module(_EXTMATH),
        _lie_learn(),
        _joblib_in(cache_directory()),
    ):
        warnings.filterwarnings("ignore", message=".*py3nj")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", SyntaxWarning)
        # escnn's own __init__ hides an ImportError of its parts: import each, so that it shows.
        for part in ("group", "kernels", "gspaces", "nn"):
            importlib.import_module(f"escnn.{part}")
    _numerical()["open"] = _nowhere


def _mend_imported() -> None:
    """Apply the fixes that still work after the user imported escnn."""
    import joblib

    _numerical().update(randomized_svd=None, open=_nowhere)
    memory = joblib.Memory(_location(cache_directory()), verbose=0)
    for name, module in list(sys.modules.items()):
        if name.startswith("escnn."):
            for value in vars(module).values():
                if isinstance(value, joblib.memory.MemorizedFunc):
                    value.store_backend = memory.store_backend


def _numerical() -> dict[str, Any]:
    return vars(importlib.import_module("escnn.group._numerical"))


def _nowhere(*_: object) -> io.StringIO:
    """In place of ``open(os.devnull, "w")``, the only file that escnn's solvers open."""
    return io.StringIO()


@contextlib.contextmanager
def _without_module(name: str) -> Iterator[None]:
    """Make ``import name`` fail with ImportError inside the context."""
    missing = object()
    before: Any = sys.modules.get(name, missing)
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
        if before is not missing:
            sys.modules[name] = before


@contextlib.contextmanager
def _lie_learn() -> Iterator[None]:
    """Import ``lie_learn``, or a replacement where it is missing or does not load."""
    try:
        # numpy 2 prints a long message to stderr for a module compiled for numpy 1.
        with contextlib.redirect_stderr(io.StringIO()):
            importlib.import_module(_WIGNER)
    except Exception:
        before = {k: v for k, v in sys.modules.items() if k.split(".")[0] == "lie_learn"}
        replacement = _replacement()
        sys.modules.update(replacement)
        try:
            yield
        finally:
            for name in replacement:
                del sys.modules[name]
            sys.modules.update(before)
    else:
        yield


def _replacement() -> dict[str, types.ModuleType]:
    from ._wigner import wigner_D_matrix

    parts = _WIGNER.split(".")
    names = [".".join(parts[: i + 1]) for i in range(len(parts))]
    modules = {name: types.ModuleType(name) for name in names}
    vars(modules[_WIGNER])["wigner_D_matrix"] = wigner_D_matrix
    return modules


@contextlib.contextmanager
def _joblib_in(directory: Path | None) -> Iterator[None]:
    """Create every ``joblib.Memory`` in ``directory``, and silent, inside the context."""
    import joblib

    original = joblib.Memory

    def memory(location: object = None, **options: Any) -> Any:
        options["verbose"] = 0
        return original(_location(directory), **options)

    joblib.Memory = memory
    try:
        yield
    finally:
        joblib.Memory = original


def _location(directory: Path | None) -> str | None:
    return None if directory is None else str(directory)
