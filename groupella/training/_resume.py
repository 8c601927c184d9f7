"""Save a run as a checkpoint and restore it, bit for bit, with the same data and settings."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from groupella._schema import build
from groupella.evidence import Prior, pathway_layers

from ._checkpoint import Checkpoint, CheckpointError
from ._diagnosis import check_parameters
from ._history import EpochRecord, History
from ._optimisers import load_optimiser_state, optimiser_state
from ._randomness import global_states, set_global_states
from ._run import Counters, Run


@dataclass(frozen=True)
class State:
    """The JSON part of a checkpoint."""

    settings: Mapping[str, Any]
    fingerprint: Mapping[str, Mapping[str, Any]]
    data: str
    world: int
    counters: Counters
    history: tuple[EpochRecord, ...]
    optimisers: Mapping[str, Mapping[str, Any]]
    random: Mapping[str, list[Any]]
    threads: int
    versions: Mapping[str, str]


def state_of(run: Run) -> Checkpoint:
    """Return the whole state; raise `NonFiniteError` for weights that are not finite."""
    check_parameters(run.network)
    random_tensors, random_state = global_states()
    sections: dict[str, dict[str, Tensor]] = {
        "network": run.network.state_dict(),
        "prior": run.evidence.prior.state_dict(),
        "likelihood": run.evidence.likelihood.state_dict(),
        "random": random_tensors,
    }
    optimisers = {}
    for name, optimiser in run.optimisers().items():
        sections[name], optimisers[name] = optimiser_state(optimiser)
    state = {
        "settings": run.settings.as_dict(),
        "fingerprint": fingerprint(run.network, run.evidence.prior),
        "data": run.examples.digest(),
        "world": run.processes.world,
        "counters": vars(run.counters),
        "history": run.history.as_list(),
        "optimisers": optimisers,
        "random": random_state,
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
    }
    tensors = {f"{s}/{k}": v for s, values in sections.items() for k, v in values.items()}
    return Checkpoint(tensors, state)


def restore(run: Run, checkpoint: Checkpoint, source: object) -> None:
    """Restore the state of the same run; raise `CheckpointError` for a checkpoint of another."""
    try:
        state = build(State, dict(checkpoint.state))
    except ValueError as error:
        raise CheckpointError(f"{source} is not the checkpoint of a run: {error}") from error
    check_fingerprint(state.fingerprint, fingerprint(run.network, run.evidence.prior), source)
    differences = run.settings.differences(dict(state.settings))
    if differences:
        raise CheckpointError(
            f"{source} was written with other settings: {'; '.join(differences)}. "
            "Resume with the same settings, or train in another directory."
        )
    if state.data != run.examples.digest():
        raise CheckpointError(
            f"{source} was trained on other data ({state.data}; here "
            f"{run.examples.digest()}). Resume with the same data, in the same order."
        )
    if state.threads != torch.get_num_threads() or state.world != run.processes.world:
        warnings.warn(
            f"resuming with {torch.get_num_threads()} threads and {run.processes.world} "
            f"process(es), begun with {state.threads} and {state.world}: "
            "the result will differ in the last digits",
            stacklevel=3,
        )
    try:
        _put_back(run, checkpoint, state)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        # The digest is right and the network is the same, so somebody made this file by hand.
        line = " ".join(str(e).split())
        raise CheckpointError(f"{source} does not fit this run: {line:.200}") from e


def _put_back(run: Run, checkpoint: Checkpoint, state: State) -> None:
    steps, epochs = run.steps_per_epoch, run.settings.epochs
    at = state.counters
    if not (0 <= at.epoch <= epochs and 0 <= at.step <= steps and len(state.history) == at.epoch):
        raise ValueError(
            f"it is at epoch {at.epoch} of {epochs}, step {at.step} of {steps}, with a history of "
            f"{len(state.history)} epochs"
        )
    run.network.load_state_dict(checkpoint.section("network"))
    run.evidence.prior.load_state_dict(checkpoint.section("prior"))
    run.evidence.prior.hold_out(run.network)
    run.evidence.likelihood.load_state_dict(checkpoint.section("likelihood"))
    for name, optimiser in run.optimisers().items():
        load_optimiser_state(optimiser, checkpoint.section(name), state.optimisers[name])
    set_global_states(checkpoint.section("random"), state.random)
    run.counters = state.counters
    run.history = History(list(state.history))


def fingerprint(network: nn.Module, prior: Prior) -> dict[str, Any]:
    """Describe the network; two with the same description can exchange checkpoints."""
    layers = pathway_layers(network)
    return {
        "groups": {
            name: [repr(member) for member in getattr(module, "groups", None) or ()]
            for name, module in layers.items()
        },
        "paths": {
            name: {p: list(module.subspaces[p]) for p in module.paths}
            for name, module in layers.items()
        },
        "parameters": {n: [list(p.shape), str(p.dtype)] for n, p in network.named_parameters()},
        "prior": {g.name: list(g.parameters) for g in prior},
    }


def check_fingerprint(found: Mapping[str, Any], wanted: Mapping[str, Any], source: object) -> None:
    """Raise `CheckpointError` with the first difference, if there is one."""
    stories = {
        "groups": "another group set",
        "paths": "other paths",
        "parameters": "another architecture",
        "prior": "another grouping of the prior",
    }
    for part, story in stories.items():
        difference = _difference(found.get(part, {}), wanted[part])
        if difference:
            raise CheckpointError(
                f"{source} was written for {story}: {difference}. "
                "Build the network as it was then, or train in another directory."
            )


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    for name in [*here, *there]:
        if name not in there:
            return f"it does not have {name!r}"
        if name not in here:
            return f"it has {name!r}, which is not in this network"
        if there[name] != here[name]:
            old, new = (str(value[name]).replace("'", "") for value in (there, here))
            return f"{name!r} is {old} there and {new} here"
    return None
