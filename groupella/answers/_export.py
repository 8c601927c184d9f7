"""Write a network so that it loads where groupella is not installed.

`torch` and `safetensors` write two files: the weights, and `network.py`, a module of nothing but
torch that takes them. The module is written from the traced graph of the plain network
(`groupella.harden`): stock layers are made in `__init__`, everything else is a line of `forward`.
"""

from __future__ import annotations

import importlib.util
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, fx, nn

from groupella._files import replacing, write_text
from groupella.data import Coding, Inputs
from groupella.harden import harden

EXTENSIONS = {"torch": "pt", "safetensors": "safetensors", "onnx": "onnx"}
FORMATS = tuple(EXTENSIONS)
TITLE = "A network with a selected symmetry, in plain torch."
SOURCE = '''"""{title}

Written by groupella; needs only torch{more}.

    import torch
    from network import load

    network = load("{weights}")
    outputs = network(torch.zeros(1, {shape}))  # {outputs}
"""

{imports}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
{made}

{forward}


def load(path="{weights}"):
    """Return the trained network, in evaluation mode."""
    network = Network()
    network.load_state_dict({reading})
    return network.eval()
'''


class Whole(nn.Module):
    """A network with size and standardisation before and the units of its targets after it."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, inputs: Inputs, targets: Coding) -> None:
        super().__init__()
        ones = [1] * len(inputs.lattice)
        like = next(network.parameters())

        def constant(values: tuple[float, ...], *shape: int) -> Tensor:
            return torch.tensor(values, dtype=torch.float64).view(1, -1, *shape)

        self.averages = inputs.size is not None
        if inputs.size is not None:
            rows, columns = inputs.size.matrices()
            self.register_buffer("rows", rows)
            self.register_buffer("columns", columns.mT.contiguous())
        # In float64: a mean may have more digits than float32, and a deviation be too small for it.
        self.register_buffer("mean", constant(inputs.mean, *ones))
        self.register_buffer("std", constant(inputs.std, *ones))
        self.network = network
        self.scaled = targets.kind == "regression"
        if self.scaled:
            self.register_buffer("target_mean", constant(targets.mean).to(like))
            self.register_buffer("target_std", constant(targets.std).to(like))

    def forward(self, x: Tensor) -> Tensor:
        if self.averages:
            x = self.rows @ x.double() @ self.columns  # type: ignore[operator]
        y: Tensor = self.network(((x - self.mean) / self.std).float())
        return y * self.target_std + self.target_mean if self.scaled else y  # type: ignore[operator]


def whole(network: nn.Module, inputs: Inputs, targets: Coding) -> fx.GraphModule:
    """Return a plain module that takes raw inputs (n, channels, *inputs.taken).

    Its outputs are logits, or targets in their own units.
    """
    plain = Whole(harden(network).eval(), inputs, targets)
    graph = _Flat().trace(plain)
    for node in list(graph.nodes):
        node.type = None
        if node.op == "call_module" and isinstance(plain.get_submodule(node.target), nn.Identity):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    made = fx.GraphModule(plain, graph, "Network")
    made.graph.eliminate_dead_code()
    made.recompile()
    return made.eval()


class _Flat(fx.Tracer):
    """Traces into every module that torch does not supply, and into containers."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return super().is_leaf_module(m, module_qualified_name) and not isinstance(
            m, fx.GraphModule | nn.Sequential
        )


def export(
    network: nn.Module, inputs: Inputs, targets: Coding, path: str | Path, form: str = "torch"
) -> tuple[Path, ...]:
    """Write the plain network into a directory, and return the files.

    Parameters
    ----------
    network, inputs, targets
        Parts of an `Answer`.
    path
        The directory; it is made if it is missing. Nothing is replaced in it but what an earlier
        export wrote there.
    form
        "torch" writes `network.pt`, which `torch.load(weights_only=True)` reads, "safetensors"
        `network.safetensors`, each with `network.py`, which has the module. "onnx" writes
        `network.onnx` and needs the packages onnx and onnxscript.

    Raises
    ------
    ValueError
        If the format is unknown, if onnx is not installed, or if the directory holds a run or files
        of the same names that no export wrote.
    """
    if form not in FORMATS:
        raise ValueError(f"no format {form!r}; expected one of {', '.join(FORMATS)}")
    if form == "onnx":
        missing = [n for n in ("onnx", "onnxscript") if importlib.util.find_spec(n) is None]
        if missing:
            raise ValueError(
                f"the format onnx needs {' and '.join(missing)}: pip install {' '.join(missing)}"
            )
    place = Path(path)
    if place.is_file():
        raise ValueError(f"{place} is a file; expected a directory")
    weights = place / f"network.{EXTENSIONS[form]}"
    source = place / "network.py"
    _check_place(place, (weights,) if form == "onnx" else (source, weights))
    made = whole(network, inputs, targets)
    if form == "onnx":
        return (_onnx(made, inputs, weights),)
    tensors = {name: value.detach().clone() for name, value in _tensors(made).items()}
    write_text(source, _source(made, inputs, targets, weights.name))  # first: it shows whose it is
    with replacing(weights) as temporary:
        temporary.write_bytes(_bytes(tensors, form))
    return weights, source


