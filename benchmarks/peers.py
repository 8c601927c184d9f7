"""Do the libraries that we compare with load beside one torch? Versions and load times."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import time
import warnings

PEERS = {
    "torch": "torch",
    "escnn": "groupella.groups.gate",
    "curvlinops-for-pytorch": "curvlinops",
    "asdfghjkl": "asdl",
    "nngeometry": "nngeometry",
    "backpack-for-pytorch": "backpack",
    "laplace-torch": "laplace",
    "jax": "jax",
    "emlp": "emlp",
}


def main() -> int:
    failed = False
    for distribution, module in PEERS.items():
        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(module)
            text = f"{time.perf_counter() - start:.1f} s"
        except Exception as error:
            text, failed = f"{type(error).__name__}: {error}", True
        print(f"{distribution:<24} {importlib.metadata.version(distribution):<14} {text}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
