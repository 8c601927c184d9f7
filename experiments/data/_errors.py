"""The one error that data sets raise."""

from __future__ import annotations


class DataError(RuntimeError):
    """A data set is missing, altered or unreadable. The message says which file and what to do."""
