"""What the user sees while training: a progress bar, and TensorBoard scalars on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ._history import EpochRecord


class Bar:
    """A rich progress bar: epoch, loss, accuracy, evidence per example, time passed and left."""

    def __init__(self, steps: int, done: int, epochs: int, label: str = "") -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}epoch {task.fields[epoch]}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            transient=False,
        )
        self._epochs = epochs
        self._task = self._progress.add_task(
            label and f"{label}: ", total=steps, completed=done, epoch=f"0/{epochs}", numbers=""
        )
        self._evidence: str = ""
        self._progress.start()

    def close(self) -> None:
        self._progress.stop()

    def step(self, done: int) -> None:
        self._progress.update(self._task, completed=done)

    def epoch(self, record: EpochRecord, n_data: int) -> None:
        if record.log_evidence is not None:
            self._evidence = f"evidence {record.log_evidence / n_data:.3f}"
        numbers = [f"loss {record.objective:.4f}"]
        if record.accuracy is not None:
            numbers.append(f"accuracy {100 * record.accuracy:.1f} %")
        if record.validation_accuracy is not None:
            numbers.append(f"validation {100 * record.validation_accuracy:.1f} %")
        if self._evidence:
            numbers.append(self._evidence)
        self._progress.update(
            self._task, epoch=f"{record.epoch + 1}/{self._epochs}", numbers=", ".join(numbers)
        )
        for remark in record.remarks:
            self._progress.console.print(remark)


class TensorBoard:
    """Scalars of every epoch, if tensorboard is installed."""

    def __init__(self, directory: str | Path, purge: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "tensorboard=… needs the package tensorboard: pip install tensorboard"
            ) from error
        # Purge records of epochs that will be repeated after a crash.
        self._writer: Any = SummaryWriter(str(directory), purge_step=purge)

    def step(self, done: int) -> None:
        """Steps are not recorded."""

    def epoch(self, record: EpochRecord, n_data: int) -> None:
        scalars: dict[str, float | None] = {
            "objective": record.objective,
            "nll": record.nll,
            "accuracy": record.accuracy,
            "lr": record.lr,
            "validation/nll": record.validation_nll,
            "validation/accuracy": record.validation_accuracy,
            "noise": record.noise,
        }
        if record.log_evidence is not None:
            scalars["evidence per datum"] = record.log_evidence / n_data
        for name, value in (record.precisions or {}).items():
            scalars[f"precision/{name}"] = value
        for name, value in (record.effective_parameters or {}).items():
            scalars[f"gamma/{name}"] = value
        for name, scalar in scalars.items():
            if scalar is not None:
                self._writer.add_scalar(name, scalar, record.epoch)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
