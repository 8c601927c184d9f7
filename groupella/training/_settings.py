"""The settings of a run: everything that determines its result besides data and network."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, Literal

from groupella.curvature.approximations import APPROXIMATIONS

from ._optimisers import Schedule

Method = Literal["map", "adam", "fixed_point", "linearised"]
PriorStep = Literal["proximal", "gradient"]
HyperMode = Literal["evidence", "map"]
FEW_CLASSES, MANY_COLUMNS = 20, 8  # exact up to so many; Monte-Carlo columns above
LARGEST_SEED = (1 << 63) - 1


@dataclass(frozen=True)
class Settings:
    """How to train; `fit(..., epochs=20)` changes single fields.

    Parameters
    ----------
    epochs, batch_size, lr, schedule
        Adam on the weights; the schedule runs over all steps.
    clip
        Maximum norm of the gradient of the data term, None for no limit.
    prior_step
        How the prior acts on the weights: exactly, after each Adam step ("proximal", stable at any
        δ), or by adding δ w / N to the gradient ("gradient"). See `_weights.py`.
    method
        "map" keeps precisions fixed; "fixed_point", "adam" and "linearised" learn them (see
        `Evidence.step`).
    burn_in, update_every
        Precisions are updated after epoch `burn_in`, every `update_every` epochs from then on, and
        after the last epoch.
    hyper_steps, hyper_lr, hyper_schedule
        Steps per update; learning rate and schedule of "adam".
    prune_from
        Part of training (0 … 1) after which an update also removes paths without which the evidence
        is higher (see `groupella.evidence.prune`); None for never.
    network_hyper
        How lengthscales and anchor positions without a prior learn: from the "evidence" (one
        gradient step per update, rate `hyper_lr`) or with the weights ("map").
    curvature_subset
        Number of random examples for the curvature, None for all.
    fit_subset
        Number of examples, the same in every update, on which updates measure the data fit, None
        for all. Precisions do not depend on it, unless noise is learned or by "linearised", which
        uses all. The evidence at the end is that of all data.
    curvature_samples
        Number of Monte-Carlo columns, None for exact curvature. "auto" is exact up to 20 classes
        and takes 8 columns above, where the choice of the subset matters more.
    approximation
        "expand" or "reduce"; see `groupella.curvature.approximations`.
    curvature_batch
        Examples per batch in passes for curvature and data fit.
    patience, min_gain
        Stop after `patience` updates without an evidence higher by `min_gain` nats per example.
    seed
        Random seed for batch order, subsets and everything else that is random.
    checkpoint_every, keep_best
        Epochs between checkpoints; whether to write one of the best epoch too.
    """

    epochs: int = 60
    batch_size: int = 64
    lr: float = 0.003
    schedule: Schedule = "cosine"
    clip: float | None = None
    prior_step: PriorStep = "proximal"
    method: Method = "fixed_point"
    burn_in: int = 3
    update_every: int = 1
    hyper_steps: int = 10
    hyper_lr: float = 0.1
    hyper_schedule: Schedule = "cosine"
    prune_from: float | None = 0.5
    network_hyper: HyperMode = "evidence"
    curvature_subset: int | None = 400
    fit_subset: int | None = 5000
    curvature_samples: int | Literal["auto"] | None = "auto"
    approximation: str = "expand"
    curvature_batch: int = 200
    patience: int | None = None
    min_gain: float = 1e-3
    seed: int = 0
    checkpoint_every: int = 1
    keep_best: bool = True

    def __post_init__(self) -> None:
        for name in _COUNTS:
            require_whole(name, getattr(self, name), 1)
        require_whole("burn_in", self.burn_in, 0)
        require_seed(self.seed)
        for name in ("lr", "hyper_lr"):
            require_positive(name, getattr(self, name))
        for name in ("clip", "curvature_subset", "fit_subset", "patience"):
            value = getattr(self, name)
            require(value is None or value > 0, name, "positive or None", value)
        m = self.curvature_samples
        known = m is None or m == "auto" or (not isinstance(m, str) and m > 0)
        require(known, "curvature_samples", 'positive, None or "auto"', m)
        part = self.prune_from
        require(part is None or 0 <= part <= 1, "prune_from", "between 0 and 1, or None", part)
        for name, choices in _CHOICES.items():
            allowed = "one of " + ", ".join(map(repr, choices))
            require(getattr(self, name) in choices, name, allowed, getattr(self, name))

    @property
    def learns_precisions(self) -> bool:
        """Whether training learns the prior precisions."""
        return self.method != "map"

    def updates_after(self, epoch: int) -> bool:
        """Whether precisions are updated after `epoch` (0-based)."""
        if not self.learns_precisions:
            return False
        done = epoch + 1
        due = done >= self.burn_in and (done - self.burn_in) % self.update_every == 0
        return due or done == self.epochs

    def prunes_after(self, epoch: int) -> bool:
        """Whether the update after `epoch` also removes paths."""
        return self.prune_from is not None and epoch + 1 >= self.prune_from * self.epochs

    def columns(self, classes: int | None) -> int | None:
        """The number of Monte-Carlo columns for that many classes, None for exact curvature."""
        if self.curvature_samples == "auto":
            return MANY_COLUMNS if (classes or 0) > FEW_CLASSES else None
        return self.curvature_samples

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary."""
        return asdict(self)

    def differences(self, other: dict[str, Any]) -> list[str]:
        """Return the settings that differ in `other` and change the result."""
        return [
            f"{name}={other.get(name)!r} there, {mine!r} here"
            for name, mine in self.as_dict().items()
            if name not in ("checkpoint_every", "keep_best") and mine != other.get(name)
        ]

    @classmethod
    def paper(cls, **changes: Any) -> Settings:
        """Return the published protocol for CIFAR-10: thousands of epochs, meant for a GPU."""
        protocol: dict[str, Any] = {
            "epochs": 4000,
            "batch_size": 128,
            "lr": 0.01,
            "prior_step": "gradient",
            "method": "adam",
            "burn_in": 10,
            "update_every": 5,
            "hyper_steps": 1,
            "hyper_lr": 0.1,
            "prune_from": None,
            "curvature_subset": None,
            "curvature_samples": None,
            "fit_subset": None,
        }
        return cls(**{**protocol, **changes})


