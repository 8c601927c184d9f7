"""An exported network loads without groupella, and computes the same."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupella import Answer
from groupella.answers import export
from groupella.data import Coding, Inputs
from groupella.groups import GroupSet, octahedral, p4, permutations, translations, trivial
from groupella.networks import fold, invariant_net, trunk
from tests.faults._work import ended, fork, supported

Data = tuple[Any, Any]

WITHOUT = """
import sys
sys.modules["groupella"] = None  # importing it fails
import numpy as np, torch
from network import load
try:
    import groupella
    raise SystemExit("groupella is there")
except ImportError:
    pass
data = np.load("data.npz")
outputs = load(sys.argv[1])(torch.from_numpy(data["x"])).detach().numpy()
np.testing.assert_allclose(outputs, data["outputs"], atol=1e-4, rtol=1e-4)
"""


@pytest.mark.parametrize(("form", "file"), [("torch", "pt"), ("safetensors", "safetensors")])
def test_it_loads_without_groupella(
    answer: Answer, data: Data, tmp_path: Path, form: str, file: str
) -> None:
    weights, _ = answer.export(tmp_path, form)
    assert weights == tmp_path / f"network.{file}"
    x = data[0].astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x[:, None], outputs=answer.outputs(x).numpy())
    code = [sys.executable, "-c", WITHOUT, weights.name]
    done = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_its_weights_are_nothing_but_tensors(answer: Answer, tmp_path: Path) -> None:
    weights, _ = answer.export(tmp_path, "torch")
    found = torch.load(weights, weights_only=True)
    assert all(isinstance(v, torch.Tensor) for v in found.values())


@pytest.mark.parametrize(
    ("symmetry", "lattice"),
    [(p4(), (8, 8)), (octahedral(), (4, 4, 4)), (translations(1), (12,)), (permutations(5), (5,)),
     (trivial(), (8, 8)), (trivial(), (5,))],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("kind", ["classes", "regression"])
def test_every_kind_of_network_is_written(
    symmetry: object, lattice: tuple[int, ...], kind: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    network = fold(invariant_net(symmetry, lattice, 2, 3, width=4, convolutions=len(lattice) != 1))  # type: ignore[arg-type]
    inputs = Inputs(lattice, (1.0, 2.0), (3.0, 4.0))
    targets = Coding("classes", ('a"""\nraise SystemExit', "b", "c"))
    if kind == "regression":
        targets = Coding("regression", (0, 1, 2), (5.0, 6.0, 7.0), (2.0, 3.0, 4.0), False)
    same(network, inputs, targets, tmp_path)


def test_a_trunk_is_written(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = trunk(
        GroupSet("z2", "p4"), "F-FC+CONV+GCONV", alpha=1, image_size=(8, 8), classes=3,
        in_channels=2, blocks=[(1, 1), (2, 2)], hidden=2,
    )  # fmt: skip
    same(network, Inputs((8, 8), (0.0, 0.0), (1.0, 1.0)), Coding("classes", (0, 1, 2)), tmp_path)


def same(network: torch.nn.Module, inputs: Inputs, targets: Coding, place: Path) -> None:
    """The written module computes what the network does, with the units of data and targets."""
    weights, source = export(network, inputs, targets, place)
    spec = importlib.util.spec_from_file_location("network", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = 2 + torch.randn(4, 2, *inputs.lattice)
    with torch.no_grad():
        wanted = network.eval()(inputs.standardised(x))
        if targets.kind == "regression":
            wanted = wanted * torch.tensor(targets.std) + torch.tensor(targets.mean)
        assert torch.allclose(module.load(weights)(x), wanted, atol=1e-4, rtol=1e-4)


def test_what_cannot_be_written_is_refused(answer: Answer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no format 'keras'; expected one of torch"):
        answer.export(tmp_path, "keras")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file"):
        answer.export(tmp_path / "file")


def test_nothing_but_an_earlier_export_is_replaced(answer: Answer, tmp_path: Path) -> None:
    for form in ("torch", "safetensors", "torch"):
        answer.export(tmp_path / "mine", form)
    for name in ("network.py", "network.pt"):
        (tmp_path / name).write_text("somebody's")
        with pytest.raises(ValueError, match=f"{name} is there, and it is not known to be an"):
            answer.export(tmp_path)
        assert (tmp_path / name).read_text() == "somebody's"
        (tmp_path / name).unlink()
    answer.save(tmp_path / "run")
    with pytest.raises(ValueError, match="is the directory of a run; export to another one"):
        answer.export(tmp_path / "run", "safetensors")
    assert len(list((tmp_path / "run").iterdir())) == 3


@pytest.mark.skipif(not supported(), reason="forks a process")
@pytest.mark.parametrize("form", ["torch", "safetensors"])
def test_a_full_disk_is_an_os_error(answer: Answer, tmp_path: Path, form: str) -> None:
    place, said = tmp_path / "out", tmp_path / "said"
    child = fork(lambda: answer.export(place, form), said, largest_file=12_000)
    assert ended(child) == 2
    assert said.read_text().startswith("OSError: [Errno 27] File too large: ")
    assert [file.name for file in place.iterdir()] == ["network.py"]


@pytest.mark.skipif(importlib.util.find_spec("onnx") is not None, reason="onnx is installed")
def test_onnx_is_named_where_it_is_missing(answer: Answer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs onnx and onnxscript: pip install"):
        answer.export(tmp_path, "onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(importlib.util.find_spec("onnxscript") is None, reason="no onnxscript")
def test_onnx_is_written(answer: Answer, data: Data, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    (path,) = answer.export(tmp_path, "onnx")
    onnx.checker.check_model(onnx.load(path))
