"""Verdicts, clearness, removal, and a selection's ways out."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from groupella.decide import Candidates, Rule, Selection, selection, verdict, verdict_text
from groupella.decide._verdict import clearness
from groupella.evidence import Evidence, Prior, measured_removal, prune, removal
from groupella.evidence.likelihoods import Categorical, Gaussian
from groupella.groups import GroupSet, flips, p4, p4m, trivial, z2
from groupella.nn.layer import ResidualPathway
from groupella.training import fit

SUBSPACES = {
    "free": ("trivial",),
    "z2": ("trivial", "z2"),
    "p4": ("trivial", "z2", "p4"),
    "flips": ("trivial", "z2", "flips"),
    "p4&flips": ("trivial", "z2", "p4", "flips"),
}
GROUPS = GroupSet(trivial(), z2(), p4(), flips())


CANDIDATES = [Candidates.of(GROUPS), Candidates.seen_in(SUBSPACES.values())]


@pytest.mark.parametrize("candidates", CANDIDATES, ids=["of the group set", "seen in paths"])
@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (("free", "p4"), "none"),
        (("z2", "p4&flips"), "z2"),
        (("p4", "p4&flips"), "p4"),
        (("p4&flips",), "p4 and flips"),
        (("p4", "flips"), "z2"),
        ((), "undecided"),
    ],
)
def test_verdict_is_the_strictest_member_that_contains_every_live_path(
    live: tuple[str, ...], expected: str, candidates: Candidates
) -> None:
    assert verdict_text(verdict([SUBSPACES[p] for p in live], candidates)) == expected


def test_a_p4_teacher_needs_the_p4m_path_and_obeys_p4() -> None:
    p4m_path, p4_path, free = ("z2", "p4", "p4m"), ("z2", "p4"), ()
    candidates = Candidates.of(GroupSet(z2(), p4(), p4m()))
    assert verdict([p4m_path, p4_path], candidates) == ("p4",)
    assert verdict([p4m_path], candidates) == ("p4m",)
    assert verdict([p4m_path, free], candidates) == ()


def test_the_network_obeys_what_its_layers_do_where_one_path_obeys_every_group() -> None:
    """With F-FC+GCONV:p4m no path tells z2, p4 and p4m apart; the group set does."""
    groups = GroupSet(z2(), p4(), p4m())
    space = groups.space((4, 4), channels=1)
    layer = ResidualPathway(space, space, groups, "F-FC+GCONV:p4m")
    network = nn.Sequential(layer, nn.Flatten(), nn.Linear(128, 2))
    evidence = Evidence(network, Categorical())
    evidence.collect((torch.randn(8, *space.shape), torch.arange(8) % 2))
    found = selection(network, evidence)
    paths = [replace(p, alive=p.path != "F-FC") for p in found["0"].paths]
    live = [p.members for p in paths if p.alive]
    assert live == [("z2", "p4", "p4m")]
    assert verdict_text(verdict(live, found.candidates)) == "p4m"
    layers = (replace(found["0"], paths=tuple(paths), verdict="p4m"),)
    assert replace(found, layers=layers).verdict == "p4m"


def test_no_live_path_is_undecided_for_layer_and_network() -> None:
    network, data, _ = regression("z2", n=20)
    evidence = Evidence(network, Gaussian())
    evidence.collect(data)
    found = selection(network, evidence, rule=Rule(nats=1e9))
    assert found.verdicts == {"0": "undecided"}
    assert found.verdict == "undecided"
    assert json.loads(json.dumps(found.as_dict()))["verdict"] == "undecided"


def test_clearness_is_the_distance_of_the_nearest_path_that_matters() -> None:
    distances = {"free": 3.0, "z2": 0.4, "p4": 0.1, "flips": 2.0, "p4&flips": 1.0}
    # z2 and p4 are alive: p4 may die or flips come alive without a change.
    found = clearness(distances, {"z2", "p4"}, SUBSPACES, CANDIDATES[0])
    assert found == (0.4, "p4")
    alone = clearness({"free": 1.0}, {"free"}, {"free": ()}, Candidates((), {}))
    assert alone == (1.0, "undecided")
    assert clearness({}, {"free"}, {"free": ()}, Candidates((), {})) == (math.inf, None)


def regression(planted: str, n: int = 200) -> tuple[nn.Module, tuple[Tensor, Tensor], GroupSet]:
    """A layer with all paths, and data from the strict layer of `planted`."""
    torch.manual_seed(0)
    groups = GroupSet(trivial(), z2(), flips())
    space = groups.space((4, 4), channels=1, fibre="trivial")
    teacher = ResidualPathway(space, space, groups, init="balanced", bias=False).strict(planted)
    student = ResidualPathway(space, space, groups, init="balanced", bias=False)
    x = torch.randn(n, *space.shape)
    with torch.no_grad():
        y = teacher(x)
    y = (y + 0.1 * y.std() * torch.randn_like(y)).flatten(1)
    return nn.Sequential(student, nn.Flatten()), (x, y), groups


def train(network: nn.Module, data: tuple[Tensor, Tensor], method: Any, **options: Any) -> Evidence:
    return fit(
        network,
        data,
        Gaussian(),
        epochs=40,
        batch_size=50,
        lr=0.02,
        method=method,
        burn_in=5,
        curvature_subset=None,
        progress=False,
        **options,
    ).evidence


@pytest.mark.parametrize("method", ["fixed_point", "linearised"])
@pytest.mark.parametrize("planted", ["z2", "flips"])
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
    assert selection(network, evidence, data).verdicts == {"0": planted}


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
            weights = f"{layer.layer}/{path.path}"
            names = [weights, *(n for n in report if n == f"{weights}/offset")]
            terms = [report[name] for name in names]
            assert path.precision == pytest.approx(terms[0].precision)
            assert path.squared_norm == pytest.approx(sum(t.squared_norm for t in terms))
            gamma = sum(t.effective_parameters for t in terms)
            assert path.effective_parameters == pytest.approx(gamma)
            assert path.parameters == sum(t.size for t in terms)
            alone = [removal(evidence, [name]) for name in names]
            losses = [change for change in alone if change < 0]
            assert path.removal == pytest.approx(sum(losses or alone))
    assert found.log_evidence == pytest.approx(evidence.report().log_marginal_likelihood)
    assert set(found.kept) == {"0", "2"}


@pytest.mark.parametrize(
    ("rule", "least", "share"),
    [
        (None, 5.0, 0.0),
        (Rule(nats=0.0), 0.0, 0.0),
        (Rule(nats=50.0), 50.0, 0.0),
        (Rule("both", share=0.2), 5.0, 0.2),
    ],
)
def test_a_path_lives_by_what_its_removal_costs(
    example: tuple[nn.Module, Evidence, tuple[Tensor, Tensor]],
    rule: Rule | None,
    least: float,
    share: float,
) -> None:
    network, evidence, _ = example
    found = selection(network, evidence, rule=rule)
    for layer in found.layers:
        for path in layer.paths:
            assert path.alive == (-path.removal >= least and path.relative >= share)
    assert found.rule == (rule or Rule())
    assert f"{least:g} nats" in " ".join(str(found).split())
    assert Selection.from_dict(found.as_dict()) == found


def test_a_path_may_live_by_its_effective_parameters(
    example: tuple[nn.Module, Evidence, tuple[Tensor, Tensor]],
) -> None:
    network, evidence, _ = example
    found = selection(network, evidence, rule=Rule("gamma", share=0.2))
    paths = [p for layer in found.layers for p in layer.paths]
    assert [p.alive for p in paths] == [p.relative >= 0.2 for p in paths]
    assert any(p.alive for p in paths)


def test_measured_removal_is_the_difference_of_two_evidences(
    example: tuple[nn.Module, Evidence, tuple[Tensor, Tensor]],
) -> None:
    network, evidence, data = example
    before = {k: v.clone() for k, v in network.state_dict().items()}
    precisions = evidence.prior.precisions
    change = measured_removal(evidence, ["0/p4"], data)
    assert all(torch.equal(v, before[k]) for k, v in network.state_dict().items())
    assert torch.equal(evidence.prior.precisions, precisions)
    assert all(p.requires_grad for p in network.parameters())

    full, less = copy.deepcopy(network), copy.deepcopy(network)
    path = dict(less.named_parameters())["0.paths.p4.weight"]
    path.requires_grad_(False).zero_()
    values = [Evidence(net, Categorical()).update(data, steps=40) for net in (full, less)]
    assert change == pytest.approx(values[1] - values[0], abs=1e-6)


def test_removal_of_a_factored_path_counts_its_fit_once() -> None:
    """Both factors see all of the path's effect: compare with the evidence really measured."""
    torch.manual_seed(0)
    groups = GroupSet(trivial(), z2())
    space = groups.space((3, 3), channels=1)
    layer = ResidualPathway(space, space, groups, "F-FC+CONV", init="balanced", bias=False)
    x = torch.randn(300, 1, 3, 3)
    with torch.no_grad():
        y = layer(x).flatten(1) + 0.5 * torch.randn(300, 9)
    network = nn.Sequential(layer, nn.Flatten())
    likelihood = Gaussian(0.5, learned=False)
    evidence = Evidence(network, likelihood)
    result = fit(network, (x, y), likelihood, method="map", epochs=60, progress=False)
    result.collect()
    closed = removal(result.evidence, ["0/F-FC"])
    less = copy.deepcopy(network)
    for parameter in less[0].paths["F-FC"].parameters():  # type: ignore[union-attr,index]
        parameter.requires_grad_(False).zero_()
    # The rest adapts: training the reduced network gives the true difference.
    rest = fit(less, (x, y), likelihood, method="map", epochs=60, progress=False)
    true = rest.log_evidence - result.log_evidence
    assert evidence.network is network
    assert true < -100
    assert closed == pytest.approx(true, rel=0.25)


