"""`import groupella` is light, and offers what people need first."""

from __future__ import annotations

import subprocess
import sys

import pytest

import groupella


def test_importing_it_imports_neither_torch_nor_numpy() -> None:
    code = "import sys, groupella; print('torch' in sys.modules, 'numpy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False False\n"


def test_every_name_is_there_and_listed() -> None:
    for name in groupella.__all__:
        assert getattr(groupella, name) is not None
    assert set(groupella.__all__) <= set(dir(groupella))
    with pytest.raises(AttributeError, match="has no attribute 'selekt'"):
        _ = groupella.selekt
