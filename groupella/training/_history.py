"""What happened, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from groupella._files import write_text
from groupella._schema import build, write_json


@dataclass(frozen=True)
class EpochRecord:
    """One epoch: MAP loss per example, evidence in nats (None without an update), and so on.

    `taken_out` names the prior groups that were removed for good after this epoch.
    """

    epoch: int
    objective: float
    nll: float
    accuracy: float | None
    lr: float
    seconds: float
    log_evidence: float | None = None
    precisions: dict[str, float] | None = None
    effective_parameters: dict[str, float] | None = None
    noise: float | None = None
    validation_nll: float | None = None
    validation_accuracy: float | None = None
    remarks: tuple[str, ...] = ()
    taken_out: tuple[str, ...] = ()


@dataclass
class History:
    """The records of all epochs, in order."""

    records: list[EpochRecord] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[EpochRecord]:
        return iter(self.records)

    def __getitem__(self, index: int) -> EpochRecord:
        return self.records[index]

    @property
    def evidences(self) -> list[float]:
        """The log evidence of each update."""
        return [r.log_evidence for r in self.records if r.log_evidence is not None]

    def column(self, name: str) -> list[Any]:
        """Return one field over the epochs."""
        return [getattr(r, name) for r in self.records]

    def as_list(self) -> list[dict[str, Any]]:
        """Return plain records for JSON."""
        return [asdict(r) for r in self.records]

    @classmethod
    def from_list(cls, entries: Any) -> History:
        """Restore what `as_list` returned; raise `ValueError` for anything else."""
        return build(cls, {"records": entries})

    def save(self, path: str | Path) -> Path:
        """Write as JSON, atomically."""
        return write_text(path, write_json(self.as_list(), indent=1) + "\n")
