"""The gate to escnn, seen from fresh interpreters, since imports happen once in a process."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.spatial.transform

from groupella.groups import gate
from groupella.groups._wigner import wigner_D_matrix

ESCNN = Path(importlib.util.find_spec("escnn").origin).parent

BLOCK_LIE_LEARN = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "lie_learn":
            raise ImportError("blocked")
sys.meta_path.insert(0, Blocked())
"""

TURN = """
from groupella.groups.gate import load_group
group = load_group()
rotations = group.so3_group(1)
rotations.irrep(1)(rotations.sample())  # Wigner D, which escnn takes from lie_learn
"""
USE = (
    TURN
    + """
from groupella.groups.gate import load_gspaces, load_nn
gspaces, nn = load_gspaces(), load_nn()
assert load_group() is group
space = gspaces.flipRot2dOnR2(4)
fields = nn.FieldType(space, [space.irrep(1, 1)])
nn.R2Conv(fields, fields, kernel_size=3)  # np.matrix and scikit-learn, results cached on disk
"""
)


def run(code: str, cache: Path | str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, *options, "-c", code], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return result


def files_of_escnn() -> dict[Path, float]:
    paths = (p for p in ESCNN.rglob("*") if "__pycache__" not in p.parts)
    return {p: p.stat().st_mtime for p in paths}


STRICT = ("-W", "error")


def test_silent_traceless_and_cached_outside_of_site_packages(tmp_path: Path) -> None:
    before = files_of_escnn()
    code = f"""
import sys, joblib, warnings
memory = joblib.Memory
{USE}
assert joblib.Memory is memory
assert not [f for f in warnings.filters if f[1] and "py3nj" in f[1].pattern]
assert sys.modules.get("sklearn.utils.extmath", "absent") is not None

# Solvers leave no file open and standard output as it was.
import numpy as np
from escnn.group._numerical import find_orthogonal_matrix
quarter_turn = np.array([[0.0], [1.0], [-1.0], [0.0]]) / 2**0.5
before = sys.stdout
found, _ = find_orthogonal_matrix(quarter_turn, (2, 2))  # by a search, not in closed form
assert sys.stdout is before
np.testing.assert_allclose(found @ found.T, np.eye(2), atol=1e-4)
"""
    result = run(code, tmp_path, *STRICT)
    assert result.stdout == result.stderr == ""
    assert files_of_escnn() == before
    assert list((tmp_path / "groupella" / "escnn").rglob("output.pkl"))


def test_works_without_lie_learn(tmp_path: Path) -> None:
    result = run(
        BLOCK_LIE_LEARN + TURN + "assert not [m for m in sys.modules if m.startswith('lie_learn')]",
        tmp_path,
        *STRICT,
    )
    assert result.stdout == result.stderr == ""


def test_works_where_lie_learn_is_compiled_for_another_numpy(tmp_path: Path) -> None:
    module = tmp_path / "lie_learn" / "representations" / "SO3" / "wigner_d.py"
    module.parent.mkdir(parents=True)
    module.write_text(
        "import sys\n"
        "sys.stderr.write('A module that was compiled using NumPy 1.x cannot be run in NumPy 2')\n"
        "raise ValueError('numpy.dtype size changed, may indicate binary incompatibility')\n"
    )
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    assert run(path + TURN, tmp_path, *STRICT).stderr == ""


def test_works_where_the_cache_cannot_be_written() -> None:
    run(
        USE + "from groupella.groups.gate import cache_directory as c; assert c() is None",
        "/dev/null",
    )


def test_mends_an_escnn_that_was_imported_before(tmp_path: Path) -> None:
    pytest.importorskip(
        "lie_learn", reason="escnn imports by itself only with lie_learn and numpy 1"
    )
    copy = tmp_path / "site" / "escnn"  # escnn by itself writes where it stands
    shutil.copytree(ESCNN, copy, ignore=shutil.ignore_patterns("_cache"))
    path = f"import sys; sys.path.insert(0, {str(copy.parent)!r})\n"
    run(path + "import escnn.group, escnn.nn\n" + USE, tmp_path)
    assert list((tmp_path / "groupella" / "escnn").rglob("output.pkl"))
    assert not list(copy.rglob("output.pkl"))


def test_a_broken_escnn_says_why(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["pymanopt"] = None          # escnn does without
sys.modules["escnn.kernels"] = None     # escnn's own __init__ would hide this
from groupella.groups.gate import load_group
try:
    load_group()
except ImportError as error:
    assert "escnn.kernels" in str(error), error
else:
    sys.exit("no error")
"""
    run(code, tmp_path)


def test_importing_our_packages_imports_neither_escnn_nor_torch(tmp_path: Path) -> None:
    run(
        "import sys, groupella, groupella.groups, groupella.bases\n"
        "assert not {'escnn', 'torch'} & set(sys.modules)",
        tmp_path,
    )


@pytest.mark.parametrize("degree", range(8))
def test_wigner_matrices_are_those_of_lie_learn(degree: int) -> None:
    reference = pytest.importorskip(
        "lie_learn.representations.SO3.wigner_d", reason="lie_learn works with numpy 1 only"
    )
    for angles in np.random.default_rng(degree).uniform(-7, 7, (5, 3)):
        own = wigner_D_matrix(degree, *angles)
        np.testing.assert_allclose(own, reference.wigner_D_matrix(degree, *angles), atol=1e-12)


@pytest.mark.parametrize("degree", range(5))
def test_wigner_matrices_are_a_representation(degree: int) -> None:
    rotation = scipy.spatial.transform.Rotation
    g, h = rotation.random(2, random_state=degree)
    D = [wigner_D_matrix(degree, *r.as_euler("ZYZ")) for r in (g, h, g * h)]
    np.testing.assert_allclose(D[0] @ D[1], D[2], atol=1e-12)


def test_there_is_one_gate() -> None:
    assert gate.load_group().__name__ == "escnn.group"
    assert gate.load_gspaces().__name__ == "escnn.gspaces"
    assert gate.load_nn().__name__ == "escnn.nn"
