"""The campaign of faults: `make faults` runs all of it, `make test` the part without the mark."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.faults._work import COUNTS


@pytest.fixture(autouse=True)
def hangup() -> Iterator[None]:
    """SIGHUP is heard also where `nohup` started the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "faults" in (config.option.markexpr or ""):
        return
    left_out = [item for item in items if item.get_closest_marker("faults")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if COUNTS:
        terminalreporter.write_line(
            "faults: " + ", ".join(f"{count} {what}" for what, count in COUNTS.items())
        )
