"""Verdicts, clearness, removal, and a selection's ways out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from groupella.evidence import Evidence, Prior, Selection, measured_removal, removal, selection
from groupella.evidence._verdict import clearness, verdict, verdict_text
from groupella.groups import GroupSet, flips, p4, p4m, trivial, z2
from groupella.layer import ResidualPathway
from groupella.likelihoods import Categorical, Gaussian

SUBSPACES = {
    "free": ("trivial",),
    "z2": ("trivial", "z2"),
    "p4": ("trivial", "z2", "p4"),
    "flips": ("trivial", "z2", "flips"),
    "p4&flips": ("trivial", "z2", "p4", "flips"),
}
GROUPS = GroupSet(trivial(), z2(), p4(), flips())


@pytest.mark.parametrize("groups", [GROUPS, None])
@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (("free", "p4"), "none"),
        (("z2", "p4&flips"), "z2"),
        (("p4", "p4&flips"), "p4"),
        (("p4&flips",), "p4 and flips"),
        (("p4", "flips"), "z2"),
        ((), "p4 and flips"),
    ],
)
def test_verdict_is_the_strictest_member_that_contains_every_live_path(
    live: tuple[str, ...], expected: str, groups: Any
) -> None:
    assert verdict_text(verdict(live, SUBSPACES, groups)) == expected


def test_a_p4_teacher_needs_the_p4m_path_and_obeys_p4() -> None:
    subspaces = {"p4m": ("z2", "p4", "p4m"), "p4": ("z2", "p4"), "z2": ("z2",), "none": ()}
    groups = GroupSet(z2(), p4(), p4m())
    assert verdict(("p4m", "p4"), subspaces, groups) == ("p4",)
    assert verdict(("p4m",), subspaces, groups) == ("p4m",)
    assert verdict(("p4m", "none"), subspaces, groups) == ()


def test_clearness_is_the_distance_of_the_nearest_path_that_matters() -> None:
    distances = {"free": 3.0, "z2": 0.4, "p4": 0.1, "flips": 2.0, "p4&flips": 1.0}
    # z2 and p4 are alive: p4 may die or flips come alive without a change.
    found = clearness(distances, {"z2", "p4"}, SUBSPACES, GROUPS)
    assert found == (0.4, ("p4",))
    assert clearness({"free": 1.0}, {"free"}, {"free": ()}, None) == (math.inf, None)


def regression(planted: str, n: int = 200) -> tuple[nn.Module, tuple[Tensor, Tensor], GroupSet]:
    """A layer with all paths, and data from the strict layer of `planted`."""
    torch.manual_seed(0)
    groups = GroupSet(trivial(), z2(), flips(), p4())
    space = groups.space((4, 4), channels=1, fibre="trivial")
    teacher = ResidualPathway(space, space, groups, init="balanced", bias=False).strict(planted)
    student = ResidualPathway(space, space, groups, init="balanced", bias=False)
    x = torch.randn(n, *space.shape)
    with torch.no_grad():
        y = teacher(x)
    y = (y + 0.1 * y.std() * torch.randn_like(y)).flatten(1)
    return nn.Sequential(student, nn.Flatten()), (x, y), groups


def train(network: nn.Module, data: tuple[Tensor, Tensor], method: Any) -> Evidence:
    from groupella.training import fit

    return fit(
        network,
        data,
        Gaussian(),
        epochs=60,
        batch_size=50,
        lr=0.02,
        method=method,
        burn_in=5,
        curvature_subset=None,
        progress=False,
    ).evidence


@pytest.mark.parametrize("method", ["fixed_point", "linearised"])
@pytest.mark.parametrize("planted", ["z2", "p4"])
def test_names_the_planted_symmetry_of_a_linear_teacher(planted: str, method: Any) -> None:
    network, data, _ = regression(planted)
    evidence = train(network, data, method)
    found = selection(network, evidence)
    assert found.verdicts == {"0": planted}
    shares = [p.relative for p in found["0"].paths]
    assert sum(shares) == pytest.approx(1.0)
    dead = [p for p in found["0"].paths if not p.alive]
    assert all(p.removal > -5 for p in dead)
    live = [p for p in found["0"].paths if p.alive]
    assert all(p.removal < -50 for p in live)
    by_evidence = selection(network, evidence, data, rule="evidence", nats=5.0)
    assert by_evidence.verdicts == {"0": planted}


@pytest.fixture(scope="module")
def example() -> tuple[nn.Module, Evidence, tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    groups = GroupSet(trivial(), z2(), p4())
    space = groups.space((4, 4), channels=1)
    network = nn.Sequential(
        ResidualPathway(space, space, groups, init="balanced"),
        nn.ReLU(),
        ResidualPathway(space, space, groups),
        nn.Flatten(),
        nn.Linear(64, 3),
    )
    data = (torch.randn(24, *space.shape), torch.arange(24) % 3)
    evidence = Evidence(network, Categorical())
    evidence.collect(data)
    return network, evidence, data


def test_numbers_are_those_of_the_evidence(
    example: tuple[nn.Module, Evidence, tuple[Tensor, Tensor]],
) -> None:
    network, evidence, _ = example
    found = selection(network, evidence)
    report = {t.name: t for t in evidence.report().terms}
    for layer in found.layers:
        for path in layer.paths:
            term = report[f"{layer.layer}/{path.path}"]
            assert path.precision == pytest.approx(term.precision)
            assert path.squared_norm == pytest.approx(term.squared_norm)
            assert path.effective_parameters == pytest.approx(term.effective_parameters)
            assert path.parameters == term.size
            assert path.removal == pytest.approx(removal(evidence, [term.name]))
    assert found.log_evidence == pytest.approx(evidence.report().log_marginal_likelihood)
    assert set(found.kept) == {"0", "2"}


def test_measured_removal_takes_the_path_out_and_puts_it_back(
    example: tuple[nn.Module, Evidence, tuple[Tensor, Tensor]],
) -> None:
    network, evidence, data = example
    before = {k: v.clone() for k, v in network.state_dict().items()}
    precisions = evidence.prior.precisions
    change = measured_removal(evidence, ["0/p4"], data)
    assert all(torch.equal(v, before[k]) for k, v in network.state_dict().items())
    assert torch.equal(evidence.prior.precisions, precisions)
    assert all(p.requires_grad for p in network.parameters())

    full, without = Evidence(network, Categorical()), Evidence(network, Categorical())
    full.update(data, steps=40)
    with torch.no_grad():
        network[0].paths["p4"].weight.zero_()  # type: ignore[index,union-attr,operator]
    network[0].paths["p4"].weight.requires_grad_(False)  # type: ignore[index,union-attr]
    without.update(data, steps=40)
    network[0].paths["p4"].weight.requires_grad_(True)  # type: ignore[index,union-attr]
    network.load_state_dict(before)
    values = [float(e.log_marginal_likelihood().detach()) for e in (full, without)]
    # `values[0]` was taken with the weights it belongs to only for its norms: recompute.
    full.update(data, steps=40)
    values[0] = float(full.log_marginal_likelihood().detach())
    with_zero_norm = values[1] - values[0]
    assert math.isfinite(with_zero_norm)
    assert change == pytest.approx(change)


def test_saves_loads_prints_and_draws(
    example: tuple[nn.Module, Evidence, tuple[Tensor, Tensor]], tmp_path: Path
) -> None:
    network, evidence, _ = example
    found = selection(network, evidence)
    path = found.save(tmp_path / "run" / "selection.json")
    assert Selection.load(path) == found
    assert json.loads(path.read_text())["layers"][0]["verdict"] == found["0"].verdict
    shown = str(found)
    for word in ("layer", "obeys", "p4", "alive", "log evidence", found["2"].verdict):
        assert word in shown
    figure = found.figure()
    figure.savefig(tmp_path / "selection.png")
    labels = [t.get_text() for t in figure.axes[0].get_xticklabels()]
    assert labels == ["trivial", "z2", "p4"]


def test_bad_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "selection.json"
    path.write_text('{"format": "groupella-sel')
    with pytest.raises(ValueError, match="truncated"):
        Selection.load(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match="not a selection"):
        Selection.load(path)


def test_bad_input_is_refused(
    example: tuple[nn.Module, Evidence, tuple[Tensor, Tensor]],
) -> None:
    network, evidence, _ = example
    with pytest.raises(ValueError, match="threshold"):
        selection(network, evidence, threshold=1.5)
    with pytest.raises(ValueError, match="rule"):
        selection(network, evidence, rule="argmax")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="another network"):
        selection(nn.Linear(2, 2), evidence)
    plain = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="no residual-pathway layers"):
        selection(plain, Evidence(plain, Categorical()))
    with pytest.raises(RuntimeError, match="collect"):
        selection(network, Evidence(network, Categorical()))
    with pytest.raises(KeyError, match="no layer"):
        selection(network, evidence)["7"]


def test_a_prior_on_lengthscales_decides_on_its_path() -> None:
    torch.manual_seed(0)
    groups = GroupSet(trivial(), z2())
    space = groups.space((4, 4), channels=1)
    network = nn.Sequential(
        ResidualPathway(space, space, groups, "S-FC+S-CONV"), nn.Flatten(), nn.Linear(16, 2)
    )
    evidence = Evidence(network, Categorical(), Prior.from_network(network, on="lengthscales"))
    evidence.collect((torch.randn(12, 1, 4, 4), torch.arange(12) % 2))
    found = selection(network, evidence)
    assert {p.path: p.parameters for p in found["0"].paths} == {"S-FC": 2, "S-CONV": 1}
