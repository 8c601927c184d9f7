"""How many epochs fit into a time budget, measured before training.

Training must know its length beforehand because the learning rate falls to zero at the end. A run
of E epochs takes

    E · epoch + (U + 1) · update

where `epoch` is a pass over the training images with steps plus one over the test images without,
U is the number of precision updates, and `update` is the curvature, a pass for the data fit, and
the steps; one more update follows training. Passes are timed on enough batches to take a small
share of the budget, so that a machine that is faster in its first seconds does not promise too
much. Updates are timed on as many data as the curvature uses, the second time, because the first
costs more. Time spent on measuring is subtracted, and so is that of testing the verdict.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from .jobs import Job
from .record import RunError

if TYPE_CHECKING:
    from groupella.data import ImageData
    from groupella.training import Fit, Settings

MEASURED = 0.004  # share of the budget for one epoch of a trial
TRIAL = 256  # data on which a search is timed
FEWEST_EPOCHS, FEWEST_DATA = 8, 500  # of a search that is cut to its budget
SPARE = 0.12  # share for loading, checkpoints, the report, and other work on the machine


@dataclass(frozen=True)
class Cost:
    """Seconds that an epoch and an update of the precisions take; the last one takes `more`."""

    epoch: float
    update: float = 0.0
    more: float = 0.0

    def of(self, epochs: int, settings: Settings) -> float:
        """Return the cost of training for that many epochs."""
        if not settings.learns_precisions:
            return epochs * self.epoch
        counted = replace(settings, epochs=max(epochs, 1))
        updates = sum(counted.updates_after(epoch) for epoch in range(epochs))
        return epochs * self.epoch + (updates + 1) * self.update + self.more


def with_budget(job: Job, budget: float, data: ImageData) -> Job:
    """Return the job with as many epochs as fit into `budget` seconds.

    Raises
    ------
    RunError
        If the budget is too short.
    """
    if job.search == "confirm":
        return _searching(job, budget, data)
    settings = job.settings()
    started = time.perf_counter()
    cost = measure(job, data, MEASURED * budget)
    tests = _Trial.of(job, data).test if job.tested else 0.0
    spent = time.perf_counter() - started + tests
    free = (1 - SPARE) * budget - spent
    most = max(int(free / cost.epoch), 0)
    epochs = bisect_right(range(1, most + 1), free, key=lambda e: cost.of(e, settings))
    least = settings.burn_in + 2 if settings.learns_precisions else 1
    if epochs < least:
        why = f"evidence needs {least} (a burn-in of {settings.burn_in}, then two updates)"
        raise RunError(
            f"{_text(budget)} is too short: an epoch takes about "
            f"{_text(cost.of(least, settings) / least)}, and "
            f"{why if least > 1 else 'one is the least'}. Give about "
            f"{_text((cost.of(least, settings) + spent) / (1 - SPARE - 0.05))}, fewer data, or the "
            f"number of epochs"
        )
    return job.for_epochs(epochs)


@dataclass(frozen=True)
class _Trial:
    """Seconds of a search: an epoch of all its networks, what comes beside, and the trial."""

    job: Job
    n: int
    trainings: float
    epoch: float
    beside: float
    spent: float

    @classmethod
    def of(cls, job: Job, data: ImageData) -> _Trial:
        """Time a search of two epochs on a few of the data."""
        import torch

        from groupella.training import find_symmetry

        n, count = len(data.train_y), min(len(data.train_y), TRIAL)
        # Time does not depend on labels, and the first data may all have the same.
        y = data.train_y[:count]
        if data.targets.kind == "classes":
            y = torch.arange(count) % len(data.classes)
        epochs: list[float] = []
        started = time.perf_counter()
        find_symmetry(
            (data.train_x[:count], y),
            job.group_set(data.lattice),
            data.targets.outputs,
            replace(job.find_settings(), epochs=2, looks=1, layers=False),
            task=data.targets.kind,
            progress=False,
            on_epoch=lambda record, _: epochs.append(record.seconds),
        )
        spent = time.perf_counter() - started
        # Tests and evidence come beside the epochs.
        epoch = sum(epochs) / 2 * n / count
        beside = max(spent - sum(epochs), 0.0)
        return cls(job, n, max(len(epochs) / 2, 1.0), epoch, beside, spent)

    @property
    def wanted(self) -> int:
        """The epochs of each training if there is time."""
        return self.job.find_settings().training(self.n).epochs

    @property
    def test(self) -> float:
        """Seconds to test a verdict: a network that obeys it and a free one, twice if needed."""
        often = 2 * self.job.find_settings().looks
        return often / self.trainings * (self.epoch * self.wanted + self.beside)


def _searching(job: Job, budget: float, data: ImageData) -> Job:
    """Return the job with the epochs per training that fit, or with fewer data if too few fit.

    Networks for the candidates, for none of them and for the verdict cost about the same. Where the
    budget does not allow a second look and a question about layers, the job goes without.
    """
    thorough, groups = job.find_settings(), job.group_set(data.lattice)
    settings = replace(thorough, looks=1, layers=False)
    trial = _Trial.of(job, data)
    n, epoch, beside, wanted = trial.n, trial.epoch, trial.beside, trial.wanted
    free = (1 - SPARE) * budget - trial.spent - beside
    more = thorough.trainings(groups) / settings.trainings(groups)
    if more * (epoch * wanted + beside) <= free + beside:
        return job.for_epochs(wanted)
    job = replace(job, training={**job.training, "looks": 1, "layers": False})
    if epoch * wanted <= free:
        return job.for_epochs(wanted)
    if epoch * FEWEST_EPOCHS <= free:
        return job.for_epochs(int(free / epoch))
    fewer = int(n * free / (epoch * FEWEST_EPOCHS))
    if fewer < min(n, FEWEST_DATA):
        least = epoch * FEWEST_EPOCHS * min(FEWEST_DATA / n, 1)
        needed = (least + trial.spent + beside) / (1 - SPARE - 0.05)
        raise RunError(
            f"{_text(budget)} is too short to train a network for every candidate. Give about "
            f"{_text(needed)}, smaller images (--size) or fewer groups"
        )
    return replace(job, train_size=fewer).for_epochs(FEWEST_EPOCHS)


def measure(job: Job, data: ImageData, seconds: float) -> Cost:
    """Return the cost of an epoch and an update; an epoch of the trial takes about `seconds`."""
    from groupella.evidence import data_fit

    settings = job.settings()
    n, size = len(data.train_y), settings.batch_size

    def trial(count: int, chosen: Settings) -> Fit:
        few = replace(data, train_x=data.train_x[:count], train_y=data.train_y[:count])
        return job.fit(job.network(few), few, chosen, progress=False)

    alone = replace(settings, epochs=2, method="map", prune_from=None, patience=None)
    count = min(3 * size, n)
    done = trial(count, alone)
    while (plain := max(done.history[-1].seconds, 1e-6)) < seconds and count < n:
        more = min(max(1.25 * seconds / plain, 2), 8)
        count = min(size * ceil(more * count / size), n)
        done = trial(count, alone)
    step = plain / count

    started = time.perf_counter()
    few = (data.train_x[:count], data.train_y[:count])
    data_fit(done.network, done.likelihood, few, batch_size=settings.curvature_batch)
    forward = (time.perf_counter() - started) / count
    epoch = step * n + forward * len(data.test_y)
    if not settings.learns_precisions:
        return Cost(epoch)

    part = min(max(settings.curvature_subset or count, size), n)
    twice = replace(settings, epochs=4, burn_in=2, update_every=2, prune_from=None, patience=None)
    times = trial(part, twice).history.column("seconds")
    fitted = step if settings.method == "linearised" else forward  # which takes a gradient
    rest = max(times[3] - min(times[0], times[2]) - fitted * part, 0.0)
    if settings.curvature_subset is None:
        rest *= n / part
    measured = n if settings.method == "linearised" else min(settings.fit_subset or n, n)
    return Cost(epoch, rest + fitted * measured, fitted * (n - measured))


def _text(seconds: float) -> str:
    """Return a duration as it is typed: 40s, 5m, 1h30m; rounded up."""
    if seconds < 90:
        return f"{seconds:.2g}s" if seconds < 10 else f"{ceil(seconds)}s"
    minutes = ceil(seconds / 60)
    return f"{minutes}m" if minutes < 90 else f"{minutes // 60}h{minutes % 60:02d}m"
