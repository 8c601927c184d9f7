"""``groupella data``: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from groupella.cli.app import app
from groupella.data import _cache

LABELS = "t10k-labels-idx1-ubyte.gz"


def data(*arguments: object) -> Result:
    """The result of the command; its standard error, as in a script, is no terminal."""
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def test_fetch_downloads_and_prints_the_directory(sites, tiny_mnist, tmp_path: Path) -> None:
    first, _ = sites
    first.pages |= tiny_mnist.pages
    result = data("fetch", "mnist", "--data-dir", tmp_path, "--mirror", first.url)
    assert result.exit_code == 0
    assert result.stdout == f"{tmp_path}\n"
    assert f"downloading {LABELS}" in result.stderr
    assert len(first.asked) == 4
    assert data("verify", "mnist", "--data-dir", tmp_path).exit_code == 0


def test_fetch_for_machines(sites, tiny_cifar10, tmp_path: Path, monkeypatch) -> None:
    first, _ = sites
    first.pages |= tiny_cifar10.pages
    monkeypatch.setenv("GROUPELLA_DATA", str(tmp_path))
    for _ in range(2):
        result = data("fetch", "cifar10", "--mirror", first.url, "--json")
        assert result.exit_code == 0
        assert json.loads(result.stdout) == {"name": "cifar10", "directory": str(tmp_path)}
        assert result.stderr == ""
    assert len(first.asked) == 1


def test_a_download_that_fails_exits_with_one(sites, tiny_mnist, tmp_path: Path) -> None:
    sites[0].status = 503
    result = data("fetch", "mnist", "--data-dir", tmp_path, "--mirror", sites[0].url, "--json")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "groupella data fetch: could not download train-images" in result.stderr
    assert "HTTP 503" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch", "imagenet"], "known are mnist, cifar10, cifar100"),
        (["verify", "imagenet"], "known are mnist, cifar10, cifar100"),
        (["fetch", "mnist", "--mirror", "foo"], "the mirror 'foo' is not a web address"),
        (["verify", "mnist", "--data-dir", "/no/such/place"], "is not a directory"),
        (["fetch", "mnist", "--data-dir", __file__], "cannot write train-images"),
    ],
)
def test_wrong_arguments_exit_with_two_and_one_line(
    tiny_mnist, arguments: list[str], message: str
) -> None:
    result = data(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"groupella data {arguments[0]}: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_directory_of_the_environment_that_is_not_there_exits_with_two(
    tiny_mnist, monkeypatch
) -> None:
    monkeypatch.setenv("GROUPELLA_DATA", "/no/such/place")
    result = data("verify", "mnist")
    assert result.exit_code == 2
    assert "GROUPELLA_DATA '/no/such/place' is not a directory" in result.stderr


def test_verify_of_sound_files(tiny_mnist, tmp_path: Path) -> None:
    tiny_mnist.write(tmp_path / "mnist")
    result = data("verify", "mnist", "--data-dir", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [f"  ok  {name}" for name in tiny_mnist.contents]
    result = data("verify", "mnist", "--data-dir", tmp_path, "--json")
    assert result.exit_code == 0
    problems = dict.fromkeys(tiny_mnist.contents)
    assert json.loads(result.stdout) == {"name": "mnist", "sound": True, "problems": problems}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("missing", "is missing"),
        ("altered", "is truncated or altered: its MD5 is"),
        ("truncated", "is truncated or altered: its MD5 is"),
    ],
)
def test_verify_of_damaged_files_exits_with_one(
    tiny_mnist, tmp_path: Path, damage: str, message: str
) -> None:
    file = tiny_mnist.write(tmp_path / "mnist") / LABELS
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(content[:-1] if damage == "truncated" else b"\0" + content[1:])
    result = data("verify", "mnist", "--data-dir", tmp_path)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ok", "ok", "ok", "BAD"]
    assert message in lines[-1]
    result = data("verify", "mnist", "--data-dir", tmp_path, "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert not answer["sound"]
    assert [name for name, problem in answer["problems"].items() if problem] == [LABELS]


def test_verify_of_a_truncated_archive_exits_with_one(tiny_cifar100, tmp_path: Path) -> None:
    (name, content) = next(iter(tiny_cifar100.pages.items()))
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    result = data("verify", "cifar100", "--data-dir", tmp_path, "--json")
    assert result.exit_code == 1
    problems = json.loads(result.stdout)["problems"]
    assert list(problems) == ["train", "test", "meta"]
    assert "is truncated or damaged" in problems["meta"]


def test_verify_where_there_is_nothing_exits_with_one(tiny_mnist, tmp_path: Path) -> None:
    assert data("verify", "mnist").exit_code == 1
    tiny_mnist.write(_cache.cache_directory() / "downloads" / "mnist")
    assert data("verify", "mnist").exit_code == 0
    # A sound copy elsewhere is not what was asked about.
    result = data("verify", "mnist", "--data-dir", tmp_path, "--json")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert f"groupella data fetch mnist --data-dir {tmp_path}" in result.stderr
