"""Checkpoints: one safetensors file with tensors and JSON state, written atomically.

Tensors are a flat dictionary; everything else (counters, settings, the description of the network)
is one JSON text in the file's metadata, with a SHA-256 digest of that text and of every tensor.
Nothing is pickled, so reading a checkpoint from a stranger does not run their code. The digest is
verified before anything is returned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from groupella._files import replacing
from groupella._schema import parse_json, write_json

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
    """Write `checkpoint` to `path` atomically and durably; return the path.

    Raises
    ------
    OSError
        If it cannot be written; what was there before is kept.
    """
    tensors = _independent(checkpoint.tensors)
    text = write_json(checkpoint.state)
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "state": text,
        "digest": _digest(tensors, text),
    }
    with replacing(path, durable=True) as temporary:
        try:
            save_file(tensors, temporary, metadata=metadata)
        except SafetensorError as error:  # also if the disk is full
            raise OSError(f"cannot write {path}: {error}") from error
    return Path(path)


def load_checkpoint(path: str | Path, device: str | torch.device = "cpu") -> Checkpoint:
    """Return the checkpoint in a file, with its tensors on `device`.

    Raises
    ------
    FileNotFoundError
        If there is no file.
    CheckpointError
        If the file is truncated, altered, of another version or not a checkpoint.
    """
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
    try:
        state = parse_json(text)
    except ValueError as error:
        raise CheckpointError(f"{path} has a state that is not JSON: {error}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} has a state that is not an object")
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
