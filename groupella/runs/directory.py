"""A run and its directory.

| file                         | what                                            |
| ---------------------------- | ----------------------------------------------- |
| `settings.json`              | the job, its seed, and the versions that ran it |
| `history.json`               | metrics of every epoch                          |
| `last.`, `best.safetensors`  | checkpoints                                     |
| `network.safetensors`        | the network, for `groupella.load` and `export`  |
| `selection.json`             | what each layer obeys, with all numbers         |
| `report.json`, `report.html` | the report's content, and the report            |
| `figures/`                   | its figures as PNG and SVG                      |
| `finished.json`              | digests of all files; marks a finished run      |

The directory is claimed before anything in it is read or written. A finished run is verified and
not run again; an interrupted one resumes from its last checkpoint. A directory that holds another
job, or files that are not a run's, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupella._files import InUseError, alone, is_temporary, sweep

from .budget import with_budget
from .jobs import Job
from .marker import is_marked, mark, read_mark, verify
from .record import SETTINGS, Record, RunError, begun

if TYPE_CHECKING:
    from groupella.answers import Answer
    from groupella.data import ImageData
    from groupella.decide import Selection
    from groupella.decide.claims import Consequence
    from groupella.report import ReportContent
    from groupella.training import EpochRecord, Fit

    OnEpoch = Callable[[EpochRecord, object], None]

SELECTION, CONTENT, REPORT = "selection.json", "report.json", "report.html"
DRAWN = (SELECTION, REPORT, "figures/")


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
    asked: Job | None = None,
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
    budget, asked
        Seconds from which the job's epochs were computed, and the job as it was before, for the
        record.
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
    directory = Path(directory)
    with claimed(directory):
        if finished(directory, job):
            return load(directory)
        data = job.load(data_dir, progress) if data is None else data
        return _run(job, directory, data, Record.of(job, budget, asked), progress, on_epoch)


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Work in a run's directory while no other process does; raise `RunError` if one does."""
    _check_place(directory)
    new = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        with alone(directory, lend=True):
            try:
                yield
            finally:
                with suppress(OSError):
                    for path in new:
                        path.rmdir()  # if nothing was written
    except InUseError as error:
        raise RunError(str(error)) from error


def _run(
    job: Job,
    directory: Path,
    data: ImageData,
    record: Record,
    progress: bool,
    on_epoch: Callable[[EpochRecord], None] | None = None,
) -> Done:
    """Train in a directory that is claimed, and is empty or holds a part of the same run."""
    from groupella.training import CheckpointError

    sweep(directory)
    each: OnEpoch | None = None if on_epoch is None else lambda epoch, _: on_epoch(epoch)
    work = _confirm if job.search == "confirm" else _fit
    try:
        answer = work(job, record, directory, data, progress, each)
    except CheckpointError as error:
        raise RunError(str(error)) from error
    answer.save_network(directory)
    write(directory, answer.content)
    return Done(job, directory, answer.content, answer.fit)


def _fit(
    job: Job,
    record: Record,
    directory: Path,
    data: ImageData,
    progress: bool,
    on_epoch: OnEpoch | None,
) -> Answer:
    """Train one network with a path for every group, and describe it."""
    from groupella.answers import Answer, describe
    from groupella.report import layer_errors
    from groupella.training import confirmed

    network = job.network(data)
    before = layer_errors(network, seed=job.seed)
    record.save(directory)
    result = job.fit(
        network,
        data,
        job.settings(),
        validation=(data.test_x, data.test_y) if len(data.test_y) else None,
        directory=directory,
        progress=progress,
        on_epoch=on_epoch,
    )
    groups, selection = job.group_set(data.lattice), _selection(job, result, len(data.train_y))
    consequences: tuple[Consequence, ...] = ()
    if job.tested:
        selection, consequences = confirmed(
            selection,
            (data.train_x, data.train_y),
            groups,
            data.targets.outputs,
            job.find_settings(),
            task=data.targets.kind,
            directory=directory / "candidates",
            progress=progress,
            on_epoch=on_epoch,
        )
    content = describe(
        data,
        groups,
        result,
        selection,
        title=job.title,
        settings={**_listed(job), **result.settings.as_dict(), "seed": job.seed},
        seed=job.seed,
        before=before,
    )
    content = replace(content, consequences=consequences)
    return Answer(content, result.network, data.inputs, data.targets, result)


