"""Strict JSON in our own files, and its way into dataclasses.

A file may be damaged, or come from a stranger. `read_json` accepts strict JSON of bounded size
only; `build` turns the result into a dataclass and checks every value against the type of its
field. Both say in one line what is wrong and where. JSON has no infinities: files store them as the
strings "inf", "-inf" and "nan", which `build` accepts where a float is expected.
"""

from __future__ import annotations

import functools
import json
import math
import types
import typing
import unicodedata
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np

LARGEST_FILE = 1 << 29  # bytes
LARGEST_INT = 1 << 63
T = TypeVar("T")


class SchemaError(ValueError):
    """JSON that is not what was expected; the message says where."""


def read_json(path: str | Path) -> Any:
    """Return the content of a JSON file.

    Raises
    ------
    SchemaError
        If the file is not strict JSON in UTF-8, or larger than half a gigabyte.
    """
    path = Path(path)
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise SchemaError(f"{path} has {size} bytes; expected at most {LARGEST_FILE}")
    try:
        return parse_json(path.read_bytes().decode("utf-8"))
    except ValueError as error:
        raise SchemaError(f"{path} is truncated or is not JSON: {error}") from error


def parse_json(text: str) -> Any:
    """Return the content of a JSON text; raise `ValueError` if it is not strict JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None


def write_json(value: Any, indent: int | None = None) -> str:
    """Return strict JSON for a file of ours, which `build` reads back."""
    plain = _storable(value, as_text=True)
    return json.dumps(plain, indent=indent, allow_nan=False)


def print_json(value: Any) -> str:
    """Return strict JSON for other programs: numbers that are not finite become null."""
    return json.dumps(_storable(value, as_text=False), allow_nan=False)


def build(kind: type[T], value: Any, where: str = "") -> T:
    """Return `value`, as JSON gives it, as an instance of the dataclass `kind`.

    Fields may be numbers, strings, booleans, arrays of numbers, dataclasses, and lists, tuples,
    mappings and unions of these. Unknown and missing fields are refused.

    Raises
    ------
    SchemaError
        If a value is not of its field's type; the message names the field.
    """
    found: T = _build(kind, value, where)
    return found


def _build(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _dataclass(kind, value, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union(inner, value, where)
    if origin is Literal:
        if value not in inner or isinstance(value, bool):
            raise _wrong(where, f"one of {', '.join(map(repr, inner))}", value)
        return value
    if origin is np.ndarray:
        return _array(value, where)
    if origin in (list, tuple):
        return _sequence(origin, inner, value, where)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        return {key: _build(inner[1], v, _field(where, key)) for key, v in value.items()}
    return _plain(kind, value, where)


def _plain(kind: Any, value: Any, where: str) -> Any:
    if kind is float:
        if value in ("inf", "-inf", "nan"):
            return float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and _is_small(value):
            return value
        raise _wrong(where, "a number", value)
    if kind is int:
        if isinstance(value, int) and not isinstance(value, bool) and _is_small(value):
            return value
        raise _wrong(where, "an integer of at most 64 bits", value)
    if kind in (str, bool, type(None)) and isinstance(value, kind):
        if kind is str and not _is_text(value):
            raise _wrong(where, "text without control characters", value)
        return value
    names = {str: "a string", bool: "true or false", type(None): "null"}
    raise _wrong(where, names[kind], value)


def _dataclass(kind: Any, value: Any, where: str) -> Any:
    if isinstance(value, kind):
        return value
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    hints = _hints(kind)
    known = {f.name: f for f in fields(kind)}
    for name in value:
        if name not in known:
            raise SchemaError(f"{where or 'it'} has an unknown field {name!r}")
    built = {}
    for name, field in known.items():
        if name in value:
            built[name] = _build(hints[name], value[name], _field(where, name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise SchemaError(f"{where or 'it'} lacks {name!r}")
    try:
        return kind(**built)
    except SchemaError:
        raise
    except (TypeError, ValueError) as error:  # its own checks
        raise SchemaError(f"{where}: {error}" if where else str(error)) from error


def _union(inner: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in inner:
        return None
    kinds = [kind for kind in inner if kind is not type(None)]
    for kind in kinds[:-1]:
        try:
            return _build(kind, value, where)
        except SchemaError:
            continue
    return _build(kinds[-1], value, where)


def _sequence(origin: Any, inner: tuple[Any, ...], value: Any, where: str) -> Any:
    if not isinstance(value, list | tuple):
        raise _wrong(where, "a list", value)
    if origin is list or inner[1:] == (...,):
        kinds = [inner[0]] * len(value)
    elif len(inner) != len(value):
        raise _wrong(where, f"a list of {len(inner)}", value)
    else:
        kinds = list(inner)
    pairs = enumerate(zip(kinds, value, strict=True))
    return origin(_build(k, v, f"{where}[{i}]") for i, (k, v) in pairs)


def _array(value: Any, where: str) -> Any:
    if isinstance(value, np.ndarray):
        return value
    try:
        array = np.array(value)
    except ValueError:
        raise _wrong(where, "an array of numbers", value) from None
    if array.size and array.dtype.kind not in "iuf":
        raise _wrong(where, "an array of numbers", value)
    return array.astype(np.float64)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _is_small(value: int | float) -> bool:
    return isinstance(value, float) or -LARGEST_INT <= value < LARGEST_INT


def _is_text(value: str) -> bool:
    """Return whether a terminal shows the text and UTF-8 stores it."""
    return not any(unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t" for c in value)


def _field(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _wrong(where: str, expected: str, value: Any) -> SchemaError:
    shown = "null" if value is None else repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return SchemaError(f"{where or 'it'} must be {expected}, got {shown}")


def _storable(value: Any, as_text: bool) -> Any:
    """Return plain values for JSON, without numbers that are not finite."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return str(float(value)) if as_text else None
    if isinstance(value, Mapping):
        return {key: _storable(v, as_text) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(v, as_text) for v in value]
    return value


def _refuse(constant: str) -> Any:
    raise SchemaError(f"{constant} is not a JSON number")
