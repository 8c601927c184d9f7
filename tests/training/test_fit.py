"""fit: learns, reports, stops when it should, and refuses what it cannot use."""

from __future__ import annotations

import builtins
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from groupella.curvature import KroneckerBlock, curvature, mc
from groupella.evidence import Evidence, JitterWarning, NonFiniteError, Prior
from groupella.evidence import _spectrum as spectrum_module
from groupella.evidence.likelihoods import Bernoulli, Categorical, Gaussian
from groupella.groups import GroupSet, p4, trivial, z2
from groupella.nn.layer import ResidualPathway
from groupella.nn.paths import SparseFC, SparseGroupConv
from groupella.training import (
    CheckpointError,
    CurvatureTooLargeError,
    EpochRecord,
    Settings,
    curvature_cost,
    fit,
    load_checkpoint,
)
from groupella.training._weights import WeightStep


def network(seed: int = 0, dropout: float = 0.1) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3))


def data(n: int = 90) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(n, 4, generator=generator)
    return x, x[:, :3].argmax(1)


QUICK = Settings(epochs=4, batch_size=32, lr=0.02, burn_in=2, curvature_subset=40)


def test_a_network_with_norms_learns_all_its_precisions() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.PReLU(), nn.LayerNorm(8), nn.Linear(8, 3)
    )
    result = fit(net, data(), settings=QUICK, epochs=8, progress=False)
    assert result.history[-1].accuracy > 0.7
    names = ["0", "0/bias", "1", "1/bias", "2", "3", "3/bias", "4", "4/bias"]
    assert list(result.prior.names) == names
    assert all(result.prior.precision(n) != 1.0 for n in names)


def test_ignored_parameters_are_trained_without_a_prior() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    result = fit(net, data(), settings=QUICK, ignore=["1.*"], progress=False)
    assert "1" not in result.prior
    assert "1.weight" not in result.evidence.blocks
    assert not torch.equal(net[1].weight, torch.ones(8))


def test_a_parameter_without_curvature_is_refused_before_training() -> None:
    net = network()
    net.register_parameter("spare", nn.Parameter(torch.zeros(2)))
    before = net[0].weight.detach().clone()
    with pytest.raises(ValueError, match=r"do not depend on the parameter\(s\) spare"):
        fit(net, data(), settings=QUICK, progress=False)
    assert torch.equal(net[0].weight, before)
    with pytest.raises(ValueError, match="no parameter is called 'spear'"):
        fit(net, data(), settings=QUICK, ignore=["spear"], progress=False)
    fit(net, data(), settings=QUICK, ignore=["spare"], progress=False)
    assert torch.equal(net.spare, torch.zeros(2))


def test_learns_and_records() -> None:
    x, y = data()
    net = network()
    result = fit(net, (x, y), settings=QUICK, epochs=12, validation=data(30), progress=False)
    assert len(result.history) == 12
    assert result.stopped == "finished"
    last = result.history[-1]
    assert last.accuracy is not None
    assert last.accuracy > 0.8
    assert last.validation_accuracy is not None
    assert result.history.column("log_evidence")[:2] == [None, result.history[1].log_evidence]
    assert len(result.history.evidences) == 11
    assert set(last.precisions or {}) == {"0", "0/bias", "3", "3/bias"}
    assert result.log_evidence < 0
    assert net.training
    assert all(p.grad is None for p in net.parameters())


def test_updates_measure_the_fit_on_a_part_and_learn_the_same() -> None:
    seen: list[int] = []

    class Counting(Categorical):
        def log_likelihood(self, f: Tensor, y: Tensor) -> Tensor:
            if not torch.is_grad_enabled():
                seen.append(len(f))
            return super().log_likelihood(f, y)

    nets = [network(dropout=0.0), network(dropout=0.0)]
    few, every = (
        fit(net, data(), Counting(), QUICK, fit_subset=part, progress=False)
        for net, part in zip(nets, (30, None), strict=True)
    )
    assert seen == [30, 30, 30, 90, 90, 90, 90, 90]  # updates after epochs 2, 3, 4, and at the end
    for one, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(few.prior.precisions, every.prior.precisions)
    assert few.log_evidence == every.log_evidence
    values = [r.history.column("log_evidence") for r in (few, every)]
    assert values[0][-1] != values[1][-1]
    assert values[0][-1] == pytest.approx(values[1][-1], rel=0.5)


