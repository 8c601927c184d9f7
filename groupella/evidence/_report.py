"""The terms of the evidence: the data fit, and the cost of each path."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class GroupTerm:
    """One prior group's part: log p(D) contains `log_prior` + `log_volume` = −Occam factor."""

    name: str
    size: int
    precision: float
    squared_norm: float
    log_prior: float
    log_volume: float
    effective_parameters: float

    @property
    def occam(self) -> float:
        """The cost of the group in nats: ½ δ‖w‖² + ½ Σ log(1 + λ/δ), never negative."""
        return -(self.log_prior + self.log_volume)


@dataclass(frozen=True)
class EvidenceReport:
    """log p(D) = log likelihood − Σ Occam factors, in nats."""

    n_data: int
    log_likelihood: float
    terms: tuple[GroupTerm, ...]
    noise: float | None = None

    @property
    def occam(self) -> float:
        """The sum of all Occam factors."""
        return sum(t.occam for t in self.terms)

    @property
    def log_marginal_likelihood(self) -> float:
        """log p(D)."""
        return self.log_likelihood - self.occam

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers for JSON."""
        return {
            "n_data": self.n_data,
            "log_marginal_likelihood": self.log_marginal_likelihood,
            "log_likelihood": self.log_likelihood,
            "noise": self.noise,
            "groups": [{**asdict(t), "occam": t.occam} for t in self.terms],
        }

    def __str__(self) -> str:
        width = max(len(t.name) for t in self.terms)
        lines = [
            f"log evidence {self.log_marginal_likelihood:.2f} nats "
            f"({self.log_marginal_likelihood / self.n_data:.4f} per datum, {self.n_data} data)",
            f"  data fit {self.log_likelihood:.2f}, Occam factors {-self.occam:.2f}:",
        ]
        lines += [
            f"  {t.name:<{width}}  {-t.occam:12.2f}   δ {t.precision:9.3g}   "
            f"γ {t.effective_parameters:9.2f} of {t.size}"
            for t in self.terms
        ]
        return "\n".join(lines)
