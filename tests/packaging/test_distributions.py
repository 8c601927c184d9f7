"""The wheel and the sdist are complete, and the wheel works on its own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PACKAGES = ("groupella", "groups", "bases", "experiments")
IN_THE_REPOSITORY_ONLY = {".gitattributes", ".mailmap"}


def build(kind: str, tree: Path, out: Path) -> Path:
    """Call the build backend, as pip and build do, without a download."""
    out.mkdir(exist_ok=True)
    code = f"import setuptools.build_meta as b; b.build_{kind}({str(out)!r})"
    result = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    (built,) = out.iterdir()
    return built


@dataclass(frozen=True)
class Built:
    """The sdist, and the wheel that was built from it alone."""

    files: list[Path]
    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(source_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("distributions")
    files = [path.relative_to(source_tree) for path in source_tree.rglob("*") if path.is_file()]
    sdist = build("sdist", source_tree, folder / "sdist")
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder / "unpacked", filter="data")
        else:
            archive.extractall(folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    return Built(files, sdist, build("wheel", unpacked, folder / "wheel"))


def test_the_sdist_holds_every_file(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        inside = {Path(*Path(name).parts[1:]) for name in archive.getnames()}
    expected = {path for path in built.files if str(path) not in IN_THE_REPOSITORY_ONLY}
    assert expected - inside == set()


def test_the_wheel_holds_every_file_of_our_packages_and_nothing_else(built: Built) -> None:
    expected = {
        path if path.parts[0] == "groupella" else Path("groupella", path)
        for path in built.files
        if path.parts[0] in PACKAGES
    }
    with zipfile.ZipFile(built.wheel) as archive:
        inside = {Path(name) for name in archive.namelist()}
    ours = {path for path in inside if not path.parts[0].endswith(".dist-info")}
    assert ours == expected
    assert Path("groupella/py.typed") in ours
    assert any(path.name == "LICENSE" for path in inside)


def test_every_directory_of_modules_is_a_package(built: Built) -> None:
    ours = [path for path in built.files if path.parts[0] in PACKAGES]
    folders = {path.parent for path in ours if path.suffix == ".py"}
    assert [folder for folder in folders if folder / "__init__.py" not in ours] == []


def test_the_wheel_works_in_a_fresh_environment(built: Built, tmp_path: Path) -> None:
    venv.create(tmp_path / "fresh", with_pip=False, symlinks=True)
    python = tmp_path / "fresh" / "bin" / "python"
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def run(*command: str | Path) -> str:
        result = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    install = ("install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, *install, built.wheel)
    # Borrow the dependencies of this environment. Its .pth files are not read there, so that the
    # groupella under development is not found.
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")

    where = run(
        python,
        "-c",
        "import groupella, groupella.groups, groupella.bases, groupella.experiments\n"
        "print(groupella.__file__, groupella.groups.__file__, sep='\\n')",
    )
    assert all(Path(line).is_relative_to(site) for line in where.split())
    assert "doctor" in run(python.with_name("groupella"), "--help")
    assert "All checks passed." in run(python.with_name("groupella"), "doctor")