def _confirm(
    job: Job,
    record: Record,
    directory: Path,
    data: ImageData,
    progress: bool,
    on_epoch: OnEpoch | None,
) -> Answer:
    """Find the symmetry by imposing every candidate, and describe the network that obeys it."""
    from groupella.answers import find

    record.save(directory)
    return find(
        data,
        job.group_set(data.lattice),
        job.find_settings(),
        title=job.title,
        listed=_listed(job),
        directory=directory / "candidates",
        progress=progress,
        on_epoch=on_epoch,
    )


def _listed(job: Job) -> dict[str, Any]:
    """Return the settings of the job that the report lists."""
    return {k: v for k, v in job.as_dict().items() if k not in ("title", "training")}


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
        from groupella.answers import check_groups

        with claimed(self.directory):
            if self.is_finished:
                return load(self.directory)
            job = self.settled
            data = (job or self.job).load(self.data_dir, progress)
            if self.job.own_files():
                say(data.described)
            if data.size is not None:
                say(f"{data.size}; --size or a longer --budget changes that")
            check_groups((job or self.job).group_set(data.lattice), data.lattice)
            if job is None:
                assert self.budget is not None
                say(f"measuring how many epochs fit into {self.budget:g} s …")
                job = with_budget(self.job, self.budget, data)
                say(f"{job.epochs} epochs")
                if job.train_size != self.job.train_size:
                    say(f"with {job.train_size} of {len(data.train_y)} training data")
                    data = job.load(self.data_dir, progress)
            asked = None if self.budget is None else self.job
            return run(
                job,
                self.directory,
                data=data,
                budget=self.budget,
                asked=asked,
                progress=progress,
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
    """Write the results, and mark the run as finished."""
    content.save(directory / CONTENT)
    draw(directory, content)


def draw(directory: Path, content: ReportContent) -> None:
    """Write what is drawn from the content, and mark the run as finished."""
    from groupella.report import save_figures, write_report

    content.selection.save(directory / SELECTION)
    save_figures(content, directory / "figures")
    write_report(content, directory / REPORT)
    mark(directory)


def redraw(directory: str | Path) -> Done:
    """Draw selection.json, the figures and the report of a finished run again, and return it."""
    directory = Path(directory)
    Record.load(directory)  # raises if this is not a run, before the directory is claimed
    with claimed(directory):
        done = load(directory, redrawing=True)
        draw(directory, done.content)
    return done


def finished(directory: Path, job: Job) -> bool:
    """Return whether the directory holds the finished job; raise if it holds anything else."""
    _check_place(directory)
    if not directory.exists():
        return False
    if not (directory / SETTINGS).exists():
        others = sorted(path.name for path in directory.iterdir() if not is_temporary(path))
        if others:
            listed = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
            raise RunError(
                f"{directory} holds {listed} but no {SETTINGS}: it is not the directory of a run. "
                "Choose another one, or an empty one"
            )
        return False
    there = Record.load(directory)
    is_finished = is_marked(directory)
    if is_finished:
        read_mark(directory)  # raises if its settings were altered: it may not be another run
    there.require(job, directory)
    return is_finished


def _check_place(directory: Path) -> None:
    """Raise `RunError` unless this is a directory, or can become one."""
    if directory.is_symlink() and not directory.exists():
        raise RunError(f"{directory} is a link to nothing; a run needs a directory")
    if directory.exists() and not directory.is_dir():
        raise RunError(f"{directory} is a file; a run needs a directory. Choose another one")


def load(directory: str | Path, *, redrawing: bool = False) -> Done:
    """Return the finished run in `directory`, after verifying all its files.

    Parameters
    ----------
    directory
        The directory of the run.
    redrawing
        Whether what is drawn from report.json need not be sound, because it is drawn again.

    Raises
    ------
    RunError
        If there is no run, it is not finished, or a file was altered since.
    """
    from groupella.report import ReportContent

    directory = Path(directory)
    job = Record.load(directory).job
    if not is_marked(directory):
        raise RunError(f"{directory} is not finished; rerun the command to resume")
    verify(directory, DRAWN, redrawing)
    try:
        return Done(job, directory, ReportContent.load(directory / CONTENT))
    except (OSError, ValueError) as error:
        raise RunError(str(error)) from error
