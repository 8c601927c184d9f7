"""Every file of a run damaged in every way: one clear line, and nothing is overwritten.

`make faults` tries all files of two runs, more than 300 mutations; `make test` those of one run.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from groupella.runs import RunError, load
from tests.faults._work import COUNTS, JOBS, contents, perform

Change = Callable[[bytes, bytes, random.Random], bytes | None]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


CHANGES: dict[str, Change] = {
    "truncated by half": lambda data, other, rng: data[: len(data) // 2],
    "truncated by a byte": lambda data, other, rng: data[:-1],
    "one byte left": lambda data, other, rng: data[:1],
    "first byte flipped": lambda data, other, rng: flipped(data, 0),
    "last byte flipped": lambda data, other, rng: flipped(data, len(data) - 1),
    "a byte flipped": lambda data, other, rng: flipped(data, rng.randrange(len(data))),
    "another byte flipped": lambda data, other, rng: flipped(data, rng.randrange(len(data))),
    "longer by a byte": lambda data, other, rng: data + b"x",
    "emptied": lambda data, other, rng: b"",
    "zeros": lambda data, other, rng: bytes(len(data)),
    "swapped with another run's": lambda data, other, rng: other,
    "deleted": lambda data, other, rng: None,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """A finished run and another one of the same kind."""
    made: dict[str, tuple[Path, Path]] = {}

    def make(kind: str) -> tuple[Path, Path]:
        if kind not in made:
            place = tmp_path_factory.mktemp(kind)
            perform(JOBS[kind], place / "a")
            perform(replace(JOBS[kind], seed=1), place / "b")
            made[kind] = place / "a", place / "b"
        return made[kind]

    return make


def mutations(mine: dict[str, bytes], other: dict[str, bytes]) -> Iterator[tuple[str, str, object]]:
    rng = random.Random(0)
    for name, data in sorted(mine.items()):
        for what, change in CHANGES.items():
            changed = change(data, other.get(name, b"another"), rng)
            if changed != data:
                yield name, what, changed


def check(place: Path, other: Path, scratch: Path) -> int:
    mine = contents(place)
    copy = Path(shutil.copytree(place, scratch / "copy"))
    count = 0
    for name, what, changed in mutations(mine, contents(other)):
        file = copy / name
        if changed is None:
            file.unlink()
        else:
            assert isinstance(changed, bytes)
            file.write_bytes(changed)
        before = contents(copy)
        try:
            load(copy)
        except RunError as error:
            words = str(error)
        else:
            pytest.fail(f"{name} {what} was not noticed")
        assert "\n" not in words, (name, what, words)
        assert len(words) < 500, (name, what, words)
        assert Path(name).name in words or "is not finished" in words, (name, what, words)
        assert contents(copy) == before, (name, what)
        file.write_bytes(mine[name])
        count += 1
        COUNTS["mutations named in one line"] += 1
    load(copy)  # all that was changed was put back
    return count


def test_every_damage_to_a_finished_run_is_named(
    runs: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    assert check(*runs("paths"), tmp_path) >= 100


@pytest.mark.faults
def test_every_damage_to_a_search_is_named(
    runs: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    assert check(*runs("confirm"), tmp_path) >= 200
