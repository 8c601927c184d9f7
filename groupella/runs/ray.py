"""An engine that runs work through Ray, on this machine or on a cluster that shares the directory.

Stopping cancels every piece, which Ray does by raising KeyboardInterrupt in it: training saves
first. A piece whose machine is lost starts again elsewhere and resumes from its last checkpoint.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import threading
from collections.abc import Generator, Mapping
from typing import Any

from .directory import Assignment
from .engines import RERUN, Engine, Work, attempt, naming, report
from .record import RunError

OBJECT_STORE = 100 * 2**20  # bytes; pieces are small and return nothing
RETRIES = 2
PATIENCE = 10.0  # seconds


def is_installed() -> bool:
    """Return whether Ray can be imported."""
    return importlib.util.find_spec("ray") is not None


def cluster(address: str | None, workers: int | None) -> Engine:
    """Return an engine that runs at most `workers` pieces at a time, by default one per core.

    `address` is that of a running cluster, as Ray understands it; None starts Ray here and ends it
    afterwards.
    """

    def engine(pieces: Mapping[str, Work]) -> Generator[str, None, None]:
        import ray

        _connect(address, workers)
        do = ray.remote(num_cpus=1, max_retries=RETRIES)(attempt_from)
        home = os.getcwd()
        waiting = list(pieces.items())
        running: dict[Any, str] = {}
        failures: dict[str, str] = {}
        try:
            with naming(failures):
                while waiting or running:
                    while waiting and (workers is None or len(running) < workers):
                        name, work = waiting.pop(0)
                        running[do.remote(home, work)] = name
                    for one in ray.wait(list(running))[0]:
                        name = running.pop(one)
                        try:
                            failure = ray.get(one)
                        except ray.exceptions.RayError as error:
                            last = str(error).strip().splitlines()[-1]
                            failure = f"{last}. {RERUN}"
                        if failure is None:
                            yield name
                        else:
                            failures[name] = failure
            report(failures)
        finally:
            for one in running:
                ray.cancel(one)
            if running:
                ray.wait(list(running), num_returns=len(running))
            ray.shutdown()

    return engine


def attempt_from(home: str, work: Work) -> str | None:
    """Call `attempt`, with relative names of the user's own files resolved from `home`."""
    files = work.job.own_files().items() if isinstance(work, Assignment) else ()
    relative = [name for name, path in files if not path.is_absolute()]
    if relative:
        try:
            os.chdir(home)
        except OSError as error:
            return (
                f"the machine that runs it does not see {home} ({error}), which "
                f"{', '.join(relative)} is relative to. Give absolute names that all machines see"
            )
    return attempt(work)


def _connect(address: str | None, workers: int | None) -> None:
    import ray

    options: dict[str, Any] = {"address": address}
    if address is not None:
        _knock(address)
    else:
        options = {
            "address": "local",
            "num_cpus": workers,
            "object_store_memory": OBJECT_STORE,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",  # not open to the network
        }
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray installs its own SIGTERM handler, which exits at once.
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray has no class for being too slow to start
        raise RunError(f"Ray does not answer at {address or 'this machine'}: {error}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


def _knock(address: str) -> None:
    """Ray itself would try for more than ten minutes to reach a host where nothing listens."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return  # "auto"
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except OSError as error:
        raise RunError(f"nothing answers at {address}: {error}") from error
