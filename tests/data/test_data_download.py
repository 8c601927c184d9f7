"""Downloads, against a server on this machine that fails in the ways that servers do."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from groupella.data import DataError, fetch, public
from groupella.data._catalogue import Download
from groupella.data._download import download as download_from

CONTENT = os.urandom(300_000)


def download(*sites: object, to: Path, content: bytes = CONTENT, progress: bool = False) -> Path:
    """The file of that content, from these mirrors."""
    item = Download("file.bin", len(content), hashlib.sha256(content).hexdigest())
    return download_from(item, [site.url for site in sites], to, progress)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "downloads"


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_file_is_downloaded_once(sites, folder: Path) -> None:
    first, _ = sites
    first.pages["file.bin"] = CONTENT
    for _ in range(2):
        path = download(first, to=folder)
        assert path.read_bytes() == CONTENT
    assert len(first.asked) == 1
    assert names(folder) == ["file.bin"]


def test_a_broken_connection_is_continued(sites, folder: Path) -> None:
    first, _ = sites
    first.pages["file.bin"] = CONTENT
    first.cuts = [100_000, 50_000]
    assert download(first, to=folder).read_bytes() == CONTENT
    starts = [wanted for _, wanted in first.asked]
    assert starts == [None, "bytes=100000-", "bytes=150000-"]
    assert names(folder) == ["file.bin"]


def test_an_interrupted_download_is_continued_the_next_time(sites, folder: Path) -> None:
    first, _ = sites
    first.pages["file.bin"] = CONTENT
    first.cuts = [120_000, 0]  # the second connection brings nothing: give up
    with pytest.raises(DataError, match=r"the connection ended|no connection"):
        download(first, to=folder)
    assert names(folder) == ["file.bin.part"]
    assert (folder / "file.bin.part").stat().st_size == 120_000
    assert download(first, to=folder).read_bytes() == CONTENT
    assert first.asked[-1][1] == "bytes=120000-"
    assert names(folder) == ["file.bin"]


def test_another_mirror_continues_what_the_first_began(sites, folder: Path) -> None:
    first, second = sites
    first.pages["file.bin"] = second.pages["file.bin"] = CONTENT
    first.cuts = [200_000, 0]
    assert download(first, second, to=folder).read_bytes() == CONTENT
    assert second.asked == [("/file.bin", "bytes=200000-")]


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_a_failing_mirror_is_passed_over(sites, folder: Path, status: int) -> None:
    first, second = sites
    first.status = status
    second.pages["file.bin"] = CONTENT
    assert download(first, second, to=folder).read_bytes() == CONTENT


def test_a_mirror_that_is_not_there_is_passed_over(sites, folder: Path) -> None:
    _, second = sites
    second.pages["file.bin"] = CONTENT
    nobody = SimpleNamespace(url="http://127.0.0.1:9")
    assert download(nobody, second, to=folder).read_bytes() == CONTENT


def test_wrong_content_is_never_kept(sites, folder: Path) -> None:
    first, second = sites
    first.pages["file.bin"] = b"x" * len(CONTENT)
    second.pages["file.bin"] = CONTENT
    with pytest.raises(DataError, match=r"could not download file.bin:\n.*its SHA-256 is wrong"):
        download(first, to=folder)
    assert names(folder) == []
    assert download(first, second, to=folder).read_bytes() == CONTENT


@pytest.mark.parametrize("length", [10, len(CONTENT) + 10])
def test_content_of_the_wrong_length_is_never_kept(sites, folder: Path, length: int) -> None:
    first, _ = sites
    first.pages["file.bin"] = b"y" * length
    with pytest.raises(DataError, match=r"could not download file.bin"):
        download(first, to=folder)
    assert "file.bin" not in names(folder)


def test_a_bad_beginning_is_thrown_away(sites, folder: Path) -> None:
    first, _ = sites
    first.pages["file.bin"] = CONTENT
    folder.mkdir()
    (folder / "file.bin.part").write_bytes(b"z" * 1000)
    assert download(first, to=folder).read_bytes() == CONTENT
    assert [wanted for _, wanted in first.asked] == ["bytes=1000-", None]


@pytest.mark.parametrize("left", [b"z" * len(CONTENT), b"z" * (len(CONTENT) + 7)])
def test_a_beginning_that_is_too_long_is_thrown_away(sites, folder: Path, left: bytes) -> None:
    first, _ = sites
    first.pages["file.bin"] = CONTENT
    folder.mkdir()
    (folder / "file.bin.part").write_bytes(left)
    assert download(first, to=folder).read_bytes() == CONTENT


def test_a_complete_part_needs_no_server(folder: Path, sites) -> None:
    folder.mkdir()
    (folder / "file.bin.part").write_bytes(CONTENT)
    first, _ = sites
    assert download(first, to=folder).read_bytes() == CONTENT
    assert first.asked == []


def test_a_server_without_ranges_starts_again(sites, folder: Path) -> None:
    first, _ = sites
    first.pages["file.bin"] = CONTENT
    first.ranges = False
    first.cuts = [100_000]
    assert download(first, to=folder).read_bytes() == CONTENT


def test_gzipped_files_are_not_unpacked_on_the_way(sites, folder: Path) -> None:
    import gzip

    packed = gzip.compress(b"some content" * 1000)
    first, _ = sites
    first.pages["file.bin"] = packed
    first.headers["Content-Encoding"] = "gzip"
    assert download(first, to=folder, content=packed).read_bytes() == packed


def test_an_altered_file_is_replaced(sites, folder: Path) -> None:
    first, _ = sites
    first.pages["file.bin"] = CONTENT
    folder.mkdir()
    (folder / "file.bin").write_bytes(b"old")
    assert download(first, to=folder).read_bytes() == CONTENT


def test_a_folder_that_cannot_be_written_is_one_clear_error(sites, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot write file.bin to"):
        download(sites[0], to=tmp_path / "file" / "downloads")


def test_two_at_once_download_once(sites, folder: Path) -> None:
    first, _ = sites
    first.pages["file.bin"] = CONTENT
    results: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: results.append(download(first, to=folder).read_bytes()))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [CONTENT] * 3
    assert len(first.asked) == 1


def test_progress_is_told_on_the_standard_error(sites, folder: Path, capfd) -> None:
    first, _ = sites
    first.pages["file.bin"] = CONTENT
    download(first, to=folder, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "file.bin" in err


def test_a_data_set_is_fetched_parsed_and_kept(sites, tiny_mnist, tmp_path: Path) -> None:
    first, _ = sites
    first.pages |= tiny_mnist.contents
    tiny_mnist.use_mirrors(first.url)
    images = public("mnist", progress=False)
    assert images.train_x.shape == (20, 1, 28, 28)
    assert len(first.asked) == 4
    public("mnist", progress=False)
    assert len(first.asked) == 4


def test_a_half_fetched_set_is_completed(sites, tiny_mnist, tmp_path: Path) -> None:
    first, _ = sites
    first.pages |= tiny_mnist.contents
    last = first.pages.pop("t10k-labels-idx1-ubyte.gz")
    tiny_mnist.use_mirrors(first.url)
    with pytest.raises(DataError, match="t10k-labels"):
        public("mnist", progress=False)
    first.pages["t10k-labels-idx1-ubyte.gz"] = last
    assert len(public("mnist", progress=False).train_y) == 20
    assert len(first.asked) == 5


def test_fetch_fills_a_data_directory_from_a_mirror(sites, tiny_mnist, tmp_path: Path) -> None:
    first, _ = sites
    first.pages |= {f"some/where/{name}": body for name, body in tiny_mnist.contents.items()}
    mine = tmp_path / "mine"
    where = fetch("mnist", mine, mirror=f"{first.url}/some/where/", progress=False)
    assert where == mine
    assert names(mine / "mnist") == sorted(tiny_mnist.contents)
    assert len(public("mnist", mine, download=False).train_y) == 20


def test_fetch_mends_an_altered_file(sites, tiny_mnist, tmp_path: Path) -> None:
    first, _ = sites
    first.pages |= tiny_mnist.contents
    mine = tmp_path / "mine"
    fetch("mnist", mine, mirror=first.url, progress=False)
    (mine / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(b"broken")
    fetch("mnist", mine, mirror=first.url, progress=False)
    assert len(first.asked) == 5
    assert len(public("mnist", mine, download=False).train_y) == 20


def test_fetch_takes_what_lies_in_the_data_directory(
    sites, tiny_mnist, tmp_path: Path, monkeypatch
) -> None:
    tiny_mnist.use_mirrors(sites[0].url)
    mine = tmp_path / "mine"
    tiny_mnist.write(mine / "MNIST" / "raw")
    monkeypatch.setenv("GROUPELLA_DATA", str(mine))
    assert fetch("mnist", progress=False) == mine
    assert sites[0].asked == []


def test_fetch_puts_what_is_missing_beside_the_rest(
    sites, tiny_mnist, tmp_path: Path, monkeypatch
) -> None:
    first, _ = sites
    first.pages |= tiny_mnist.contents
    tiny_mnist.use_mirrors(first.url)
    raw = tiny_mnist.write(tmp_path / "mine" / "MNIST" / "raw")
    (raw / "train-labels-idx1-ubyte.gz").unlink()
    (raw / "t10k-labels-idx1-ubyte.gz").write_bytes(b"altered")
    monkeypatch.setenv("GROUPELLA_DATA", str(tmp_path / "mine"))
    assert fetch("mnist", progress=False) == tmp_path / "mine"
    asked = sorted(path for path, _ in first.asked)
    assert asked == ["/t10k-labels-idx1-ubyte.gz", "/train-labels-idx1-ubyte.gz"]
    assert names(tmp_path / "mine") == ["MNIST"]
    assert len(public("mnist", download=False).train_y) == 20


def test_fetch_fills_the_directory_of_the_environment(
    sites, tiny_mnist, tmp_path: Path, monkeypatch
) -> None:
    first, _ = sites
    first.pages |= tiny_mnist.contents
    tiny_mnist.use_mirrors(first.url)
    monkeypatch.setenv("GROUPELLA_DATA", str(tmp_path / "new"))
    assert fetch("mnist", progress=False) == tmp_path / "new"
    assert names(tmp_path / "new" / "mnist") == sorted(tiny_mnist.contents)


def test_fetch_without_a_directory_takes_an_earlier_download(
    sites, tiny_mnist, tmp_path: Path, monkeypatch
) -> None:
    first, _ = sites
    first.pages |= tiny_mnist.contents
    tiny_mnist.use_mirrors(first.url)
    kept = fetch("mnist", progress=False)
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("GROUPELLA_DATA", str(tmp_path / "mine"))
    assert fetch("mnist", progress=False) == kept
    assert len(first.asked) == 4
    assert fetch("mnist", tmp_path / "mine", progress=False) == tmp_path / "mine"
    assert len(first.asked) == 8


def test_loading_downloads_to_the_cache_and_not_to_the_data_directory(
    sites, tiny_mnist, tmp_path: Path, monkeypatch
) -> None:
    first, _ = sites
    first.pages |= tiny_mnist.contents
    tiny_mnist.use_mirrors(first.url)
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("GROUPELLA_DATA", str(tmp_path / "mine"))
    assert len(public("mnist", progress=False).train_y) == 20
    assert names(tmp_path / "mine") == []


def test_fetch_to_a_read_only_directory_is_one_clear_error(
    sites, tiny_mnist, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "mnist").mkdir()
    monkeypatch.setenv("GROUPELLA_DATA", str(tmp_path))
    # Whoever runs the tests may be allowed to write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(DataError, match=r"cannot write .* to '.*mnist': it is read-only; choose a"):
        fetch("mnist", mirror=sites[0].url, progress=False)
    assert names(tmp_path / "mnist") == []
    assert sites[0].asked == []


def test_fetch_mends_an_altered_batch(sites, tiny_cifar10, tmp_path: Path) -> None:
    first, _ = sites
    first.pages |= tiny_cifar10.pages
    batch = tiny_cifar10.write(tmp_path / "cifar-10-batches-py") / "data_batch_3"
    batch.write_bytes(b"altered")
    with pytest.raises(DataError, match=r"data_batch_3' is .*altered: .*groupella data fetch cif"):
        public("cifar10", tmp_path)
    assert fetch("cifar10", tmp_path, mirror=first.url, progress=False) == tmp_path
    assert names(tmp_path / "cifar10") == ["cifar-10-python.tar.gz"]
    assert batch.read_bytes() == b"altered"  # a user's files are never touched
    assert public("cifar10", tmp_path, download=False).train_y.tolist() == [*range(10)] * 2
    fetch("cifar10", tmp_path, mirror=first.url, progress=False)
    assert len(first.asked) == 1


@pytest.mark.parametrize(
    "mirror", ["foo", "", "example.org/mnist", "ftp://a/b", "https:///mnist", "http://a:b/", "/tmp"]
)
def test_a_mirror_that_is_no_address_is_refused(tiny_mnist, tmp_path: Path, mirror: str) -> None:
    with pytest.raises(ValueError, match=r"is not a web address; expected .* such as https://"):
        fetch("mnist", tmp_path / "mine", mirror=mirror)
    assert not (tmp_path / "mine").exists()


def test_no_mirror_at_all_is_one_clear_error(tiny_mnist) -> None:
    tiny_mnist.use_mirrors("http://127.0.0.1:9")
    with pytest.raises(DataError, match=r"(?s)http://127.0.0.1:9/.*no connection.*GROUPELLA_DATA"):
        public("mnist", progress=False)
