"""A run and its directory.

| file                         | what                                            |
| ---------------------------- | ----------------------------------------------- |
| `settings.json`              | the job, its seed, and the versions that ran it |
| `history.json`               | metrics of every epoch                          |
| `last.`, `best.safetensors`  | checkpoints                                     |
| `selection.json`             | what each layer obeys, with all numbers         |
| `report.json`, `report.html` | the report's content, and the report            |
| `figures/`                   | its figures as PNG and SVG                      |

A run whose report.json is there is finished and is not run again; one that was interrupted goes on
from its last checkpoint. A directory that holds another job is refused.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from groupella._files import write_text

from ._jobs import Job

if TYPE_CHECKING:
    from groupella.evidence import Selection
    from groupella.experiments.data import ImageData
    from groupella.reporting import Content, Example
    from groupella.training import EpochRecord, Fit

SETTINGS, SELECTION, CONTENT, REPORT = (
    "settings.json",
    "selection.json",
    "report.json",
    "report.html",
)
EXAMPLES = 10


class RunError(Exception):
    """A directory holds something else, or nothing."""


@dataclass(frozen=True)
class Done:
    """A finished run. `fit` is None where it was found finished."""

    job: Job
    directory: Path
    content: Content
    fit: Fit | None = None

    @property
    def report(self) -> Path:
        return self.directory / REPORT


def run(
    job: Job,
    directory: str | Path,
    *,
    data_dir: str | None = None,
    progress: bool = True,
    on_epoch: Callable[[EpochRecord], None] | None = None,
) -> Done:
    """Do the job, or what is left of it, and write its directory."""
    from groupella.evidence import Prior
    from groupella.reporting import layer_errors
    from groupella.training import CheckpointError, InUseError, fit

    directory = Path(directory)
    if finished(directory, job):
        return load(directory)
    settings = {"job": job.as_dict(), "seed": job.seed, "versions": versions()}
    write_text(directory / SETTINGS, json.dumps(settings, indent=1) + "\n")
    data = job.load(data_dir, progress)
    network = job.network(data)
    before = layer_errors(network, seed=job.seed)
    try:
        result = fit(
            network,
            (data.train_x, data.train_y),
            settings=job.settings(),
            prior=Prior.from_network(network, on=job.prior),  # type: ignore[arg-type]
            validation=(data.test_x, data.test_y) if len(data.test_y) else None,
            augment=data.augmentation,
            directory=directory,
            progress=progress,
            on_epoch=None if on_epoch is None else lambda record, _: on_epoch(record),
        )
    except (CheckpointError, InUseError) as error:
        raise RunError(str(error)) from error
    content = describe(job, data, result, before)
    write(directory, content)
    return Done(job, directory, content, result)


def describe(
    job: Job, data: ImageData, result: Fit, before: Mapping[tuple[str, str], float]
) -> Content:
    """What the report says of a finished fit."""
    from groupella.reporting import Content, Outcome, filter_pictures, layer_errors
    from groupella.reporting._measure import paired
    from groupella.reporting._words import meaning

    last = result.history[-1]
    job_settings = {k: v for k, v in job.as_dict().items() if k not in ("title", "training")}
    return Content(
        title=job.title,
        data=f"{data.name}, {len(data.classes)} classes",
        groups={m.name: meaning(m.name) for m in job.group_set()},
        selection=_selection(job, result, len(data.train_y)),
        history=result.history,
        errors=paired(before, layer_errors(result.network, seed=job.seed)),
        filters=filter_pictures(result.network),
        examples=_examples(data),
        outcome=Outcome(last.validation_accuracy, last.validation_nll, len(data.test_y)),
        settings={**job_settings, **result.settings.as_dict(), "seed": job.seed},
        versions=versions(),
        expected=_known(data),
        remarks=data.remarks,
    )


def _selection(job: Job, result: Fit, n_data: int) -> Selection:
    """What each layer obeys; of a MAP run whose curvature is too large, nothing."""
    from groupella.evidence import Selection
    from groupella.training import CurvatureTooLargeError

    try:
        return result.selection(rule="evidence", nats=job.nats, nats_per_parameter=0.0)
    except CurvatureTooLargeError:
        return Selection.unmeasured(result.network, n_data, "evidence", job.nats)


def write(directory: Path, content: Content) -> None:
    """Everything that is drawn; report.json comes last, since it says that the run is finished."""
    from groupella.reporting import save_figures, write_report

    content.selection.save(directory / SELECTION)
    save_figures(content, directory / "figures")
    write_report(content, directory / REPORT)
    content.save(directory / CONTENT)


def finished(directory: Path, job: Job) -> bool:
    """Whether the job is done there; another job there is an error."""
    settings = directory / SETTINGS
    if not settings.exists():
        if (directory / "last.safetensors").exists():
            raise RunError(f"{directory} holds a run without its {SETTINGS}; choose another place")
        return False
    there = load_job(directory)
    if there != job:
        theirs, mine = there.as_dict(), job.as_dict()
        differing = ", ".join(
            f"{k}={theirs[k]!r} there, {mine[k]!r} here" for k in mine if theirs[k] != mine[k]
        )
        raise RunError(f"{directory} holds another run: {differing}. Choose another directory")
    return (directory / CONTENT).exists()


def load_job(directory: str | Path) -> Job:
    """The job of a run directory."""
    path = Path(directory) / SETTINGS
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Job.from_dict(content["job"])
    except FileNotFoundError:
        raise RunError(f"{directory} is not a run: it has no {SETTINGS}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise RunError(f"{path} is not the settings of a run: {error}") from error


def load(directory: str | Path) -> Done:
    """A finished run."""
    from groupella.reporting import Content

    directory = Path(directory)
    job = load_job(directory)
    if not (directory / CONTENT).exists():
        raise RunError(f"{directory} is not finished; run the same command again to go on")
    try:
        return Done(job, directory, Content.load(directory / CONTENT))
    except ValueError as error:
        raise RunError(str(error)) from error


def versions() -> dict[str, str]:
    """Of everything that a result could depend on."""
    from groupella import __version__

    found = {"groupella": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "escnn"):
        found[name] = importlib.metadata.version(name)
    return found


def with_budget(job: Job, budget: float, data_dir: str | None = None) -> Job:
    """The job with as many epochs as fit into `budget` seconds, measured on a few batches."""
    from groupella.training import fit

    data = job.load(data_dir)
    settings = job.settings()
    batches = 3
    count = batches * settings.batch_size
    few = (data.train_x[:count], data.train_y[:count])

    def seconds(method: str) -> float:
        trial = replace(settings, epochs=2, burn_in=2, method=method, prune_from=None)  # type: ignore[arg-type]
        return fit(job.network(data), few, settings=trial, progress=False).history[-1].seconds

    plain = seconds("map")
    passes = (
        -(-len(data.train_y) // settings.batch_size) + len(data.test_y) / settings.batch_size / 3
    )
    update, least = 0.0, 1
    if settings.learns_precisions:
        update = max(seconds(settings.method) - plain, 0.0) / settings.update_every
        passes += len(data.train_y) / settings.batch_size / 3 / settings.update_every
        least = settings.burn_in + 2
    epochs = max(least, int(0.9 * budget / (plain / batches * passes + update)))
    return replace(job, training={**job.training, "epochs": epochs})


def _examples(data: ImageData) -> tuple[Example, ...]:
    """One training image of each of the first classes."""
    from groupella.reporting import Example

    found: list[Example] = []
    for label, name in enumerate(data.classes):
        where = (data.train_y == label).nonzero().flatten()
        if len(where) and len(found) < EXAMPLES:
            pixels = data.pixels(data.train_x[where[0]]).clamp(0, 1).double()
            picture = pixels[0] if len(pixels) != 3 else pixels.permute(1, 2, 0)
            found.append(Example(str(name), picture.numpy()))
    return tuple(found)


def _known(data: ImageData) -> str | None:
    return "none" if data.obeys == "trivial" else data.obeys
