"""Checkpoint files: whole or refused, never half-written."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from groupella.training import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from groupella.training import _checkpoint as module


def example(value: float = 1.0) -> Checkpoint:
    shared = torch.arange(6.0) * value
    tensors = {
        "network/a": shared,
        "network/b": shared.view(2, 3),
        "network/c": torch.eye(3).t()[:, :2],
        "rng": torch.arange(5, dtype=torch.uint8),
        "empty": torch.zeros(0),
    }
    return Checkpoint(tensors, {"epoch": 3, "loss": 0.1 + 0.2, "names": ["λ"]})


def test_what_is_saved_is_loaded_bit_for_bit(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path / "run" / "last.safetensors", example())
    loaded = load_checkpoint(path)
    assert loaded.state == example().state
    assert loaded.tensors.keys() == example().tensors.keys()
    for name, tensor in example().tensors.items():
        assert torch.equal(loaded.tensors[name], tensor)
        assert loaded.tensors[name].dtype == tensor.dtype
    assert set(loaded.section("network")) == {"a", "b", "c"}


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_a_truncated_file_is_refused_and_left_alone(tmp_path: Path, keep: int) -> None:
    path = save_checkpoint(tmp_path / "last.safetensors", example())
    content = path.read_bytes()[:keep]
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="truncated"):
        load_checkpoint(path)
    assert path.read_bytes() == content


def header(declared: object, data: bytes = b"") -> bytes:
    """A safetensors file with that header, whatever it declares."""
    text = json.dumps(declared).encode()
    return struct.pack("<Q", len(text)) + text + data


TERABYTE = {"dtype": "F32", "shape": [1 << 38], "data_offsets": [0, 1 << 40]}


@pytest.mark.parametrize(
    "content",
    [
        header({"network/a": TERABYTE}, bytes(100)),
        header({"network/a": {**TERABYTE, "data_offsets": [0, 100]}}, bytes(100)),
        header({"network/a": {**TERABYTE, "shape": [1 << 62, 1 << 62]}}, bytes(100)),
        header({"network/a": {**TERABYTE, "shape": [-1]}}, bytes(100)),
        struct.pack("<Q", 1 << 60) + b"{}",
        struct.pack("<Q", 200_000) + b"[" * 200_000,
    ],
    ids=["more than there is", "other shape", "overflow", "negative", "header", "nested"],
)
def test_a_file_that_declares_more_than_it_has_is_refused_at_once(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "last.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"last\.safetensors is truncated") as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


def test_an_altered_file_is_refused(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path / "last.safetensors", example())
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="digest"):
        load_checkpoint(path)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "other.safetensors"
    save_file({"w": torch.zeros(2)}, foreign)
    with pytest.raises(CheckpointError, match="not a groupella checkpoint"):
        load_checkpoint(foreign)
    text = tmp_path / "text.safetensors"
    text.write_text("hello, this is no tensor file at all")
    with pytest.raises(CheckpointError, match="no checkpoint at all"):
        load_checkpoint(text)
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        load_checkpoint(tmp_path / "missing.safetensors")


def test_a_later_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERSION", 2)
    path = save_checkpoint(tmp_path / "last.safetensors", example())
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="version 2"):
        load_checkpoint(path)


FULL = """
import resource, signal, sys, torch
from groupella.training import Checkpoint, save_checkpoint
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    save_checkpoint(sys.argv[1], Checkpoint({"network/a": torch.ones(100_000)}, {}))
except OSError as error:
    print(error)
"""


def test_a_failed_write_is_an_os_error_and_keeps_the_old_checkpoint(tmp_path: Path) -> None:
    """A limit on the size of files, as on a full disk, strikes inside safetensors."""
    path = save_checkpoint(tmp_path / "last.safetensors", example(1.0))
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(rf"cannot write {path}: .*File too large.*\n", done.stdout), done
    assert torch.equal(load_checkpoint(path).tensors["network/a"], torch.arange(6.0))
    assert [p.name for p in tmp_path.iterdir()] == ["last.safetensors"]


def test_leftovers_of_dead_processes_are_swept(tmp_path: Path) -> None:
    dead = tmp_path / ".last.safetensors.999999999.0123456789abcdef.tmp"
    own = tmp_path / f".last.safetensors.{os.getppid()}.0123456789abcdef.tmp"
    for folder in (dead, own):
        folder.mkdir()
        (folder / "half").write_bytes(b"half")
    save_checkpoint(tmp_path / "last.safetensors", example())
    assert not dead.exists()
    assert own.exists()
