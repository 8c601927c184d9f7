"""One training run: its parts, and the passes over the data that change them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from groupella.curvature import evaluation, exact, mc
from groupella.evidence import Evidence, JitterWarning, NonFiniteError, prune

from ._data import Batches, Examples, check_batch
from ._diagnosis import check_parameters, culprit
from ._distributed import Processes
from ._history import EpochRecord, History
from ._interruption import Interruption
from ._optimisers import Stateful, learning_rate, set_learning_rate
from ._randomness import (
    derived_seed,
    epoch_order,
    generator,
    global_states,
    random_subset,
    set_global_states,
)
from ._settings import Settings
from ._weights import WeightStep

Augment = Callable[[Tensor, torch.Generator], Tensor]


@dataclass
class Counters:
    """Where a run is: its next step, sums over the present epoch's steps, and the best so far."""

    epoch: int = 0
    step: int = 0
    nll: float = 0.0
    correct: float = 0.0
    seen: int = 0
    best: float | None = None
    waiting: int = 0
    stopped: bool = False


class StoppingError(Exception):
    """Training is asked to stop while it measures."""


class Run:
    """Everything that changes during training, and the operations that change it."""

    def __init__(
        self,
        evidence: Evidence,
        examples: Examples,
        validation: Examples | None,
        settings: Settings,
        augment: Augment | None,
        processes: Processes,
        interruption: Interruption,
    ) -> None:
        self.evidence = evidence
        self.network = evidence.network
        self.examples = examples
        self.validation = validation
        self.settings = settings
        self.augment = augment
        self.processes = processes
        self.interruption = interruption
        self.is_asked_to_stop = False
        self.counters = Counters()
        self.history = History()
        self.steps_per_epoch = -(-examples.n // settings.batch_size)
        self.total_steps = settings.epochs * self.steps_per_epoch
        self.hyper_names = self._hyper_names()
        self.weights = WeightStep(self._trained(), examples.n, settings.prior_step)
        self.network_hyper: torch.optim.Adam | None = None
        if self.hyper_names:
            named = dict(self.network.named_parameters())
            self.network_hyper = torch.optim.Adam([named[n] for n in self.hyper_names])
        if settings.method == "adam":
            evidence.hyper_optimiser(settings.hyper_lr)
        self._order: tuple[int, Tensor] | None = None

    @property
    def step_number(self) -> int:
        return self.counters.epoch * self.steps_per_epoch + self.counters.step

    def train_step(self) -> None:
        """One step on the weights."""
        counters = self.counters
        size = self.settings.batch_size
        indices = self._epoch_order()[counters.step * size : (counters.step + 1) * size]
        lr = learning_rate(
            self.settings.schedule, self.settings.lr, self.step_number, self.total_steps
        )
        nll, correct = self._gradient(self.processes.share(indices), len(indices))
        if self.settings.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.weights.parameters.values(), self.settings.clip)
        self.weights.step(lr, self.evidence.prior.precision_of_parameters())
        counters.nll += nll
        counters.correct += correct
        counters.seen += len(indices)
        counters.step += 1

    def end_epoch(self, started: float) -> EpochRecord:
        """Update precisions if it is time, measure, and record."""
        counters, settings = self.counters, self.settings
        check_parameters(self.network)
        log_evidence: float | None = None
        remarks: tuple[str, ...] = ()
        gone: tuple[str, ...] = ()
        if settings.updates_after(counters.epoch):
            log_evidence, remarks, gone = self._update_evidence()
        record = replace(self._record(started, log_evidence), remarks=remarks, taken_out=gone)
        self.history.records.append(record)
        counters.epoch += 1
        counters.step = 0
        counters.nll = counters.correct = 0.0
        counters.seen = 0
        return record

    def collect(self, epoch: int, gradient: bool = False, stoppable: bool = False) -> None:
        """Collect the evidence: curvature on the epoch's subset, fit on the run's.

        After the last epoch, or with its gradient, the fit is that of all data.

        With `stoppable`, a signal raises `StoppingError` after the current batch. Nothing has
        changed by then. Several processes do not stop here, since they must agree on what they do;
        nor does a time limit, so that even the shortest one makes progress.
        """
        settings, processes, n = self.settings, self.processes, self.examples.n
        samples, seed = settings.columns(self._classes()), derived_seed(settings.seed, "mc", epoch)
        before = global_states()

        def check() -> None:
            if stoppable and processes.world == 1 and self.interruption.signal is not None:
                set_global_states(*before)
                raise StoppingError

        def batches(indices: Tensor) -> Batches:
            share = processes.share(indices)
            return self.examples.batches(share, settings.curvature_batch, check)

        every = gradient or epoch >= settings.epochs
        fitted = torch.arange(n) if every else self._fit_subset()
        self.evidence.collect(
            batches(fitted),
            n_data=n,
            curvature_data=batches(self._curvature_subset(epoch)),
            gradient=gradient,
            group=processes.group,
            mode=exact() if samples is None else mc(samples, seed),
            approximation=settings.approximation,
        )

    def _classes(self) -> int | None:
        """The number of classes, None if the outputs are none."""
        if not self.evidence.likelihood.has_classes:
            return None
        with torch.no_grad(), evaluation(self.network):
            return int(self.network(self.examples.get(torch.arange(1))[0]).shape[-1])

    def _gradient(self, indices: Tensor, batch: int) -> tuple[float, float]:
        """Leave ∇ of the mean −log p over the global batch in `.grad`; return Σ −log p and the
        number of right predictions."""
        likelihood = self.evidence.likelihood
        nll, correct, finite = 0.0, 0.0, True
        x = None
        if len(indices):
            x, y = self.examples.get(indices)
            if self.augment is not None:
                x = self.augment(x, self._augment_generator())
            f = self.network(x)
            if self.examples.tensors is None:
                check_batch(x, y, f.shape, likelihood, indices)
            loss = -likelihood.log_likelihood(f, y)
            nll = float(loss.detach())
            finite = nll == nll and abs(nll) != float("inf")
            if finite:
                torch.autograd.backward(loss / batch)
                correct = self._correct(f.detach(), y)
        asked = float(bool(self.interruption))
        nll, correct, spoilt, asked = self.processes.totals(nll, correct, float(not finite), asked)
        self.is_asked_to_stop = asked > 0
        if spoilt:
            where = "see the other process" if x is None or finite else culprit(self.network, x)
            raise NonFiniteError(
                f"the loss is not finite in step {self.counters.step} of epoch "
                f"{self.counters.epoch}: {where}"
            )
        self.processes.add(self.weights.gradients())
        return nll, correct

    def _update_evidence(self) -> tuple[float, tuple[str, ...], tuple[str, ...]]:
        """The log evidence after the update, remarks, and what was taken out."""
        settings, epoch = self.settings, self.counters.epoch
        rate = learning_rate(settings.hyper_schedule, settings.hyper_lr, epoch, settings.epochs)
        assert settings.method != "map"
        with _passing_on_warnings() as caught:
            self.collect(epoch, gradient=settings.method == "linearised", stoppable=True)
            self.evidence.step(settings.method, settings.hyper_steps, rate)
            if self.network_hyper is not None:
                self._network_hyper_step(rate)
        gone = prune(self.evidence) if settings.prunes_after(epoch) else []
        value = self.evidence.log_evidence
        if value != value:
            raise NonFiniteError("the log evidence is NaN although all its factors are finite")
        remarks = [str(w.message) for w in caught if issubclass(w.category, JitterWarning)]
        remarks += [f"epoch {epoch}: took out {name}" for name in gone]
        return value, tuple(remarks), tuple(gone)

    def _network_hyper_step(self, rate: float) -> None:
        """A step up the evidence for lengthscales and anchor positions, in every process alike."""
        assert self.network_hyper is not None
        settings, n = self.settings, self.examples.n
        subset = self._curvature_subset(self.counters.epoch)
        found = self.evidence.hyper_gradient(
            self.examples.batches(subset, settings.curvature_batch),
            self.hyper_names,
            n_data=n,
            approximation=settings.approximation,
        )
        named = dict(self.network.named_parameters())
        for name, value in found.items():
            if not bool(torch.isfinite(value).all()):
                raise NonFiniteError(f"the evidence's gradient in {name} is not finite")
            named[name].grad = -value
        set_learning_rate(self.network_hyper, rate)
        self.network_hyper.step()
        self.network_hyper.zero_grad(set_to_none=True)

    def _record(self, started: float, log_evidence: float | None) -> EpochRecord:
        counters, evidence = self.counters, self.evidence
        seen = max(counters.seen, 1)
        names = evidence.prior.names
        gammas = None
        if log_evidence is not None:
            gammas = dict(zip(names, evidence.effective_parameters().tolist(), strict=True))
        penalty = float(evidence.prior.penalty(self.network).detach()) / self.examples.n
        validation_nll, validation_accuracy = self._validate()
        step = (counters.epoch + 1) * self.steps_per_epoch - 1
        return EpochRecord(
            epoch=counters.epoch,
            objective=counters.nll / seen + penalty,
            nll=counters.nll / seen,
            accuracy=counters.correct / seen if evidence.likelihood.has_classes else None,
            lr=learning_rate(self.settings.schedule, self.settings.lr, step, self.total_steps),
            seconds=time.perf_counter() - started,
            log_evidence=log_evidence,
            precisions=dict(zip(names, evidence.prior.precisions.tolist(), strict=True)),
            effective_parameters=gammas,
            noise=evidence.noise,
            validation_nll=validation_nll,
            validation_accuracy=validation_accuracy,
        )

    def _validate(self) -> tuple[float | None, float | None]:
        if self.validation is None:
            return None, None
        likelihood, n = self.evidence.likelihood, self.validation.n
        indices = self.processes.share(torch.arange(n))
        nll = correct = 0.0
        with torch.no_grad(), evaluation(self.network):
            for x, y in self.validation.batches(indices, self.settings.curvature_batch):
                f = self.network(x)
                nll -= float(likelihood.log_likelihood(f, y))
                correct += self._correct(f, y)
        nll, correct = self.processes.totals(nll, correct)
        return nll / n, correct / n if likelihood.has_classes else None

    def _correct(self, f: Tensor, y: Tensor) -> float:
        """The number of right predictions; for several outputs per example, their mean."""
        likelihood = self.evidence.likelihood
        return len(y) * (likelihood.accuracy(likelihood.mean(f), y) or 0.0)

    def _curvature_subset(self, epoch: int) -> Tensor:
        settings = self.settings
        tag = f"curvature/{epoch}"
        return random_subset(settings.seed, tag, self.examples.n, settings.curvature_subset)

    def _fit_subset(self) -> Tensor:
        """The same in every epoch, so that its values can be compared."""
        settings = self.settings
        return random_subset(settings.seed, "fit", self.examples.n, settings.fit_subset)

    def _epoch_order(self) -> Tensor:
        epoch = self.counters.epoch
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, epoch_order(self.settings.seed, epoch, self.examples.n))
        return self._order[1]

    def _augment_generator(self) -> torch.Generator:
        counters = self.counters
        tags = ("augment", counters.epoch, counters.step, self.processes.rank)
        return generator(self.settings.seed, *tags)

    def _hyper_names(self) -> tuple[str, ...]:
        """Parameters in the network that learn from the evidence instead of the loss."""
        if self.settings.method == "map" or self.settings.network_hyper == "map":
            return ()
        frozen = self.evidence.constants
        return tuple(n for n in self.evidence.prior.hyperparameters if n not in frozen)

    def _trained(self) -> dict[str, nn.Parameter]:
        trained = {
            n: p
            for n, p in self.network.named_parameters()
            if p.requires_grad and n not in self.hyper_names
        }
        for name, parameter in self.evidence.likelihood.named_parameters():
            from_evidence = name == "log_noise" and self.settings.learns_precisions
            if parameter.requires_grad and not from_evidence:
                trained[f"likelihood:{name}"] = parameter
        return trained

    def optimisers(self) -> dict[str, Stateful]:
        """All optimisers with a state, by name."""
        found: dict[str, Stateful | None] = {
            "weights": self.weights.optimiser,
            "precisions": self.evidence.optimiser,
            "network-hyper": self.network_hyper,
        }
        return {name: optimiser for name, optimiser in found.items() if optimiser is not None}


@contextmanager
def _passing_on_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Collect the warnings inside the block; they are still given, at its end."""
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", JitterWarning)
            yield caught
    finally:
        for w in caught:
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
