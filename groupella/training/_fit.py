"""`fit`: train a network, MAP weights and learned precisions in turn.

Each epoch is a pass over the data with Adam on the weights (`_weights.py`). After the burn-in,
every `update_every` epochs, curvature is computed on a random subset and the precisions step
towards higher evidence (`Evidence.step`). Everything random is a function of the seed or saved, so
an interrupted and resumed run gives the same bits on a CPU as an uninterrupted one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from groupella._files import alone
from groupella._machine import keep_freed_memory
from groupella.curvature import check_coverage
from groupella.decide import Selection, selection
from groupella.evidence import Evidence, Prior
from groupella.evidence.likelihoods import Categorical, Likelihood

from ._checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from ._cost import curvature_cost
from ._data import as_examples, calibrate, check_classes, check_examples
from ._distributed import Processes
from ._history import EpochRecord, History
from ._interruption import Interruption
from ._progress import Bar, TensorBoard
from ._randomness import seeded
from ._resume import restore, state_of
from ._run import Augment, Run, StoppingError
from ._settings import Settings, check_names

LAST = "last.safetensors"
BEST = "best.safetensors"
HISTORY = "history.json"

OnEpoch = Callable[[EpochRecord, Evidence], bool | None]


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal or a time limit.

    `checkpoint` is the file to resume from, or None.
    """

    def __init__(self, message: str, checkpoint: Path | None) -> None:
        super().__init__(message)
        self.checkpoint = checkpoint


