"""Runs: a job, the directory it writes, its budget, and the engines that run many of them.

`run(job, directory)` trains what a `Job` describes and writes its directory; `load(directory)`
reads a finished one. Every import of torch waits until a job is run.
"""

from .directory import Done, load, run
from .jobs import Job
from .record import RunError

__all__ = ["Done", "Job", "RunError", "load", "run"]