def test_noise_is_learned_from_a_part_of_the_data() -> None:
    torch.manual_seed(0)
    x = torch.randn(2000, 3)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.3 * torch.randn(2000, 1)
    result = fit(
        nn.Linear(3, 1),
        (x, y),
        Gaussian(),
        QUICK,
        epochs=12,
        fit_subset=500,
        lr=0.05,
        progress=False,
    )
    assert result.evidence.noise == pytest.approx(0.3, rel=0.1)


def test_many_classes_are_sampled_by_default_and_few_are_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modes = []

    def watched(*args: Any, mode: Any, **options: Any) -> Any:
        modes.append(mode)
        return curvature(*args, mode=mode, **options)

    monkeypatch.setattr("groupella.evidence._evidence.curvature", watched)
    for classes, samples in ((20, "auto"), (21, "auto"), (21, None), (2, 3)):
        x = torch.randn(60, 4)
        fit(
            nn.Linear(4, classes),
            (x, torch.arange(60) % classes),
            epochs=1,
            curvature_samples=samples,
            progress=False,
        )
    found = [mode.m if isinstance(mode, mc) else None for mode in modes]
    assert found == [None, None, 8, 8, None, None, 3, 3]  # in an update, and at the end


def test_map_keeps_precisions_and_needs_no_updates() -> None:
    result = fit(network(), data(), settings=QUICK, method="map", progress=False)
    assert result.prior.precisions.tolist() == [1.0] * 4
    assert result.history.evidences == []
    assert math.isfinite(result.log_evidence)


def test_map_takes_curvature_only_when_it_is_asked_for() -> None:
    net = network()
    result = fit(net, data(), settings=QUICK, method="map", progress=False)
    assert not result.evidence.is_observed
    value = result.log_evidence
    assert result.evidence.is_observed
    evidence = Evidence(net, Categorical())
    evidence.collect(data())
    # Another subset of the data, the same weights and precisions.
    assert value == pytest.approx(float(evidence.log_marginal_likelihood().detach()), rel=0.1)


def test_curvature_that_is_too_large_is_refused_before_it_is_allocated() -> None:
    net = nn.Sequential(nn.Linear(4, 5000), nn.Tanh(), nn.Linear(5000, 3))
    x, y = data(20)
    result = fit(net, (x, y), method="map", epochs=1, batch_size=20, progress=False)
    with pytest.raises(CurvatureTooLargeError, match=r"5000 rows \(that of 0\.weight\)"):
        _ = result.log_evidence
    assert not result.evidence.is_observed


def test_the_cost_of_curvature_is_known_beforehand() -> None:
    groups = GroupSet(trivial(), z2(), p4())
    space = groups.space((4, 4), channels=2)
    layer = ResidualPathway(space, space, groups, "FC+F-FC+CONV+GCONV:p4+S-CONV+S-GCONV")
    net = nn.Sequential(layer, nn.Conv2d(8, 3, 3), nn.Flatten(), nn.Linear(12, 3))
    x = torch.randn(5, *space.shape)
    blocks = curvature(net, Categorical(), (x, torch.zeros(5, dtype=torch.long)), sharing="block")
    weights = [b for name, b in blocks.items() if not name.endswith("omega")]
    factors = [f for b in weights for f in (b.input_factors, b.output_factors)]
    cost = curvature_cost(net)
    assert cost.rows == max(f.shape[1] for f in factors) == 128
    assert cost.parameter == "0.paths.FC.weight"
    # Biases of stock layers, a few numbers, are left out.
    assert cost.bytes == pytest.approx(sum(4 * f.numel() for f in factors), rel=0.01)


def test_the_same_seed_gives_the_same_bits_and_leaves_the_callers_random_state() -> None:
    state = torch.get_rng_state()
    first, second = network(), network()
    torch.set_rng_state(state)
    fit(first, data(), settings=QUICK, progress=False)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    fit(second, data(), settings=QUICK, progress=False)
    for p, q in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("prior_step", ["proximal", "gradient"])