_COUNTS = (
    "epochs",
    "batch_size",
    "update_every",
    "hyper_steps",
    "curvature_batch",
    "checkpoint_every",
)
_CHOICES: Mapping[str, Collection[str]] = {
    "schedule": ("cosine", "one_cycle", "constant"),
    "hyper_schedule": ("cosine", "constant"),
    "prior_step": ("proximal", "gradient"),
    "method": ("map", "fixed_point", "adam", "linearised"),
    "network_hyper": ("evidence", "map"),
    "approximation": APPROXIMATIONS,
}


_USUAL = {
    "learning_rate": "lr",
    "num_epochs": "epochs",
    "n_epochs": "epochs",
    "max_epochs": "epochs",
    "batch": "batch_size",
    "random_state": "seed",
    "sample_weight": "weights",
    "warmup": "burn_in",
}


def check_names(
    changes: Mapping[str, Any],
    of: type | None = None,
    where: str = "fit",
    beside: Sequence[str] = (),
) -> None:
    """Raise `TypeError` for a name that is no setting, with the one that was probably meant.

    Parameters
    ----------
    changes
        Settings by name.
    of, where
        The dataclass of the settings, `Settings` by default, and the function that takes them.
    beside
        Other arguments of that function, which may have been meant.
    """
    known = [*(f.name for f in fields(of or Settings)), *beside]
    for name in changes:
        if name not in known:
            usual = [n for n in [_USUAL.get(name)] if n in known]
            near = usual or get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise TypeError(f"{where} has no setting {name!r}{hint} Known: {', '.join(known)}")


def require_whole(name: str, value: object, least: int) -> None:
    """Raise `ValueError` unless the value is a whole number from `least` on."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    require(whole and value >= least, name, f"a whole number, at least {least}", value)  # type: ignore[operator]


def require_seed(seed: object) -> None:
    """Raise `ValueError` unless it is a seed that every generator takes."""
    require_whole("seed", seed, 0)
    require(seed <= LARGEST_SEED, "seed", f"at most {LARGEST_SEED}", seed)  # type: ignore[operator]


def require_positive(name: str, value: object) -> None:
    """Raise `ValueError` unless the value is a positive finite number."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    require(number and 0 < value < math.inf, name, "positive", value)  # type: ignore[operator]


def require(holds: bool, name: str, wanted: str, value: object) -> None:
    if not holds:
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
