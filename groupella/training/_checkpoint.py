"""Checkpoints: one safetensors file, tensors and JSON state together, written atomically.

A checkpoint is a single file. Its tensors are a flat dictionary; everything else (counters,
settings, the description of the network) is one JSON text in the file's metadata, beside a SHA-256
digest of that text and of every tensor. Nothing is pickled, so a checkpoint from a stranger can be
read without running their code.

Writing goes to a temporary file in the same directory, which is flushed to the disk and renamed
over the old one: whenever the process dies, the name holds either the old checkpoint or the new
one, whole. Reading verifies the digest before anything is handed out.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

FORMAT = "groupella-checkpoint"
VERSION = 1


class CheckpointError(ValueError):
    """A checkpoint that cannot be used: truncated, altered, foreign, or of another run."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint file: named tensors and a JSON-serialisable state."""

    tensors: Mapping[str, Tensor]
    state: Mapping[str, Any]

    def section(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with `prefix/`, without that prefix."""
        head = prefix + "/"
        return {k[len(head) :]: v for k, v in self.tensors.items() if k.startswith(head)}


def save_checkpoint(path: str | Path, checkpoint: Checkpoint) -> Path:
    """Write `checkpoint` to `path` atomically and durably. Returns the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = _independent(checkpoint.tensors)
    text = json.dumps(checkpoint.state, sort_keys=True)
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "state": text,
        "digest": _digest(tensors, text),
    }
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        save_file(tensors, temporary, metadata=metadata)
        _flush(temporary)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    _flush(path.parent)
    _sweep(path)
    return path


def load_checkpoint(path: str | Path, device: str | torch.device = "cpu") -> Checkpoint:
    """Read and verify a checkpoint; `CheckpointError` says what is wrong with a bad one."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint at {path}")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise CheckpointError(
                    f"{path} is a safetensors file but not a groupella checkpoint: its metadata "
                    f"lacks format={FORMAT!r}. Give a file that fit() wrote."
                )
            if metadata.get("version") != str(VERSION):
                raise CheckpointError(
                    f"{path} has checkpoint version {metadata.get('version')}, this groupella "
                    f"reads version {VERSION}. Use the groupella that wrote it."
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointError(
            f"{path} is truncated or is no checkpoint at all ({error}). "
            "Delete it, or resume from the other checkpoint of the run (best or last)."
        ) from error
    text = metadata.get("state", "")
    if _digest(tensors, text) != metadata.get("digest"):
        raise CheckpointError(
            f"{path} was altered after it was written: its digest does not match its content. "
            "Delete it, or resume from the other checkpoint of the run (best or last)."
        )
    state = json.loads(text)
    return Checkpoint({k: v.to(device) for k, v in tensors.items()}, state)


def _independent(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """CPU copies where needed: safetensors refuses views and tensors that share memory."""
    seen: set[int] = set()
    result = {}
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        storage = tensor.untyped_storage()
        shares = storage.data_ptr() in seen or storage.nbytes() != tensor.nbytes
        if tensor.numel() and shares:
            tensor = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
        result[name] = tensor
    return result


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _flush(path: Path) -> None:
    """Ask the system to put a file (or a directory's entries) on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(path: Path) -> None:
    """Remove temporary files that processes no longer alive left beside `path`."""
    for stale in path.parent.glob(f".{path.name}.*.tmp"):
        owner = stale.name.rsplit(".", 2)[-2]
        if owner.isdigit() and not _alive(int(owner)):
            with contextlib.suppress(OSError):
                stale.unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
