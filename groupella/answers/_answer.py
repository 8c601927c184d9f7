"""An answer: the verdict, the table behind it, and the network that obeys it."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from groupella.curvature import evaluation
from groupella.data import Coding, DataError, Inputs
from groupella.decide.claims import Consequence
from groupella.evidence import Predictive, restored, stored
from groupella.evidence.likelihoods import likelihood_of
from groupella.networks import made_from, recipe
from groupella.report import ReportContent, consequences_table, sentence, write_report
from groupella.training import (
    Checkpoint,
    CheckpointError,
    Fit,
    load_checkpoint,
    save_checkpoint,
)

from ._export import export, whole

NETWORK, CONTENT, REPORT = "network.safetensors", "report.json", "report.html"
BATCH = 500
UNCERTAINTY = "uncertainty"  # what names of its tensors begin with


@dataclass(frozen=True, eq=False)
class Answer:
    """What `groupella.select` found, and the trained network.

    Attributes
    ----------
    content
        Everything that the report says.
    network
        The network that obeys the verdict. It takes standardised inputs, as `inputs` makes them.
    inputs, targets
        How arrays become inputs of the network, and its outputs become answers.
    fit
        The training of the network; None for an answer that was loaded.
    temperature
        What outputs are divided by before they become probabilities, from data that were held out.
    predictive
        Predictions with uncertainty, calibrated on those data; None where there are none: with
        `--paths`, and where the last layer has more than 8,192 features.
    """

    content: ReportContent
    network: nn.Module
    inputs: Inputs
    targets: Coding
    fit: Fit | None = field(default=None, repr=False)
    temperature: float = 1.0
    predictive: Predictive | None = field(default=None, repr=False)

    @property
    def verdict(self) -> str:
        """What the targets obey: a name, "p4 and flips", "none" or "undecided"."""
        return self.content.selection.verdict

    @property
    def groups(self) -> tuple[str, ...]:
        """The names in the verdict; () for "none" and "undecided"."""
        judgement = self.content.selection.judgement
        if judgement is not None:
            return judgement.obeys or ()
        return tuple(n for n in self.content.groups if n in self.verdict.split(" and "))

    @property
    def confidence(self) -> float | None:
        """The probability that the verdict is right; None where none was computed."""
        judgement = self.content.selection.judgement
        return None if judgement is None else judgement.probability

    @property
    def reason(self) -> str:
        """The verdict in a sentence, and why."""
        return sentence(self.content.selection)

    @property
    def layers(self) -> dict[str, str]:
        """What each layer of the network obeys, by its name."""
        return self.content.selection.verdicts

    @property
    def table(self) -> tuple[Consequence, ...]:
        """What imposing each group does: a row for chance, for no symmetry, and for each group."""
        return self.content.consequences

    def predict(self, x: Any) -> npt.NDArray[Any]:
        """Return the class, the targets or the labels of each sample of x."""
        return self.targets.decode(self.outputs(x))

    def predict_proba(self, x: Any) -> npt.NDArray[np.float64]:
        """Return the probability of every class or label, (n, K), calibrated on held-out data.

        Inputs unlike those that the network has learned from are predicted less surely.

        Raises
        ------
        DataError
            For a regression.
        """
        if self.predictive is None or self.targets.kind == "regression":
            return self.targets.probabilities(self.outputs(x) / self.temperature)
        found: npt.NDArray[np.float64] = self.predictive.probabilities(self.inputs(x)).numpy()
        return found

    def interval(self, x: Any, level: float = 0.9) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return bounds within which each real target lies with probability `level`.

        Raises
        ------
        DataError
            If the targets are not real, or nothing was held out to calibrate on.
        """
        if self.targets.kind != "regression":
            raise DataError(
                f"interval is for a regression, and the targets are {self.targets.kind}; use "
                "predict_proba"
            )
        if self.predictive is None:
            raise DataError("nothing was held out to calibrate intervals on")
        low, high = self.predictive.interval(self.inputs(x), level)
        return self.targets.decode(low), self.targets.decode(high)

    def score(self, x: Any, y: Any) -> float:
        """Return the accuracy for classes, R² for a regression, or F1 for several labels."""
        return next(iter(self.scores(x, y).values()))

    def scores(self, x: Any, y: Any) -> dict[str, float]:
        """Return all scores by name; see `groupella.data.Coding.scores`."""
        return self.targets.scores(self.outputs(x), self.targets.encode(y))

    @torch.no_grad()
    def outputs(self, x: Any) -> Tensor:
        """Return the network's outputs (n, K) for arrays x as `select` takes them."""
        ready = self.inputs(x)
        with evaluation(self.network):
            return torch.cat([self.network(part) for part in torch.split(ready, BATCH)])

    def harden(self) -> nn.Module:
        """Return a plain torch module, which needs no groupella.

        It takes raw inputs (n, channels, *inputs.taken) as floats, and gives logits or targets (n,
        K).
        """
        return whole(self.network, self.inputs, self.targets)

    def export(self, path: str | Path, form: str = "torch") -> tuple[Path, ...]:
        """Write the plain network; see `groupella.answers.export`."""
        return export(self.network, self.inputs, self.targets, path, form)

    def report(self, path: str | Path) -> Path:
        """Write the report as one HTML page, and return its path."""
        return write_report(self.content, path)

    def save(self, directory: str | Path) -> Path:
        """Write the network, the report and its content into a directory, and return it.

        `groupella.load` reads it. What an earlier call wrote is replaced.

        Raises
        ------
        ValueError
            If the directory holds a run, or files of these names that are not an answer's.
        """
        place = Path(directory)
        _check_place(place)
        self.save_network(place)
        self.report(place / REPORT)
        self.content.save(place / CONTENT)
        return place

    def save_network(self, directory: Path) -> None:
        """Write the network with how it was made, its inputs and its targets."""
        state = {
            "recipe": recipe(self.network),
            "inputs": self.inputs.as_dict(),
            "targets": self.targets.as_dict(),
            "temperature": self.temperature,
        }
        tensors = dict(self.network.state_dict())
        if self.predictive is not None:
            factors, state["uncertainty"] = stored(self.predictive)
            tensors |= {f"{UNCERTAINTY}/{name}": factor for name, factor in factors.items()}
        save_checkpoint(directory / NETWORK, Checkpoint(tensors, state))

    @classmethod
    def load(cls, directory: str | Path) -> Answer:
        """Return what `save` or a finished run wrote into a directory.

        Raises
        ------
        FileNotFoundError
            If it holds no finished run.
        ValueError
            If a file is damaged or of another version.
        """
        place = Path(directory)
        if not (place / CONTENT).is_file():
            raise FileNotFoundError(_missing(place))
        content = ReportContent.load(place / CONTENT)
        if not (place / NETWORK).is_file():
            raise FileNotFoundError(
                f"{place} has a report but no {NETWORK}, which newer versions write. Run it again "
                "in a new directory"
            )
        saved = load_checkpoint(place / NETWORK)
        try:
            network = made_from(saved.state["recipe"])
            factors = saved.section(UNCERTAINTY)
            network.load_state_dict(
                {n: t for n, t in saved.tensors.items() if not n.startswith(f"{UNCERTAINTY}/")}
            )
            inputs = Inputs.from_dict(saved.state["inputs"])
            targets = Coding.from_dict(saved.state["targets"])
            values, predictive = saved.state.get("uncertainty"), None
            if values is not None:
                predictive = restored(network, likelihood_of(targets.kind), factors, values)
            return cls(
                content,
                network,
                inputs,
                targets,
                temperature=_positive(saved.state.get("temperature", 1.0)),
                predictive=predictive,
            )
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            line = " ".join(str(error).split())
            raise CheckpointError(
                f"{place / NETWORK} does not fit this groupella: {line:.200}"
            ) from error

    def __str__(self) -> str:
        """The table, and the verdict in a sentence."""
        from rich.console import Console

        if not self.table:
            return self.reason
        console = Console(width=100, record=True, file=io.StringIO())
        console.print(consequences_table(self.table))
        return console.export_text() + self.reason

    def __repr__(self) -> str:
        sure = "" if self.confidence is None else f", confidence {self.confidence:.3f}"
        return f"Answer({self.verdict!r}{sure})"


