"""Training as a job says: its prior, and the augmentation of its data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .jobs import Job

if TYPE_CHECKING:
    from groupella.data import ImageData
    from groupella.networks import Trunk
    from groupella.training import Fit, Settings


def train(job: Job, network: Trunk, data: ImageData, settings: Settings, **options: Any) -> Fit:
    """`fit` on the training images; `options` are those of `fit` that do not follow from these."""
    from groupella.evidence import Prior
    from groupella.training import fit

    return fit(
        network,
        (data.train_x, data.train_y),
        settings=settings,
        prior=Prior.from_network(network, on=job.prior),  # type: ignore[arg-type]
        augment=data.augmentation,
        **options,
    )
