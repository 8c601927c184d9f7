"""The error that data sets raise."""

from __future__ import annotations


class DataError(RuntimeError):
    """A data set is missing, altered or unreadable. The message says which file and what to do."""


class DataArgumentError(DataError, ValueError):
    """What was asked for cannot be: an unknown name, no directory, no address of a mirror."""
