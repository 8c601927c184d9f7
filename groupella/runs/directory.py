"""A run and its directory.

| file                         | what                                            |
| ---------------------------- | ----------------------------------------------- |
| `settings.json`              | the job, its seed, and the versions that ran it |
| `history.json`               | metrics of every epoch                          |
| `last.`, `best.safetensors`  | checkpoints                                     |
| `selection.json`             | what each layer obeys, with all numbers         |
| `report.json`, `report.html` | the report's content, and the report            |
| `figures/`                   | its figures as PNG and SVG                      |

A run with a report.json is finished and is not run again; an interrupted one resumes from its last
checkpoint. A directory that holds another job is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .budget import with_budget
from .jobs import Job
from .record import SETTINGS, Record, RunError, begun, versions

if TYPE_CHECKING:
    from groupella.data import ImageData
    from groupella.decide import Selection
    from groupella.report import Example, ReportContent
    from groupella.training import EpochRecord, Fit

SELECTION, CONTENT, REPORT = "selection.json", "report.json", "report.html"
EXAMPLES = 10


@dataclass(frozen=True)
class Done:
    """A finished run. `fit` is None if it was already finished."""

    job: Job
    directory: Path
    content: ReportContent
    fit: Fit | None = None

    @property
    def report(self) -> Path:
        return self.directory / REPORT


def run(
    job: Job,
    directory: str | Path,
    *,
    data: ImageData | None = None,
    budget: float | None = None,
    data_dir: str | None = None,
    progress: bool = True,
    on_epoch: Callable[[EpochRecord], None] | None = None,
) -> Done:
    """Train what the job describes, or resume it, and write its directory.

    Parameters
    ----------
    job
        What to train, and on what.
    directory
        Where the run is written. A finished run of the same job is loaded instead.
    data
        The job's data if they are loaded already; else they are loaded from `data_dir`.
    budget
        Seconds from which the job's epochs were computed, for the record.
    data_dir
        Data directory (default: $GROUPELLA_DATA).
    progress
        Whether to show a progress bar.
    on_epoch
        Called with the record of every epoch.

    Returns
    -------
    Done
        The finished run.

    Raises
    ------
    RunError
        If the directory holds another job, is in use, or has a damaged checkpoint.
    """
    from groupella.report import layer_errors
    from groupella.training import CheckpointError, InUseError

    directory = Path(directory)
    if finished(directory, job):
        return load(directory)
    data = job.load(data_dir, progress) if data is None else data
    if job.search == "confirm":
        return _confirm(job, directory, data, budget, progress)
    network = job.network(data)
    before = layer_errors(network, seed=job.seed)
    Record.of(job, budget).save(directory)
    try:
        result = job.fit(
            network,
            data,
            job.settings(),
            validation=(data.test_x, data.test_y) if len(data.test_y) else None,
            directory=directory,
            progress=progress,
            on_epoch=None if on_epoch is None else lambda record, _: on_epoch(record),
        )
    except (CheckpointError, InUseError) as error:
        raise RunError(str(error)) from error
    content = describe(job, data, result, before)
    write(directory, content)
    return Done(job, directory, content, result)


def _confirm(
    job: Job, directory: Path, data: ImageData, budget: float | None, progress: bool
) -> Done:
    """Find the symmetry by imposing every candidate, and describe the network that obeys it."""
    from groupella.training import CheckpointError, InUseError, find_symmetry

    Record.of(job, budget).save(directory)
    try:
        found = find_symmetry(
            (data.train_x, data.train_y),
            job.group_set(),
            len(data.classes),
            job.find_settings(),
            validation=(data.test_x, data.test_y) if len(data.test_y) else None,
            directory=directory / "candidates",
            progress=progress,
        )
    except (CheckpointError, InUseError) as error:
        raise RunError(str(error)) from error
    selection = found.selection((data.train_x, data.train_y))
    content = describe(job, data, found.fit, {}, selection)
    content = replace(content, consequences=found.consequences)
    write(directory, content)
    return Done(job, directory, content, found.fit)


@dataclass(frozen=True)
class Assignment:
    """A job with its directory: one piece of work for an engine.

    `budget` is in seconds, None if the job sets its epochs.
    """

    job: Job
    directory: Path
    budget: float | None = None
    data_dir: str | None = None

    @property
    def settled(self) -> Job | None:
        """The job with its number of epochs; None if its budget is still to be measured."""
        if self.budget is None:
            return self.job
        return begun(self.job, self.budget, self.directory)

    @property
    def is_finished(self) -> bool:
        return finished(self.directory, self.settled or self.job)

    def do(self, progress: bool, say: Callable[[str], None] = lambda text: None) -> Done:
        """Run the job, or resume it, reading the data once; `say` is called with the epochs."""
        if self.is_finished:
            return load(self.directory)
        job = self.settled
        data = (job or self.job).load(self.data_dir, progress)
        if job is None:
            assert self.budget is not None
            say(f"measuring how many epochs fit into {self.budget:g} s …")
            job = with_budget(self.job, self.budget, data)
            say(f"{job.settings().epochs} epochs")
            if job.train_size != self.job.train_size:
                say(f"with {job.train_size} of {len(data.train_y)} training data")
                data = job.load(self.data_dir, progress)
        return run(job, self.directory, data=data, budget=self.budget, progress=progress)


def describe(
    job: Job,
    data: ImageData,
    result: Fit,
    before: Mapping[tuple[str, str], float],
    selection: Selection | None = None,
) -> ReportContent:
    """Return the content of the report about a finished fit."""
    from groupella.groups import meaning
    from groupella.report import HeldOutScore, ReportContent, filter_pictures, layer_errors, paired

    last = result.history[-1]
    job_settings = {k: v for k, v in job.as_dict().items() if k not in ("title", "training")}
    return ReportContent(
        title=job.title,
        data=f"{data.name}, {len(data.classes)} classes",
        groups={m.name: meaning(m.name) for m in job.group_set()},
        selection=_selection(job, result, len(data.train_y)) if selection is None else selection,
        history=result.history,
        errors=paired(before, layer_errors(result.network, seed=job.seed), result.network),
        filters=filter_pictures(result.network),
        examples=_examples(data),
        held_out=HeldOutScore(last.validation_accuracy, last.validation_nll, len(data.test_y)),
        settings={**job_settings, **result.settings.as_dict(), "seed": job.seed},
        versions=versions(),
        expected="none" if data.obeys == "trivial" else data.obeys,
        remarks=data.remarks,
    )


def _selection(job: Job, result: Fit, n_data: int) -> Selection:
    """Return what each layer obeys; unmeasured for a MAP run whose curvature is too large."""
    from groupella.decide import Selection
    from groupella.training import CurvatureTooLargeError

    try:
        return result.selection()
    except CurvatureTooLargeError:
        return Selection.unmeasured(result.network, n_data)


def write(directory: Path, content: ReportContent) -> None:
    """Write the results; report.json comes last, because it marks the run as finished."""
    from groupella.report import save_figures, write_report

    content.selection.save(directory / SELECTION)
    save_figures(content, directory / "figures")
    write_report(content, directory / REPORT)
    content.save(directory / CONTENT)


def finished(directory: Path, job: Job) -> bool:
    """Return whether the directory holds the finished job; raise if it holds another one."""
    if directory.is_file():
        raise RunError(f"{directory} is a file; a run needs a directory. Choose another one")
    if not (directory / SETTINGS).exists():
        if (directory / "last.safetensors").exists():
            raise RunError(
                f"{directory} holds a run without its {SETTINGS}. Choose another directory"
            )
        return False
    Record.load(directory).require(job, directory)
    return (directory / CONTENT).exists()


def load(directory: str | Path) -> Done:
    """Return the finished run in `directory`.

    Raises
    ------
    RunError
        If there is no run, or it is not finished.
    """
    from groupella.report import ReportContent

    directory = Path(directory)
    job = Record.load(directory).job
    if not (directory / CONTENT).exists():
        raise RunError(f"{directory} is not finished; rerun the command to resume")
    try:
        return Done(job, directory, ReportContent.load(directory / CONTENT))
    except ValueError as error:
        raise RunError(str(error)) from error


def _examples(data: ImageData) -> tuple[Example, ...]:
    """Return one training image of each of the first classes."""
    from groupella.report import Example

    found: list[Example] = []
    for label, name in enumerate(data.classes):
        where = (data.train_y == label).nonzero().flatten()
        if len(where) and len(found) < EXAMPLES:
            pixels = data.pixels(data.train_x[where[0]]).clamp(0, 1).double()
            picture = pixels[0] if len(pixels) != 3 else pixels.permute(1, 2, 0)
            found.append(Example(str(name), picture.numpy()))
    return tuple(found)