def test_training_ends_at_the_map_of_ridge_regression(prior_step: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    y = x @ torch.tensor([[1.0], [-1.0], [0.2]], dtype=torch.float64)
    model = nn.Linear(3, 1, bias=False).double()
    fit(
        model,
        (x, y),
        Gaussian(1.0, learned=False).double(),
        prior=Prior.from_network(model, precisions=10.0),
        method="map",
        prior_step=prior_step,
        epochs=300,
        batch_size=50,
        lr=0.05,
        progress=False,
    )
    exact = torch.linalg.solve(x.T @ x + 10.0 * torch.eye(3, dtype=torch.float64), x.T @ y)
    torch.testing.assert_close(model.weight.detach().T, exact, rtol=0, atol=1e-4)


def test_gaussian_noise_is_learned() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 4, generator=generator)
    y = x[:, :1] + 0.1 * torch.randn(200, 1, generator=generator)
    likelihood = Gaussian(1.0)
    result = fit(
        nn.Linear(4, 1), (x, y), likelihood, settings=QUICK, epochs=40, lr=0.05, progress=False
    )
    assert float(likelihood.noise.detach()) == pytest.approx(0.1, rel=0.2)
    assert result.history[-1].accuracy is None
    assert result.history[-1].noise == pytest.approx(float(likelihood.noise.detach()))


def test_bernoulli_and_datasets_and_augmentation() -> None:
    x, _ = data()
    labels = (x[:, :2] > 0).float()

    class Pairs:
        def __len__(self) -> int:
            return len(x)

        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            return x[index], labels[index]

    seen = []

    def augment(batch: Tensor, generator: torch.Generator) -> Tensor:
        seen.append(len(batch))
        return batch + 0.01 * torch.randn(batch.shape, generator=generator)

    result = fit(
        nn.Linear(4, 2),
        Pairs(),
        Bernoulli(),
        settings=QUICK,
        epochs=10,
        lr=0.1,
        augment=augment,
        progress=False,
    )
    assert result.history[-1].accuracy is not None
    assert result.history[-1].accuracy > 0.9
    assert len(seen) == 30


class Stretched(nn.Module):
    """A hyperparameter ρ inside the network, learned by the evidence."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.rho = nn.Parameter(torch.tensor(0.2))
        self.first = nn.Linear(4, 6)
        self.last = nn.Linear(6, 3)
        self.hyperparameters = ("rho",)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.tanh(self.first(torch.tanh(self.rho.exp() * x))))
        return out


@pytest.mark.parametrize("mode", ["evidence", "map"])
def test_hyperparameters_inside_the_network_are_learned(mode: Any) -> None:
    net = Stretched()
    fit(net, data(), settings=QUICK, network_hyper=mode, progress=False)
    assert float(net.rho.detach()) != pytest.approx(0.2)


def test_stops_early_when_the_evidence_stops_rising() -> None:
    result = fit(
        network(), data(), settings=QUICK, epochs=50, patience=2, min_gain=10.0, progress=False
    )
    assert result.stopped == "early"
    assert len(result.history) == 4


def test_on_epoch_sees_every_epoch_and_can_stop() -> None:
    seen: list[int] = []

    def watch(record: EpochRecord, evidence: Evidence) -> bool:
        seen.append(record.epoch)
        return record.epoch == 1

    result = fit(network(), data(), settings=QUICK, on_epoch=watch, progress=False)
    assert seen == [0, 1]
    assert result.stopped == "early"


def test_progress_bar_shows_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    fit(network(), data(), settings=QUICK, epochs=2)
    shown = capsys.readouterr().out
    for word in ("epoch 2/2", "loss", "accuracy", "evidence"):
        assert word in shown


def test_checkpoints_and_history_are_written(tmp_path: Path) -> None:
    result = fit(network(), data(), settings=QUICK, directory=tmp_path / "run", progress=False)
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert names == {"last.safetensors", "best.safetensors", "history.json"}
    history = json.loads((tmp_path / "run" / "history.json").read_text())
    assert [entry["epoch"] for entry in history] == [0, 1, 2, 3]
    best = load_checkpoint(tmp_path / "run" / "best.safetensors").state
    assert best["counters"]["best"] == max(result.history.evidences)


@pytest.mark.parametrize("clip", [None, 1e-3])
def test_clipping_limits_the_gradient_of_the_data_term(
    clip: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    norms = []
    true = WeightStep.step

    def watched(step: WeightStep, lr: float, precisions: Any) -> None:
        norms.append(float(torch.cat([g.flatten() for g in step.gradients()]).norm()))
        true(step, lr, precisions)

    monkeypatch.setattr(WeightStep, "step", watched)
    fit(network(), data(), settings=QUICK, clip=clip, progress=False)
    assert (max(norms) <= 1.01e-3) == (clip is not None)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x, y: (x, torch.where(y == 2, 3, y)), "label 3 of example .* 0 … 2"),
        (lambda x, y: (x, y - 1), "label -1"),
        (lambda x, y: (x.index_fill(0, torch.tensor([7]), float("nan")), y), "example 7"),
        (lambda x, y: (x[:0], y[:0]), "empty"),
        (lambda x, y: (x, y[:-1]), "first axes must agree"),
        (lambda x, y: (x, y[:, None]), r"shape \(n,\)"),
    ],
)
def test_bad_data_are_refused_before_training(spoil: Any, message: str) -> None:
    net = network()
    before = [p.detach().clone() for p in net.parameters()]
    with pytest.raises(ValueError, match=message):
        fit(net, spoil(*data()), settings=QUICK, progress=False)
    assert all(torch.equal(p, q) for p, q in zip(before, net.parameters(), strict=True))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x, y: (x, y.float()), "labels must be integers"),
        (lambda x, y: (x.double(), y), "float64"),
        (lambda x, y: iter([(x, y)]), "map-style dataset"),
        (lambda x, y: (x, "ab"), "arrays of numbers"),
    ],
)
def test_data_of_the_wrong_kind_are_refused(spoil: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        fit(network(), spoil(*data()), settings=QUICK, progress=False)


def test_bad_labels_in_a_dataset_are_refused_when_they_come() -> None:
    x, y = data()
    y[50] = 9
    pairs = torch.utils.data.TensorDataset(x, y)
    with pytest.raises(ValueError, match="label 9 of example 50"):
        fit(network(), pairs, settings=QUICK, progress=False)


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 0},
        {"lr": -1.0},
        {"method": "magic"},
        {"clip": 0.0},
        {"burn_in": -1},
        {"prior_step": "none"},
        {"curvature_samples": 0},
        {"curvature_samples": "many"},
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any]) -> None:
    (name,) = change
    with pytest.raises(ValueError, match=name):
        Settings(**change)
    with pytest.raises(TypeError, match="no setting"):
        fit(network(), data(), epoch=3)


class Explodes(nn.Module):
    """Gives infinity from its `after`-th call on, in training."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.calls, self.after = 0, after

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        return x / 0.0 if self.calls > self.after else x


