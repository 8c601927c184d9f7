"""idx files and pickles: what is right is read, what is wrong is refused with one clear error."""

from __future__ import annotations

import contextlib
import gzip
import pickle
import pickletools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from groupella.data import DataError
from groupella.data._formats import parse_idx, parse_pickle


def idx(array: np.ndarray) -> bytes:
    shape = b"".join(n.to_bytes(4, "big") for n in array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.tobytes()


@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=3, max_side=5)))
def test_idx_round_trip(array: np.ndarray) -> None:
    np.testing.assert_array_equal(parse_idx(idx(array), "x"), array)
    np.testing.assert_array_equal(parse_idx(gzip.compress(idx(array)), "x.gz"), array)


@given(st.integers(0, 200), st.booleans())
def test_truncated_idx_is_refused(length: int, packed: bool) -> None:
    content = idx(np.arange(200, dtype=np.uint8).reshape(10, 20))
    content = gzip.compress(content) if packed else content
    with pytest.raises(DataError, match="x"):
        parse_idx(content[: min(length, len(content) - 1)], "x")


def test_idx_of_another_type_is_refused() -> None:
    with pytest.raises(DataError, match="not an idx file of unsigned bytes"):
        parse_idx(bytes([0, 0, 13, 1, 0, 0, 0, 1, 0, 0, 0, 0]), "floats")


@pytest.mark.parametrize("protocol", [3, 4])
def test_pickle_of_arrays_is_read(protocol: int) -> None:
    data = np.arange(12, dtype=np.uint8).reshape(3, 4)
    content = pickle.dumps({b"data": data, b"labels": [1, 2, 3]}, protocol=protocol)
    value = parse_pickle(content, "batch")
    np.testing.assert_array_equal(value[b"data"], data)
    assert value[b"labels"] == [1, 2, 3]


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        import os

        return os.system, ("echo this must never run",)


@pytest.mark.parametrize("protocol", range(6))
def test_pickle_that_calls_anything_is_refused(
    protocol: int, capfd: pytest.CaptureFixture[str]
) -> None:
    content = pickle.dumps({"data": Evil()}, protocol=protocol)
    assert "system" in "".join(str(arg) for _, arg, _ in pickletools.genops(content))
    with pytest.raises(DataError, match=r"batch: the pickle asks for .*system, which is refused"):
        parse_pickle(content, "batch")
    assert "must never run" not in capfd.readouterr().out


@pytest.mark.parametrize("name", ["eval", "exec", "getattr", "__import__", "open"])
def test_builtins_are_refused(name: str) -> None:
    with pytest.raises(DataError, match="refused"):
        parse_pickle(f"cbuiltins\n{name}\n(S'1'\ntR.".encode(), "batch")


@given(st.binary(max_size=60))
def test_noise_raises_no_other_error(content: bytes) -> None:
    with contextlib.suppress(DataError):
        assert isinstance(parse_pickle(content, "noise"), dict)


def test_pickle_of_something_else_is_refused() -> None:
    with pytest.raises(DataError, match="holds a list"):
        parse_pickle(pickle.dumps([1], protocol=2), "batch")
