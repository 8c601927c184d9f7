"""Memory that training frees stays with the process, unless the environment says otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import torch
from groupella._machine import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def step():
    kept = [torch.zeros(1 << 20) for _ in range(8)]  # 32 MiB, freed all at once

if {keep}:
    assert keep_freed_memory() is {possible}
step()
step()
before = faults()
for _ in range(5):
    step()
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator than glibc's")
def test_freed_memory_is_used_again() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC", "GLIBC"))}
    environment.pop("LD_PRELOAD", None)

    def faults(keep: bool, possible: bool = True, **more: str) -> int:
        code = FAULTS.format(keep=keep, possible=possible)
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, env={**environment, **more}, check=True, capture_output=True, text=True
        )
        return int(done.stdout)

    pages = 5 * 32 * 2**20 // os.sysconf("SC_PAGE_SIZE")
    assert faults(keep=True) < pages / 20
    # The user's own choice: give everything back at once.
    assert faults(keep=True, possible=False, MALLOC_TRIM_THRESHOLD_="0") > pages / 4
