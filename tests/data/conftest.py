"""Small stand-ins for the public data sets, and a web server that misbehaves on request."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import http.server
import io
import pickle
import re
import struct
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from groupella.data._catalogue import DATASETS, Dataset, Download


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(">HBB", 0, 8, array.ndim)
    return header + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads the machine's own data or cache, or asks a proxy."""
    monkeypatch.delenv("GROUPELLA_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    monkeypatch.setenv("NO_PROXY", "*")


@dataclass
class Tiny:
    """A data set of the right format with a few images; its catalogue entry is installed."""

    name: str
    contents: dict[str, bytes]
    train_x: np.ndarray
    train_y: np.ndarray
    pages: dict[str, bytes]  # what a mirror serves

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.contents.items():
            (folder / name).write_bytes(content)
        return folder

    def use_mirrors(self, *urls: str) -> None:
        DATASETS[self.name] = dataclasses.replace(DATASETS[self.name], mirrors=urls)


def packed(folder: str, contents: dict[str, bytes]) -> bytes:
    """The files as a tar.gz."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in contents.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def install(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    contents: dict[str, bytes],
    train_x: np.ndarray,
    train_y: np.ndarray,
) -> Tiny:
    known = DATASETS[name]
    assert list(known.files) == list(contents)
    files = {}
    for file, content in contents.items():
        files[file] = {file: md5(content)}
        for other in list(known.files[file])[1:]:
            files[file][other] = md5(gzip.decompress(content))
    wanted = {item.file for item in known.downloads}
    pages = (
        contents if wanted == set(contents) else {f: packed("batches", contents) for f in wanted}
    )
    downloads = tuple(
        Download(file, len(content), hashlib.sha256(content).hexdigest())
        for file, content in pages.items()
    )
    entry: Dataset = dataclasses.replace(known, files=files, downloads=downloads, mirrors=())
    monkeypatch.setitem(DATASETS, name, entry)
    return Tiny(name, contents, train_x, train_y, pages)


@pytest.fixture
def tiny_mnist(monkeypatch: pytest.MonkeyPatch) -> Tiny:
    rng = np.random.default_rng(0)
    train_x = rng.integers(0, 256, (20, 28, 28), dtype=np.uint8)
    train_y = rng.integers(0, 10, 20, dtype=np.uint8)
    test_x = rng.integers(0, 256, (8, 28, 28), dtype=np.uint8)
    test_y = rng.integers(0, 10, 8, dtype=np.uint8)
    arrays = {
        "train-images-idx3-ubyte.gz": train_x,
        "train-labels-idx1-ubyte.gz": train_y,
        "t10k-images-idx3-ubyte.gz": test_x,
        "t10k-labels-idx1-ubyte.gz": test_y,
    }
    contents = {name: gzip.compress(idx(array), mtime=0) for name, array in arrays.items()}
    return install(monkeypatch, "mnist", contents, train_x, train_y)


def python2_pickle(value: dict[bytes, object]) -> bytes:
    """Protocol 2, with ``bytes`` written as Python 2 wrote its strings."""

    class Old(pickle._Pickler):  # the Python version, whose dispatch can be changed
        dispatch: ClassVar = dict(pickle._Pickler.dispatch)

        def save_bytes(self, content: bytes) -> None:
            self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)
            self.memoize(content)

        dispatch[bytes] = save_bytes

    out = io.BytesIO()
    Old(out, protocol=2).dump(value)
    return out.getvalue()


@pytest.fixture
def tiny_cifar10(monkeypatch: pytest.MonkeyPatch) -> Tiny:
    rng = np.random.default_rng(1)
    train_x = rng.integers(0, 256, (20, 3072), dtype=np.uint8)
    train_y = np.arange(20) % 10
    contents = {
        f"data_batch_{i + 1}": python2_pickle(
            {b"data": train_x[4 * i : 4 * i + 4], b"labels": train_y[4 * i : 4 * i + 4].tolist()}
        )
        for i in range(5)
    }
    contents["test_batch"] = python2_pickle({b"data": train_x[:3], b"labels": [0, 1, 2]})
    names = [b"airplane", b"automobile", b"bird", b"cat", b"deer"]
    names += [b"dog", b"frog", b"horse", b"ship", b"truck"]
    contents["batches.meta"] = python2_pickle({b"label_names": names})
    return install(monkeypatch, "cifar10", contents, train_x, train_y)


@pytest.fixture
def tiny_cifar100(monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """As the genuine one: every batch has fine labels (to be read) and coarse ones."""
    rng = np.random.default_rng(2)
    train_x = rng.integers(0, 256, (20, 3072), dtype=np.uint8)
    train_y = rng.permutation(100)[:20]
    fine = [f"thing {i}".encode() for i in range(100)]
    coarse = [f"kind {i}".encode() for i in range(20)]

    def batch(x: np.ndarray, y: np.ndarray) -> bytes:
        labels = {b"fine_labels": y.tolist(), b"coarse_labels": (y // 5).tolist()}
        return python2_pickle({b"data": x, b"batch_label": b"a batch", **labels})

    meta = python2_pickle({b"fine_label_names": fine, b"coarse_label_names": coarse})
    contents = {"train": batch(train_x, train_y), "test": batch(train_x[:3], train_y[:3])}
    contents["meta"] = meta
    return install(monkeypatch, "cifar100", contents, train_x, train_y)


@dataclass
class Site:
    """What a server serves, how it fails, and what it was asked for."""

    url: str = ""
    pages: dict[str, bytes] = field(default_factory=dict)
    status: int = 200
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)  # break off after so many bytes, once each
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    pause: float = 0.0  # seconds between two bytes


def serve(site: Site) -> http.server.ThreadingHTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            site.asked.append((self.path, wanted))
            content = site.pages.get(self.path.lstrip("/"))
            if site.status != 200 or content is None:
                self.send_error(site.status if site.status != 200 else 404)
                return
            start = int(re.match(r"bytes=(\d+)-", wanted)[1]) if wanted and site.ranges else 0
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                span = f"bytes {start}-{len(content) - 1}/{len(content)}"
                self.send_header("Content-Range", span)
            for name, value in site.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = start + site.cuts.pop(0) if site.cuts else len(content)
            if not site.pause:
                self.wfile.write(content[start:end])
                return
            with suppress(OSError):  # whoever reads gives up
                for byte in content[start:end]:
                    self.wfile.write(bytes([byte]))
                    time.sleep(site.pause)

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    return server


@pytest.fixture
def sites() -> Iterator[tuple[Site, Site]]:
    """Two mirrors."""
    pair = (Site(), Site())
    servers = [serve(site) for site in pair]
    threads = [threading.Thread(target=server.serve_forever, args=(0.01,)) for server in servers]
    for thread in threads:
        thread.start()
    yield pair
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        server.server_close()
        thread.join()