def test_a_loss_that_is_not_finite_names_the_layer_and_keeps_the_checkpoint(
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), Explodes(after=5), nn.Linear(8, 3))
    with pytest.raises(NonFiniteError, match="layer 1 is the first"):
        fit(net, data(), settings=QUICK, directory=tmp_path, progress=False)
    kept = load_checkpoint(tmp_path / "last.safetensors")
    assert kept.state["counters"]["epoch"] == 1
    assert all(torch.isfinite(t).all() for t in kept.section("network").values())


def test_curvature_that_is_not_finite_names_the_parameter() -> None:
    net = network()
    evidence = Evidence(net, Categorical())
    x, y = data()
    with pytest.raises(NonFiniteError, match=r"0\.weight"):
        evidence.collect((x.index_fill(0, torch.tensor([3]), float("inf")), y))


@pytest.fixture
def _failing_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    calls = []
    true = KroneckerBlock.eigenvalues

    def eigenvalues(block: Any) -> Tensor:
        calls.append(1)
        if len(calls) == 1:
            raise spectrum_module.LinAlgError("did not converge")
        return true(block)

    monkeypatch.setattr(KroneckerBlock, "eigenvalues", eigenvalues)
    yield
    monkeypatch.undo()


@pytest.mark.usefixtures("_failing_once")
def test_a_failed_decomposition_is_repeated_with_jitter_and_reported() -> None:
    with pytest.warns(JitterWarning, match=r"0\.weight failed"):
        result = fit(network(), data(), settings=QUICK, progress=False)
    remarks = [r for record in result.history for r in record.remarks]
    assert len(remarks) == 1
    assert "jitter" in remarks[0]


def test_a_decomposition_that_fails_twice_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(block: Any) -> Tensor:
        raise spectrum_module.LinAlgError("did not converge")

    monkeypatch.setattr(KroneckerBlock, "eigenvalues", fail)
    with (
        pytest.warns(JitterWarning),
        pytest.raises(NonFiniteError, match=r"0\.weight failed, with jitter too"),
    ):
        fit(network(), data(), settings=QUICK, progress=False)


