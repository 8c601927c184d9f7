"""Settings that are shared by commands, each found by trying on the embedded digits."""

from __future__ import annotations

from typing import Any

from .jobs import Job

# Complete, so that the demo does not change when defaults do.
TRAINING: dict[str, Any] = {
    "epochs": 50,
    "batch_size": 32,
    "lr": 0.005,
    "method": "fixed_point",
    "burn_in": 10,
    "update_every": 2,
    "hyper_steps": 5,
    "prune_from": 0.5,
    "curvature_subset": 200,
    "curvature_samples": 4,
}

DEMO_GROUPS = "trivial,z2,p4"
DEMO_TASKS = {
    "which digit?": "p4",
    "which digit, turned how?": "z2",
}
# Without 0, 1 and 8, which are nearly their own half turns, and 9, which is nearly that of 6.
DEMO_DIGITS = "2,3,4,5,6,7"


def demo_jobs(seed: int) -> list[Job]:
    """Two tasks on the same turned and shifted digits, whose labels have different symmetries."""
    return [
        Job(
            title=f"Turned digits: {question}",
            data="digits",
            groups=DEMO_GROUPS,
            motion="p4",
            obeys=obeys,
            keep=DEMO_DIGITS,
            alpha=4,
            blocks=((1, 2), (2, 2), (4, 2)),
            hidden=8,
            seed=seed,
            training=TRAINING,
        )
        for question, obeys in DEMO_TASKS.items()
    ]
