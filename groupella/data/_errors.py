"""The errors that data sets raise."""

from __future__ import annotations


class DataError(RuntimeError):
    """A data set is missing, altered or unreadable; the message names the file and the remedy."""


class DataArgumentError(DataError, ValueError):
    """An argument is wrong: an unknown data set, a missing directory, a malformed mirror URL."""
