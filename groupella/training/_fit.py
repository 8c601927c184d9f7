"""`fit`: train a network, MAP weights and learned precisions in turn.

Each epoch is a pass over the data with Adam on the weights (`_weights.py`). After the burn-in,
every `update_every` epochs, curvature is taken on a random subset and the precisions step towards
more evidence (`Evidence.step`). All that is random is a function of the seed, or saved, so a run
that was interrupted anywhere and resumed ends with the same bits on a CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from groupella._files import InUseError, alone
from groupella.decide import Selection, selection
from groupella.evidence import Evidence, Prior
from groupella.evidence.likelihoods import Categorical, Likelihood

from ._checkpoint import load_checkpoint, save_checkpoint
from ._cost import curvature_cost
from ._data import as_examples, check_examples
from ._distributed import Processes
from ._history import EpochRecord, History
from ._interruption import Interruption
from ._progress import Bar, Display, Silent, TensorBoard
from ._randomness import seeded
from ._resume import restore, state_of
from ._run import Augment, Run, StoppingError
from ._settings import Settings

LAST = "last.safetensors"
BEST = "best.safetensors"

OnEpoch = Callable[[EpochRecord, Evidence], bool | None]


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop, by a signal or a time limit.

    `checkpoint` is where to resume, if anywhere.
    """

    def __init__(self, message: str, checkpoint: Path | None) -> None:
        super().__init__(message)
        self.checkpoint = checkpoint


@dataclass(frozen=True)
class Fit:
    """A trained network with its evidence. `stopped` tells why training ended.

    A fit by `method="map"` needs no curvature and has taken none; `selection` and `log_evidence`
    take it when they are first asked, unless it is too large (`CurvatureTooLargeError`).
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
        return self.evidence.prior

    @property
    def likelihood(self) -> Likelihood:
        return self.evidence.likelihood

    @property
    def log_evidence(self) -> float:
        """Of the final weights and precisions, in nats."""
        self._observe()
        return self.evidence.log_evidence

    def selection(self, data: Any = None, **options: Any) -> Selection:
        """What each layer obeys; see `groupella.evidence.selection`."""
        self._observe()
        return selection(self.network, self.evidence, data, **options)

    def collect(self) -> None:
        """Let the evidence see curvature and fit of the present weights, on the training data.

        In several processes, all must call it.
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
    validation: Any = None,
    augment: Augment | None = None,
    directory: str | Path | None = None,
    resume: bool = True,
    progress: bool = True,
    tensorboard: str | Path | None = None,
    on_epoch: OnEpoch | None = None,
    time_limit: float | None = None,
    **changes: Any,
) -> Fit:
    """Train `network` in place on `data` and learn its prior precisions.

    data, validation: a pair (x, y) of tensors, or a map-style dataset of such pairs.
    likelihood: `Categorical()` by default.
    settings: see `Settings`; further keyword arguments replace single fields of it.
    augment: called with a training batch x and a generator; never used for evidence or validation.
    directory: where checkpoints (`last.safetensors`, `best.safetensors`) and `history.json` go. A
        run found there is resumed, with `resume=False` refused, one that another process is at
        work on refused with `InUseError`. Without a directory nothing is written.
    on_epoch: called with each epoch's record and the evidence; returning True stops training.
    time_limit: seconds of this call after which training stops as by a signal. It is no setting:
        the schedule still runs over all epochs, and however often a run is stopped and resumed, it
        ends with the same bits.

    `best` is the checkpoint with the highest evidence; for `method="map"`, the lowest validation
    NLL, or the lowest objective without validation data. SIGINT and SIGTERM stop after the present
    batch, of training or of what is measured for the evidence, with a checkpoint and raise
    `Interrupted`; one that comes too late for that acts as it would have outside of this call.

    In several processes (`torchrun`, with torch.distributed initialised) each batch is shared among
    them.
    """
    chosen = replace(settings or Settings(), **changes)
    processes = Processes.current()
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    evidence = Evidence(network, Categorical() if likelihood is None else likelihood, prior)
    examples = as_examples(data, device)
    check_examples(examples, network, evidence.likelihood)
    held_out = None
    if validation is not None:
        held_out = as_examples(validation, device, "validation")
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
        if place is not None:
            _claim(place, processes, stack)
        _begin(run, place, resume)
        display: Display = Silent()
        if progress and processes.is_main:
            display = Bar(run.total_steps, run.step_number, chosen.epochs)
        board = None
        if tensorboard is not None and processes.is_main:
            board = TensorBoard(tensorboard, run.counters.epoch)
            stack.callback(board.close)
        stack.enter_context(display)
        network.train()
        stack.callback(network.train, was_training)
        try:
            _train(run, place, display, board, on_epoch)
            if chosen.learns_precisions:
                run.collect(chosen.epochs, stoppable=True)
        except StoppingError:
            _stop(run, place)
    return Fit(
        network,
        evidence,
        run.history,
        chosen,
        "early" if run.counters.stopped else "finished",
        place,
        run,
    )


def _check_limit(seconds: float, place: Path | None) -> None:
    if not seconds > 0:
        raise ValueError(f"time_limit must be positive, a number of seconds; got {seconds!r}")
    if place is None:
        raise ValueError("time_limit needs a directory, from which the run can be resumed")


def _claim(place: Path, processes: Processes, stack: ExitStack) -> None:
    """Let the main process work in a directory alone; all go on together, or none does."""
    refused: InUseError | None = None
    if processes.is_main:
        try:
            stack.enter_context(alone(place))
        except InUseError as error:
            refused = error
    (refusals,) = processes.totals(float(refused is not None))
    if refusals:
        raise refused or InUseError(f"{place} is in use; see the main process")


def _begin(run: Run, place: Path | None, resume: bool) -> None:
    if place is None or not (place / LAST).exists():
        return
    if not resume:
        raise FileExistsError(
            f"{place} already holds a run ({LAST}); resume it with resume=True, or choose another "
            "directory"
        )
    restore(run, load_checkpoint(place / LAST), place / LAST)


def _train(
    run: Run,
    place: Path | None,
    display: Display,
    board: TensorBoard | None,
    on_epoch: OnEpoch | None,
) -> None:
    counters, settings = run.counters, run.settings
    while counters.epoch < settings.epochs and not counters.stopped:
        started = time.perf_counter()
        while counters.step < run.steps_per_epoch:
            run.train_step()
            display.step(run.step_number)
            if run.is_asked_to_stop:
                _stop(run, place)
        record = run.end_epoch(started)
        better = _note_progress(run, record)
        display.epoch(record, run.examples.n)
        if board is not None:
            board.epoch(record, run.examples.n)
        if on_epoch is not None and on_epoch(record, run.evidence):
            counters.stopped = True
        ended = counters.stopped or counters.epoch == settings.epochs
        if better:
            _save(run, place, BEST)
        if ended or counters.epoch % settings.checkpoint_every == 0:
            _save(run, place, LAST)


def _note_progress(run: Run, record: EpochRecord) -> bool:
    """Whether this is the best epoch so far; also counts the updates without a better evidence."""
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
    if place is not None and run.processes.is_main:
        save_checkpoint(place / name, state_of(run))
        run.history.save(place / "history.json")
    run.processes.barrier()


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