def load(directory: str | Path) -> Answer:
    """Return the answer in the directory of a run, or in one that `Answer.save` wrote."""
    return Answer.load(directory)


def _positive(value: Any) -> float:
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        raise TypeError(f"its temperature is {value!r}")
    return float(value)


def _check_place(place: Path) -> None:
    """Raise unless a directory is free for an answer, or holds an earlier one."""
    if (place / "settings.json").exists():
        raise ValueError(f"{place} is the directory of a run; save to another one")
    there = [name for name in (NETWORK, REPORT, CONTENT) if (place / name).exists()]
    if not there:
        return
    try:
        load_checkpoint(place / NETWORK)  # written first
    except (CheckpointError, FileNotFoundError):
        raise ValueError(
            f"{place} holds {there[0]}, which is not that of an answer; save to another directory"
        ) from None


def _missing(place: Path) -> str:
    if not place.exists():
        return f"there is no directory {place}"
    if place.is_file():
        return f"{place} is a file, not the directory of a run"
    inside = sorted(p.parent.relative_to(place).as_posix() for p in place.glob(f"*/{CONTENT}"))
    if inside:
        return f"{place} holds several runs: load one of {', '.join(inside[:10])}"
    if (place / "settings.json").exists():
        return f"{place} is not finished; rerun the command to resume"
    return f"{place} is not a run: it has no {CONTENT}"