def _check_place(place: Path, files: tuple[Path, ...]) -> None:
    """Raise if files that are about to be written are there, and are not those of an export."""
    if (place / "report.json").exists():
        raise ValueError(f"{place} is the directory of a run; export to another one")
    there = [file for file in files if file.exists()]
    code = place / "network.py"
    ours = code.is_file() and code.read_bytes().startswith(f'"""{TITLE}'.encode())
    if there and not (ours and code in files):
        raise ValueError(
            f"{there[0]} is there, and it is not known to be an earlier export. Delete it, or "
            "export to another directory"
        )


def _bytes(tensors: dict[str, Tensor], form: str) -> bytes:
    """The content of a file of weights. Neither library writes to a full disk with an OSError."""
    if form == "safetensors":
        return safetensors_bytes(tensors)
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    return buffer.getvalue()


def _onnx(made: fx.GraphModule, inputs: Inputs, path: Path) -> Path:
    example = torch.zeros(2, inputs.channels, *inputs.taken)
    with replacing(path) as temporary, _quiet():
        torch.onnx.export(
            made,
            (example,),
            temporary,
            input_names=["x"],
            output_names=["y"],
            dynamic_shapes=({0: torch.export.Dim("n")},),
            external_data=False,
            verbose=False,
        )
    return path


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch's exporter says about itself: steps, absent torchvision, deprecations."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _tensors(made: fx.GraphModule) -> dict[str, Tensor]:
    """The tensors that the graph uses, by their names in the written module.

    Names are flat, but for the weights of stock layers: "layers_0.weight", "head_bias".
    """
    found = {**dict(made.named_parameters()), **dict(made.named_buffers())}
    named: dict[str, Tensor] = {}
    for node in made.graph.nodes:
        target = str(node.target)
        if node.op == "get_attr":
            named[_flat(target)] = found[target]
        elif node.op == "call_module":
            own = made.get_submodule(target).state_dict()
            named |= {f"{_flat(target)}.{k}": found[f"{target}.{k}"] for k in own}
    return named


def _flat(dotted: str) -> str:
    return re.sub(r"\W", "_", dotted)


def _source(made: fx.GraphModule, inputs: Inputs, targets: Coding, weights: str) -> str:
    lines: list[str] = []
    modules = dict(made.named_modules())
    values = _tensors(made)
    for node in made.graph.nodes:
        name = str(node.target)
        if node.op == "call_module":
            line = f"self.{_flat(name)} = nn.{_constructor(modules[name])}"
        elif node.op == "get_attr":
            tensor = values[_flat(name)]
            empty = f"torch.empty({tuple(tensor.shape)}, dtype={tensor.dtype})"
            line = f'self.register_buffer("{_flat(name)}", {empty})'
        else:
            continue
        if line not in lines:
            lines.append(line)
    words = {
        "classes": "logits of " + ", ".join(_harmless(name) for name in targets.names[:20]),
        "multilabel": f"logits of {targets.outputs} labels",
        "regression": f"{targets.outputs} real targets",
    }
    safe = weights.endswith(".safetensors")
    forward = _forward(made)
    imports = [
        *(["from math import inf\n"] if re.search(r"\binf\b", forward) else []),
        "import torch",
        *(["from safetensors.torch import load_file"] if safe else []),
        "from torch import nn",
    ]
    return SOURCE.format(
        title=TITLE,
        more=" and safetensors" if safe else "",
        weights=weights,
        shape=", ".join(map(str, (inputs.channels, *inputs.taken))),
        outputs=words[targets.kind],
        imports="\n".join(imports),
        made="\n".join(f"        {line}" for line in lines),
        forward=forward,
        reading="load_file(path)" if safe else "torch.load(path, weights_only=True)",
    )


def _harmless(name: object) -> str:
    """A name that can stand in a comment."""
    return re.sub(r"[^\w .+-]", "_", str(name))


def _forward(made: fx.GraphModule) -> str:
    """The code of `forward` with flat names of modules and tensors."""
    graph = made.graph
    code: str = graph.python_code("self").src
    for node in graph.nodes:
        if node.op in ("call_module", "get_attr"):
            for spelled in _spelled(str(node.target)):
                wanted = _flat(str(node.target))
                code = re.sub(rf"{re.escape(spelled)}(?![\w.\[\"])", f"self.{wanted}", code)
    code = code[code.index("def forward") :]
    code = re.sub(r";\s*\w+( = \w+)* = None", "", code)  # fx frees what is no longer used
    return "\n".join(f"    {line.rstrip()}" for line in code.strip().splitlines())


def _spelled(target: str) -> list[str]:
    """How fx writes self.TARGET: with dots, and with getattr where a part is a number."""
    text = "self"
    for part in target.split("."):
        text = f"{text}.{part}" if part.isidentifier() else f'getattr({text}, "{part}")'
    return [text]


_QUOTED: Mapping[str, Callable[[Any], str]] = {
    "padding_mode": lambda module: repr(module.padding_mode),
}


def _constructor(module: nn.Module) -> str:
    """The call that makes a stock module, without its weights."""
    text = f"{type(module).__name__}({module.extra_repr()})"
    for option, value in _QUOTED.items():
        text = re.sub(rf"{option}=\w+", f"{option}={value(module)}" if option in text else "", text)
    return text
