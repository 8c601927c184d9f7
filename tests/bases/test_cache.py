"""The cache: keyed by content, whole files or none, and never in the way of an answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from groupella.bases import _cache, cache_directory, clear_cache, equivariant_basis, kernel_basis
from groupella.bases._cache import cached, content_key
from groupella.bases._orbits import Orbits
from groupella.groups import FeatureSpace, GroupSet, cyclic, p4, p4m


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, written to whatever an entry cost."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("GROUPELLA_CACHE")
    monkeypatch.setattr(_cache, "_DISK_SECONDS", 0.0)
    clear_cache()
    return tmp_path / "groupella" / "bases"


def rows(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((3, 4))


def signed_orbits() -> Orbits:
    labels = np.array([0, 1, -1, 0], dtype=np.int32)
    return Orbits(labels, np.array([1, 1, 1, -1], dtype=np.int8), 2)


def never() -> np.ndarray:
    raise AssertionError("computed again")


def test_the_directory_follows_xdg_cache_home(store: Path, tmp_path: Path) -> None:
    assert cache_directory() == store
    assert store.is_relative_to(tmp_path)


def test_memory_then_disk_then_computation(store: Path) -> None:
    first = cached("a", rows)
    assert cached("a", never) is first
    clear_cache(disk=False)
    np.testing.assert_array_equal(cached("a", never), first)
    clear_cache()
    assert not list(store.iterdir())
    np.testing.assert_array_equal(cached("a", lambda: rows(1)), rows(1))


@pytest.mark.parametrize("form", [signed_orbits(), Orbits(np.zeros(2, np.int32), None, 1)])
def test_orbits_come_back_as_they_were(store: Path, form: Orbits) -> None:
    cached("orbits", lambda: form)
    clear_cache(disk=False)
    again = cached("orbits", never)
    assert isinstance(again, Orbits)
    assert again.count == form.count
    np.testing.assert_array_equal(again.labels, form.labels)
    assert (again.signs is None) == (form.signs is None)
    if form.signs is not None:
        np.testing.assert_array_equal(again.signs, form.signs)


def test_sparse_rows_come_back_as_they_were(store: Path) -> None:
    form = sp.random_array((4, 30), density=0.2, format="csr", rng=np.random.default_rng(0))
    cached("sparse", lambda: form)
    clear_cache(disk=False)
    again = cached("sparse", never)
    assert isinstance(again, sp.csr_array)
    np.testing.assert_array_equal(again.toarray(), form.toarray())


def test_only_what_took_time_is_written(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cache, "_DISK_SECONDS", 10.0)
    cached("quick", rows)
    assert not store.exists()
    monkeypatch.setattr(_cache, "_DISK_SECONDS", 0.0)
    monkeypatch.setattr(_cache, "_DISK_BYTES", 8)
    cached("large", rows)
    assert not store.exists()


def damage_nothing(data: bytes) -> bytes:
    return b""


def damage_half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def damage_a_number(data: bytes) -> bytes:
    where = data.find(rows().tobytes()[:8])
    assert where > 0
    return data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :]


def damage_everything(data: bytes) -> bytes:
    return bytes(np.random.default_rng(0).integers(0, 256, len(data), dtype=np.uint8))


@pytest.mark.parametrize(
    "damage", [damage_nothing, damage_half, damage_a_number, damage_everything]
)
def test_a_damaged_file_is_computed_again_and_replaced(store: Path, damage) -> None:
    cached("a", rows)
    path = store / "a.npz"
    path.write_bytes(damage(path.read_bytes()))
    clear_cache(disk=False)
    np.testing.assert_array_equal(cached("a", rows), rows())
    clear_cache(disk=False)
    np.testing.assert_array_equal(cached("a", never), rows())


def test_a_sound_file_with_other_numbers_is_a_miss(store: Path) -> None:
    cached("a", rows)
    with np.load(store / "a.npz") as stored:
        altered = {**stored, "rows": 2 * stored["rows"]}
    np.savez(store / "a.npz", **altered)
    clear_cache(disk=False)
    np.testing.assert_array_equal(cached("a", rows), rows())


def test_a_file_under_another_key_is_a_miss(store: Path) -> None:
    cached("a", rows)
    os.replace(store / "a.npz", store / "b.npz")
    np.testing.assert_array_equal(cached("b", lambda: rows(2)), rows(2))


def test_a_directory_that_cannot_be_written_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    np.testing.assert_array_equal(cached("a", rows), rows())


def test_what_a_killed_process_left_is_swept(store: Path) -> None:
    store.mkdir(parents=True)
    old, fresh = store / ".a-1.tmp", store / ".b-2.tmp"
    for file in (old, fresh):
        file.touch()
    os.utime(old, (0, 0))
    cached("c", rows)
    assert not old.exists()
    assert fresh.exists()


def test_off_leaves_the_disk_alone(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPELLA_CACHE", "off")
    cached("a", rows)
    assert not store.exists()


def test_memory_is_bounded(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPELLA_CACHE", "off")
    monkeypatch.setattr(_cache, "_MEMORY_BYTES", 3 * rows().nbytes)
    for k in range(5):
        cached(str(k), rows)
    assert set(_cache._memory) == {"2", "3", "4"}


def test_keys_tell_content_apart() -> None:
    keys = {
        content_key(parts)
        for parts in [
            (1, 2),
            (12,),
            ((1,), 2),
            ("1", 2),
            (np.array([1, 2]),),
            (np.array([[1, 2]]),),
            (np.array([1.0, 2.0]),),
            (np.array([1, 2], np.int32),),
            (None, 1),
            (),
        ]
    }
    assert len(keys) == 10
    assert content_key((np.arange(6)[::2],)) == content_key((np.array([0, 2, 4]),))


def spaces() -> list[FeatureSpace]:
    return [GroupSet(p4()).space((4, 4), 1), GroupSet(p4()).space((4, 4), 7)]


def test_equal_problems_share_an_entry_whatever_they_are_called(store: Path) -> None:
    first, second = spaces()
    one = equivariant_basis(first, first, p4())
    assert equivariant_basis(second, second, p4()).form is one.form
    other_lattice = GroupSet(p4()).space((6, 6), 1)
    kernel = kernel_basis(first, first, p4(), 3)
    assert kernel_basis(other_lattice, other_lattice, p4(), 3).form is kernel.form
    assert kernel_basis(first, first, p4(), 5).form is not kernel.form
    assert kernel_basis(first, first, p4(), 3, "reynolds").form is not kernel.form


def test_a_basis_read_from_disk_is_the_basis(store: Path) -> None:
    space = GroupSet(p4m()).space((4, 4), 1)
    first = kernel_basis(space, space, p4m(), 3)
    assert list(store.glob("*.npz"))
    clear_cache(disk=False)
    again = kernel_basis(space, space, p4m(), 3)
    assert again.form is not first.form
    np.testing.assert_array_equal(again.tensor, first.tensor)


def test_results_cannot_be_changed_by_mistake() -> None:
    groups = GroupSet(cyclic(4))
    space = groups.space((4,), 1)
    for method in ("orbits", "reynolds"):
        basis = equivariant_basis(space, space, groups.ambient, method)
        with pytest.raises(ValueError, match="read-only"):
            basis.tensor[0] = 0


PROGRAM = """
import sys
import numpy as np
from groupella.bases import _cache, clear_cache
from groupella.bases._cache import cached
_cache._DISK_SECONDS = 0.0
for k in range(200):
    clear_cache(disk=False)
    value = cached(f"shared{k % 5}", lambda: np.full((50, 40), float(k % 5)))
    assert (value == k % 5).all() and value.shape == (50, 40), value
"""


def test_several_processes_share_the_directory(store: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(store.parent.parent)}
    environment.pop("GROUPELLA_CACHE", None)
    running = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    assert sorted(path.name for path in store.iterdir()) == [f"shared{k}.npz" for k in range(5)]