@dataclass(frozen=True)
class Fit:
    """A trained network with its evidence.

    `method="map"` computes no curvature during training; `selection` and `log_evidence` compute it
    when they are first called, unless it is too large (`CurvatureTooLargeError`).

    Attributes
    ----------
    network, evidence, history, settings
        The trained network, its evidence, what happened in each epoch, and how it was trained.
    stopped
        Why training ended: all epochs "finished", or "early".
    directory
        Where checkpoints were written, or None.
    run
        The training run with its data, or None.
    """

    network: nn.Module
    evidence: Evidence
    history: History
    settings: Settings
    stopped: Literal["finished", "early"]
    directory: Path | None = None
    run: Run | None = field(default=None, repr=False, compare=False)

    @property
    def prior(self) -> Prior:
        """The prior of the evidence."""
        return self.evidence.prior

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of the evidence."""
        return self.evidence.likelihood

    @property
    def log_evidence(self) -> float:
        """The log evidence of the final weights and precisions, in nats."""
        self._observe()
        return self.evidence.log_evidence

    def selection(self, data: Any = None, **options: Any) -> Selection:
        """Return what each layer obeys; see `groupella.decide.selection`."""
        self._observe()
        return selection(self.network, self.evidence, data, **options)

    def collect(self) -> None:
        """Collect curvature and fit of the present weights on the training data.

        If there are several processes, all must call it.
        """
        if self.run is None:
            raise RuntimeError("this fit does not have its data; call evidence.collect(data)")
        with seeded(self.settings.seed):
            self.run.collect(self.settings.epochs)

    def _observe(self) -> None:
        if not self.evidence.is_observed:
            curvature_cost(self.network).check()
            self.collect()


def fit(
    network: nn.Module,
    data: Any,
    likelihood: Likelihood | None = None,
    settings: Settings | None = None,
    *,
    prior: Prior | None = None,
    ignore: Sequence[str] = (),
    validation: Any = None,
    augment: Augment | None = None,
    directory: str | Path | None = None,
    resume: bool = True,
    progress: bool | str = True,
    tensorboard: str | Path | None = None,
    on_epoch: OnEpoch | None = None,
    time_limit: float | None = None,
    **changes: Any,
) -> Fit:
    """Train `network` in place on `data` and learn its prior precisions.

    Several processes (`torchrun`, with torch.distributed initialised) share each batch.

    Parameters
    ----------
    network
        The network to train.
    data, validation
        A pair (x, y) of tensors or numpy arrays, or a map-style dataset of such pairs or of
        dictionaries with usual names ("image" and "label", …).
    likelihood
        `Categorical()` by default; see `groupella.evidence.likelihoods`.
    settings, changes
        How to train; further keyword arguments replace single fields of `Settings`.
    prior
        Prior precisions; by default `Prior.from_network(network, ignore=ignore)`.
    ignore
        Names of parameters, or patterns such as "norm.*", that are trained without prior and
        curvature.
    augment
        Called with a training batch x and a generator; not used for evidence or validation.
    directory
        Where to write checkpoints (`last.safetensors`, `best.safetensors`) and `history.json`. A
        run found there is resumed. Without a directory nothing is written. `best` has the highest
        evidence; for `method="map"`, the lowest validation NLL or, without validation data, the
        lowest objective.
    resume
        Whether to resume a run found in `directory`, or to refuse it.
    progress, tensorboard
        Whether to show a progress bar, or its label; a directory for TensorBoard scalars.
    on_epoch
        Called with each epoch's record and the evidence; return True to stop training.
    time_limit
        Seconds after which this call stops as if by a signal. The schedule still runs over all
        epochs: a run that is stopped and resumed, however often, ends with the same bits.

    Returns
    -------
    Fit
        The trained network, its evidence and history.

    Raises
    ------
    ValueError
        If data, network and likelihood do not fit together, or if all labels are the same.
    Interrupted
        After SIGINT, SIGTERM or the time limit. Training finishes its batch and saves a checkpoint
        first. A signal that arrives too late for that acts as it would outside of this call.
    InUseError
        If another process trains in `directory`.
    CheckpointError
        If `directory` holds a run with other data, settings, network or prior.
    LostProcessError
        If another process of the training has ended, or does not answer for five minutes.
    NonFiniteError
        If the loss or the curvature is NaN or infinite.
    """
    check_names(changes)
    keep_freed_memory()
    chosen = replace(settings or Settings(), **changes)
    processes = Processes.current()
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    likelihood = Categorical() if likelihood is None else likelihood
    evidence = Evidence(network, likelihood, prior, ignore=ignore)
    examples = as_examples(data, device, network=network)
    calibrate(network, examples, evidence.likelihood)
    check_examples(examples, network, evidence.likelihood)
    check_classes(examples, evidence.likelihood)
    if chosen.learns_precisions:
        two, _ = examples.get(torch.arange(min(2, examples.n)))
        check_coverage(network, two, evidence.unpriored)
    held_out = None
    if validation is not None:
        held_out = as_examples(validation, device, "validation", network)
        check_examples(held_out, network, evidence.likelihood, "validation")
    processes.broadcast(network)
    place = None if directory is None else Path(directory)
    if time_limit is not None:
        _check_limit(time_limit, place)
    was_training = network.training
    with ExitStack() as stack:
        stack.enter_context(seeded(chosen.seed))
        interruption = stack.enter_context(Interruption(time_limit))
        run = Run(evidence, examples, held_out, chosen, augment, processes, interruption)
        _begin(run, place, resume, stack)
        displays: list[Bar | TensorBoard] = []
        if tensorboard is not None and processes.is_main:
            displays.append(TensorBoard(tensorboard, run.counters.epoch))
        if progress and processes.is_main:
            label = progress if isinstance(progress, str) else ""
            displays.append(Bar(run.total_steps, run.step_number, chosen.epochs, label))
        for display in displays:
            stack.callback(display.close)
        network.train()
        stack.callback(network.train, was_training)
        try:
            _train(run, place, displays, on_epoch)
            if chosen.learns_precisions:
                run.collect(chosen.epochs, stoppable=True)
        except StoppingError:
            _stop(run, place)
    stopped: Literal["finished", "early"] = "early" if run.counters.stopped else "finished"
    return Fit(network, evidence, run.history, chosen, stopped, place, run)


def _check_limit(seconds: float, place: Path | None) -> None:
    if not seconds > 0:
        raise ValueError(f"time_limit must be positive, a number of seconds; got {seconds!r}")
    if place is None:
        raise ValueError("time_limit needs a directory, from which the run can be resumed")


def _begin(run: Run, place: Path | None, resume: bool, stack: ExitStack) -> None:
    """Claim the directory and restore the run in it, if any; the main process reads for all."""
    if place is None:
        return
    run.processes.from_main(lambda: stack.enter_context(alone(place)))
    found = run.processes.from_main(lambda: _found(place, resume))
    if found is not None:
        file, checkpoint = found
        restore(run, checkpoint, file)


def _found(place: Path, resume: bool) -> tuple[Path, Checkpoint] | None:
    """Return the checkpoint to resume from: the last, or the best if there is no last."""
    there = [place / name for name in (LAST, BEST) if (place / name).exists()]
    if not there:
        if (place / HISTORY).exists():
            raise FileExistsError(f"{place} has a {HISTORY} but no run; choose another directory")
        return None
    if not resume:
        raise FileExistsError(
            f"{place} already holds a run ({there[0].name}); resume it with resume=True, or choose "
            "another directory"
        )
    # All are read, so that a damaged one is found now.
    checkpoints = [load_checkpoint(file) for file in there]
    return there[0], checkpoints[0]


def _train(
    run: Run, place: Path | None, displays: list[Bar | TensorBoard], on_epoch: OnEpoch | None
) -> None:
    counters, settings = run.counters, run.settings
    while counters.epoch < settings.epochs and not counters.stopped:
        started = time.perf_counter()
        while counters.step < run.steps_per_epoch:
            run.train_step()
            for display in displays:
                display.step(run.step_number)
            if run.is_asked_to_stop:
                _stop(run, place)
        record = run.end_epoch(started)
        better = _note_progress(run, record)
        for display in displays:
            display.epoch(record, run.examples.n)
        if on_epoch is not None and on_epoch(record, run.evidence):
            counters.stopped = True
        ended = counters.stopped or counters.epoch == settings.epochs
        if better and settings.keep_best:
            _save(run, place, BEST)
        if ended or counters.epoch % settings.checkpoint_every == 0:
            _save(run, place, LAST)


def _note_progress(run: Run, record: EpochRecord) -> bool:
    """Whether this is the best epoch so far; also count the updates without an improvement."""
    counters, settings = run.counters, run.settings
    score: float | None
    if settings.learns_precisions:
        score = record.log_evidence
    elif record.validation_nll is not None:
        score = -record.validation_nll
    else:
        score = -record.objective
    if score is None:
        return False
    gain = settings.min_gain * (run.examples.n if settings.learns_precisions else 1.0)
    enough = counters.best is None or score > counters.best + gain
    better = counters.best is None or score > counters.best
    counters.waiting = 0 if enough else counters.waiting + 1
    if better:
        counters.best = score
    if settings.patience is not None and counters.waiting >= settings.patience:
        counters.stopped = True
    return better


def _save(run: Run, place: Path | None, name: str) -> None:
    if place is not None:
        run.processes.from_main(lambda: _write(run, place, name))


def _write(run: Run, place: Path, name: str) -> None:
    save_checkpoint(place / name, state_of(run))
    run.history.save(place / HISTORY)


def _stop(run: Run, place: Path | None) -> None:
    _save(run, place, LAST)
    at = f"epoch {run.counters.epoch}, step {run.counters.step}"
    if place is None:
        raise Interrupted(f"interrupted at {at}; nothing was saved, no directory was given", None)
    why = "the time limit was reached" if run.interruption.is_late else "interrupted"
    raise Interrupted(
        f"{why} at {at}; call fit again with directory={str(place)!r} to continue",
        place / LAST,
    )