def test_what_was_not_measured_says_so(tmp_path: Path) -> None:
    space = GROUPS.space((3, 3), channels=1)
    network = nn.Sequential(ResidualPathway(space, space, GROUPS))
    nothing = Selection.unmeasured(network, 10)
    assert not nothing.is_measured
    assert nothing.verdicts == {"0": "not measured"}
    assert "not measured" in str(nothing)
    assert "nan" not in str(nothing)
    again = Selection.load(nothing.save(tmp_path / "selection.json"))
    assert math.isnan(again.log_evidence)
    assert again.layers == nothing.layers
    with pytest.raises(ValueError, match="nothing was measured"):
        _ = nothing.kept


def test_prune_takes_out_what_fits_noise_and_keeps_the_rest() -> None:
    network, data, _ = regression("flips")
    evidence = train(network, data, "fixed_point", prune_from=None)
    before = evidence.log_marginal_likelihood().detach()
    assert removal(evidence, ["0/trivial"]) > 5
    gone = prune(evidence)
    assert "0/trivial" in gone
    assert "0/flips" not in gone
    parameters = dict(network.named_parameters())
    for name in evidence.prior.groups[evidence.prior.index("0/trivial")].parameters:
        assert not parameters[name].requires_grad
        assert float(parameters[name].abs().max()) == 0
    evidence.collect(data)
    assert evidence.log_marginal_likelihood().detach() > before
    assert prune(evidence) == []


def test_saves_loads_prints_and_draws(
    example: tuple[nn.Module, Evidence, tuple[Tensor, Tensor]], tmp_path: Path
) -> None:
    network, evidence, _ = example
    found = selection(network, evidence, rule=Rule("gamma"))
    path = found.save(tmp_path / "run" / "selection.json")
    assert Selection.load(path) == found
    assert json.loads(path.read_text())["layers"][0]["verdict"] == found["0"].verdict
    shown = str(found)
    for word in ("layer", "obeys", "p4", "alive", "log evidence", found["2"].verdict):
        assert word in shown
    figure = found.figure()
    figure.savefig(tmp_path / "selection.png")
    labels = [t.get_text() for t in figure.axes[0].get_xticklabels()]
    assert labels == ["none", "z2", "p4"]


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
    for bad in ({"share": 1.5}, {"by": "argmax"}, {"nats": -1.0}, {"settled_nats": math.inf}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Rule(**bad)  # type: ignore[arg-type]
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
    # Two lengthscales and the offset of 16 sites.
    assert {p.path: p.parameters for p in found["0"].paths} == {"S-FC": 2 + 16, "S-CONV": 1}