def test_tensorboard_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    true = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("torch.utils.tensorboard"):
            raise ImportError(name)
        return true(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        fit(network(), data(), settings=QUICK, tensorboard=tmp_path, progress=False)


# Tensorboard's own imports warn, differently from version to version.
@pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")
def test_tensorboard_itself_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    result = fit(network(), data(), settings=QUICK, tensorboard=tmp_path, progress=False)
    events = reader.EventAccumulator(str(tmp_path))
    events.Reload()
    written = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    objectives = [r.objective for r in result.history]
    assert [e.step for e in written["objective"]] == [0, 1, 2, 3]
    assert [e.value for e in written["objective"]] == pytest.approx(objectives)
    n = len(data()[0])
    evidences = [r.log_evidence / n for r in result.history if r.log_evidence is not None]
    assert [e.value for e in written["evidence per datum"]] == pytest.approx(evidences)


def test_tensorboard_gets_the_scalars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written: dict[str, list[int]] = {}

    class Writer:
        def __init__(self, directory: str, purge_step: int) -> None:
            assert directory == str(tmp_path)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.setdefault(name, []).append(step)

        def flush(self) -> None:
            return

        def close(self) -> None:
            written["closed"] = []

    stand_in = ModuleType("torch.utils.tensorboard")
    stand_in.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", stand_in)
    fit(network(), data(), settings=QUICK, tensorboard=tmp_path, progress=False)
    assert written["objective"] == [0, 1, 2, 3]
    assert written["evidence per datum"] == [1, 2, 3]
    assert written["precision/0/bias"] == [0, 1, 2, 3]
    assert "closed" in written


def test_settings_of_the_paper() -> None:
    paper = Settings.paper(epochs=20)
    assert (paper.lr, paper.hyper_lr, paper.batch_size) == (0.01, 0.1, 128)
    due = [e for e in range(20) if paper.updates_after(e)]
    assert due == [9, 14, 19]


def test_resume_false_refuses_a_directory_with_a_run(tmp_path: Path) -> None:
    fit(network(), data(), settings=QUICK, epochs=1, directory=tmp_path, progress=False)
    before = (tmp_path / "last.safetensors").read_bytes()
    with pytest.raises(FileExistsError, match="already holds a run"):
        fit(
            network(),
            data(),
            settings=QUICK,
            epochs=1,
            directory=tmp_path,
            resume=False,
            progress=False,
        )
    assert (tmp_path / "last.safetensors").read_bytes() == before


def test_checkpoints_of_other_runs_are_refused_and_kept(tmp_path: Path) -> None:
    def again(net: nn.Module, pairs: Any, **changes: Any) -> None:
        fit(net, pairs, settings=QUICK, directory=tmp_path, progress=False, **changes)

    again(network(), data())
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    wider = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 3))
    with pytest.raises(CheckpointError, match="another architecture"):
        again(wider, data())
    with pytest.raises(CheckpointError, match=r"lr=0\.02 there, 0\.5 here"):
        again(network(), data(), lr=0.5)
    with pytest.raises(CheckpointError, match="other data"):
        again(network(), (data()[0] + 1, data()[1]))
    (tmp_path / "last.safetensors").write_bytes(before["last.safetensors"][:-7])
    with pytest.raises(CheckpointError, match="truncated"):
        again(network(), data())
    (tmp_path / "last.safetensors").write_bytes(before["last.safetensors"])
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_lengthscales_and_anchors_on_the_group_learn_from_the_evidence() -> None:
    torch.manual_seed(0)
    groups = GroupSet(trivial(), z2(), p4())
    space = groups.space((4, 4), channels=1)
    layer = ResidualPathway(
        space,
        space,
        groups,
        {
            "S-FC": SparseFC(space, space, over="group", learn_positions=True),
            "S-GCONV": SparseGroupConv(space, space, p4(), learn_positions=True),
        },
    )
    net = nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.Linear(64, 3))
    hyper = {n: p for n, p in net.named_parameters() if "omega" in n or "positions" in n}
    before = {name: parameter.detach().clone() for name, parameter in hyper.items()}
    x = torch.randn(40, *space.shape)
    result = fit(net, (x, torch.arange(40) % 3), settings=QUICK, progress=False)
    assert set(result.prior.hyperparameters) == set(hyper)
    assert len(hyper) == 6
    for name, parameter in hyper.items():
        assert bool(parameter.isfinite().all())
        assert not torch.equal(parameter, before[name]), name
