"""How many epochs fit into a time, measured before training.

Training needs to know its length beforehand, since the learning rate falls to zero at its end. An
epoch is timed on a few batches, as many as take a small part of the budget, so that a machine that
is faster in its first seconds than later does not promise too much.
"""

from __future__ import annotations

from dataclasses import replace

from ._jobs import Job
from ._record import RunError

MEASURED = 0.004  # of the budget
SPARE = 0.15  # of the budget, for measuring, the report, and other work on the machine
FORWARD = 1 / 3  # of the cost of a training step


def with_budget(job: Job, budget: float, data_dir: str | None = None) -> Job:
    """The job with as many epochs as fit into `budget` seconds; where too few do, an error."""
    from groupella.training import fit

    data = job.load(data_dir)
    settings = job.settings()
    n_data, size = len(data.train_y), settings.batch_size

    def seconds(method: str, count: int) -> float:
        few = (data.train_x[:count], data.train_y[:count])
        trial = replace(settings, epochs=2, burn_in=2, method=method, prune_from=None)  # type: ignore[arg-type]
        return fit(job.network(data), few, settings=trial, progress=False).history[-1].seconds

    count = min(3 * size, n_data)
    plain = seconds("map", count)
    while plain < MEASURED * budget and count < n_data:
        count = min(4 * count, n_data)
        plain = seconds("map", count)
    update, least = 0.0, 1
    passes = n_data + FORWARD * len(data.test_y)
    if settings.learns_precisions:
        update = max(seconds(settings.method, count) - plain, 0.0) / settings.update_every
        passes += FORWARD * (n_data - count) / settings.update_every
        least = settings.burn_in + 2
    epoch = plain / count * passes + update
    epochs = int((1 - SPARE) * budget / epoch)
    if epochs < least:
        why = f"evidence needs {least} (a burn-in of {settings.burn_in}, then two updates)"
        raise RunError(
            f"{_text(budget)} is too short: an epoch takes about {_text(epoch)}, and "
            f"{why if least > 1 else 'one is the least'}. Give about "
            f"{_text(least * epoch / (1 - SPARE))}, fewer data, or the number of epochs"
        )
    return job.for_epochs(epochs)


def _text(seconds: float) -> str:
    """As it can be typed: 40s, 5m, 1h30m; rounded up."""
    if seconds < 90:
        return f"{seconds:.2g}s" if seconds < 10 else f"{int(seconds + 1)}s"
    minutes = int(seconds / 60 + 1)
    return f"{minutes}m" if minutes < 90 else f"{minutes // 60}h{minutes % 60:02d}m"
