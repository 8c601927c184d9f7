"""What people type is understood, or refused with a reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from groupella.groups import (
    cyclic,
    flips,
    group_names,
    mirror,
    p4,
    permutations,
    translations,
    trivial,
    z2,
)
from groupella.groups._catalogue import CATALOGUE
from groupella.runs.spelling import (
    ArgumentError,
    complete_groups,
    from_file,
    group_set,
    named_group,
    seconds,
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("5m", 300), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("45", 45), ("2M 5s", 125)],
)
def test_durations(text: str, wanted: float) -> None:
    assert seconds(text) == wanted


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "-3", "0s", "nan", "inf"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="duration"):
        seconds(text)


def test_names_give_groups_and_the_trivial_one() -> None:
    groups = group_set("z2, p4,flips(0)")
    assert list(groups) == [trivial(), z2(), p4(), flips(0)]
    assert list(group_set("none,z2")) == [trivial(), z2()]
    assert list(group_set("z2", free=False)) == [z2()]


def test_every_name_is_a_group() -> None:
    for name in group_names():
        assert named_group(name).name.startswith(("trivial", name))


def test_the_catalogues_own_names_are_understood() -> None:
    for entry in CATALOGUE.values():
        symmetry = entry.make()
        if symmetry != mirror(0, dim=1):  # is called as that of images
            assert named_group(symmetry.name) == symmetry
    assert named_group("mirror(0,dim=1)") == mirror(0, dim=1)
    assert list(group_set("flips( 0 , dim=3 ),z3")) == [trivial(), flips(0, dim=3), translations(3)]


@pytest.mark.parametrize("text", ["s5", "permutations(5)", "permutations5", "permutations"])
def test_groups_of_points_are_named_with_their_size_or_take_that_of_the_data(text: str) -> None:
    assert list(group_set(text, free=False, points=5)) == [permutations(5)]
    assert list(group_set("cyclic( 3 )", free=False, points=5)) == [cyclic(3)]


def test_a_group_of_points_without_a_size_is_explained() -> None:
    with pytest.raises(ArgumentError, match=r"number of points: write permutations\(8\)"):
        group_set("permutations")


@pytest.mark.parametrize(
    "text", ["", ",", "p5", "z2,os.system", "flips(x)", "flips()", "flips(7)", "p4(1)", "cm(point)"]
)
def test_unknown_names_are_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="group"):
        group_set(text)


def test_completion_continues_a_list() -> None:
    assert complete_groups("z2,p4") == ["z2,p4", "z2,p4m"]


def test_groups_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from groupella.groups import GroupSet, Symmetry, p4, z2\n"
        "ONE = z2()\n"
        "SET = GroupSet(z2(), p4())\n"
        "def make():\n    return [Symmetry.from_generators('swap', (4,), [[1, 0, 2, 3]])]\n"
        "WRONG = 3\n"
    )
    assert [g.name for g in group_set(f"{file}:ONE")] == ["trivial", "z2"]
    assert [g.name for g in group_set(f"{file}:SET")] == ["z2", "p4"]
    assert [g.name for g in group_set(f"{file}:make")] == ["trivial", "swap"]
    with pytest.raises(ArgumentError, match="not a GroupSet"):
        group_set(f"{file}:WRONG")
    with pytest.raises(ArgumentError, match=r"has no 'OTHER'; it has .*ONE"):
        group_set(f"{file}:OTHER")


def test_a_file_that_fails_or_is_not_there_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0\n")
    with pytest.raises(ArgumentError, match=r"broken\.py fails: ZeroDivisionError"):
        from_file(f"{broken}:X")
    with pytest.raises(ArgumentError, match="there is no file"):
        from_file("nowhere.py:X")


def test_files_are_modules_like_others(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("from groupella.groups import z2\n")
    file = tmp_path / "mine.py"
    file.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Settings:\n    size: int = 3\n"
        "def make():\n    from beside import z2\n    return [z2()]\n"
        "def broken():\n    return 1 / 0\n"
        "def leaves():\n    raise SystemExit(0)\n"
    )
    assert from_file(f"{file}:Settings")().size == 3
    assert [g.name for g in group_set(f"{file}:make")] == ["trivial", "z2"]
    with pytest.raises(ArgumentError, match=r"mine\.py:broken\(\) fails: ZeroDivisionError"):
        group_set(f"{file}:broken")
    with pytest.raises(ArgumentError, match=r"mine\.py:leaves\(\) fails: SystemExit"):
        group_set(f"{file}:leaves")
    file.write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(ArgumentError, match=r"mine\.py fails: SystemExit"):
        from_file(f"{file}:X")


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "numbers.py"  # the name of a module of the standard library
    file.write_text("X = 1\n")
    assert from_file(f"{file}:X") == 1
    file.write_text("X = 22\n")
    assert from_file(f"{file}:X") == 22
    code = f"import sys; sys.path[:] = {sys.path!r}; from numbers import Number"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
