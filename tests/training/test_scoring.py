"""Scores of predictions are log-likelihoods, whatever the targets; searches use all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Normal

from groupella.decide.claims import told_apart
from groupella.groups import GroupSet, permutations, trivial
from groupella.training import FindSettings, find_symmetry
from groupella.training._scoring import SCORINGS, Weighted

torch.manual_seed(0)
F, MOVED = torch.randn(40, 3).double(), torch.randn(5, 40, 3).double()
TARGETS = {
    "classes": Categorical(logits=3 * F).sample(),
    "regression": (F + 0.5 * torch.randn(40, 3)).double(),
    "multilabel": Bernoulli(logits=3 * F).sample().float(),
}


def density(kind: str, f: Tensor, calibration: Tensor) -> Tensor:
    """log p(y | f) of each datum, by torch.distributions."""
    y = TARGETS[kind]
    if kind == "classes":
        return Categorical(logits=f / calibration).log_prob(y)
    if kind == "regression":
        return Normal(f, calibration).log_prob(y).sum(1)
    return Bernoulli(logits=f / calibration).log_prob(y.double()).sum(1)


@pytest.mark.parametrize("kind", SCORINGS)
def test_scores_are_log_likelihoods(kind: str) -> None:
    scoring, y = SCORINGS[kind](3), TARGETS[kind]
    calibration = scoring.calibrated(F, y)
    assert torch.allclose(scoring.scores(F, y, calibration), density(kind, F, calibration))
    # No other calibration makes the targets more probable.
    best = density(kind, F, calibration).mean()
    for factor in (0.9, 1.1):
        assert density(kind, F, factor * calibration).mean() < best + 1e-9


@pytest.mark.parametrize("kind", SCORINGS)
def test_the_score_of_a_datum_is_the_sum_of_its_targets(kind: str) -> None:
    scoring, y = SCORINGS[kind](3), TARGETS[kind]
    calibration = scoring.calibrated(F, y)
    found = scoring.by_target(F, y, calibration)
    if kind == "classes":
        wanted = Categorical(logits=F / calibration).log_prob(y)[:, None]
    elif kind == "regression":
        wanted = Normal(F, calibration).log_prob(y)
    else:
        wanted = Bernoulli(logits=F / calibration).log_prob(y.double())
    assert torch.allclose(found, wanted)


@pytest.mark.parametrize("kind", SCORINGS)
def test_averages_are_of_probabilities_or_of_means(kind: str) -> None:
    scoring, y = SCORINGS[kind](3), TARGETS[kind]
    calibration = torch.tensor(1.5).double()
    mean = scoring.averaged(MOVED, calibration)
    found = scoring.scores(mean, y, scoring.neutral(calibration))
    if kind == "classes":
        p = (MOVED / 1.5).softmax(2).mean(0)
        wanted = p[torch.arange(40), y].log()
    elif kind == "multilabel":
        p = (MOVED / 1.5).sigmoid().mean(0)
        wanted = Bernoulli(probs=p).log_prob(y.double()).sum(1)
    else:
        wanted = Normal(MOVED.mean(0), 1.5).log_prob(y).sum(1)
    assert torch.allclose(found, wanted)


@pytest.mark.parametrize("kind", SCORINGS)
def test_motions_that_change_nothing_cost_nothing(kind: str) -> None:
    scoring, y = SCORINGS[kind](3), TARGETS[kind]
    calibration = scoring.calibrated(F, y)
    still = F.expand(4, -1, -1)
    mean = scoring.averaged(still, calibration)
    together = scoring.scores(mean, y, scoring.neutral(calibration))
    assert torch.allclose(together, scoring.scores(F, y, calibration))


@pytest.mark.parametrize("kind", SCORINGS)
def test_what_is_left_over_is_worth_half_its_square(kind: str) -> None:
    """The gain of the best multiple of what is added, by search; exact where scores are squares."""
    scoring, y = SCORINGS[kind](3), TARGETS[kind]
    calibration = scoring.calibrated(F, y)
    beyond = torch.randn(F.shape, generator=torch.Generator().manual_seed(1)).double()
    told = torch.nn.functional.one_hot(y, 3) if kind == "classes" else y
    beyond = beyond + 0.5 * (told - scoring.predictions(F / calibration))
    steps = torch.linspace(0, 2, 2001).double()
    plain = density(kind, F, calibration).mean()
    gains = [float(density(kind, F + b * beyond, calibration).mean() - plain) for b in steps]
    left = scoring.leftover(F, y, calibration, beyond)
    assert left.mean() > 0.1
    close = 1e-4 if kind == "regression" else 0.15
    assert float(left.mean().square() / 2) == pytest.approx(max(gains), rel=close)
    # A derivative datum by datum, whatever the size of what is added.
    tiny = density(kind, F + 1e-6 * beyond, calibration) - density(kind, F, calibration)
    assert torch.allclose(left / left.norm(), tiny / tiny.norm(), atol=1e-4)
    assert torch.allclose(scoring.leftover(F, y, calibration, 1e3 * beyond), left)
    assert not scoring.leftover(F, y, calibration, torch.zeros_like(F)).any()
    each = scoring.leftover_each(F, y, calibration, beyond)
    for k in range(3):
        alone = torch.zeros_like(F)
        alone[:, k] = 1e-6 * beyond[:, k]
        tiny = density(kind, F + alone, calibration) - density(kind, F, calibration)
        assert torch.allclose(1e6 * tiny, each[:, k], atol=1e-4)


@pytest.mark.parametrize("kind", SCORINGS)
def test_predictions_for_unusual_inputs_are_told_by_their_signature(kind: str) -> None:
    scoring = SCORINGS[kind](3)
    ordinary, others, weak = (
        scoring.signature(scale * torch.randn(300, 3).double()).numpy() for scale in (3, 3, 0.1)
    )
    assert told_apart(ordinary, others) < 0.6 < 0.8 < told_apart(ordinary, weak)


def test_chance_is_what_the_targets_alone_tell() -> None:
    for kind, y in TARGETS.items():
        scoring = SCORINGS[kind](3)
        scores, f = scoring.chance(y, y)
        if kind == "regression":
            assert torch.allclose(f, y.mean(0).expand(40, -1))
            wanted = Normal(y.mean(0), y.std(0, unbiased=False)).log_prob(y).sum(1)
        else:
            counts = (torch.eye(3)[y] if kind == "classes" else y).double().sum(0) + 1
            p = counts / (43 if kind == "classes" else 42)
            law = Categorical(p) if kind == "classes" else Bernoulli(p)
            wanted = law.log_prob(y if kind == "classes" else y.double()).reshape(40, -1).sum(1)
        assert torch.allclose(scores, wanted)


@pytest.mark.parametrize("kind", ["classes", "multilabel"])
def test_a_guess_that_is_always_right_is_certain(kind: str) -> None:
    """Held-out data of one class let no network know more than that class."""
    one_label = {"classes": torch.tensor([0] * 9 + [1]), "multilabel": torch.eye(10)[:, 8:]}[kind]
    scoring, held = SCORINGS[kind](2), one_label[:5]
    assert scoring.guess(one_label, held).tolist() == [0.0] * 5
    assert (scoring.guess(one_label, one_label) < 0).all()


def test_the_quality_of_real_predictions_is_r2() -> None:
    y = TARGETS["regression"]
    assert SCORINGS["regression"](3).quality(F, y) == pytest.approx(r2_score(y, F))


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_scores_of_real_targets_do_not_depend_on_their_units(factor: float) -> None:
    """They are densities of y/σ, and so are those that weights multiply and chance has."""
    y = TARGETS["regression"]
    plain, found = (SCORINGS["regression"](3, a) for a in (y, factor * y))
    size = y.var(0, unbiased=False).mean().sqrt()
    calibration = found.calibrated(factor * F, factor * y)
    wanted = Normal(F / size, calibration / factor / size).log_prob(y / size).sum(1)
    assert torch.allclose(found.scores(factor * F, factor * y, calibration), wanted)
    assert torch.allclose(found.chance(factor * y, factor * y)[0], plain.chance(y, y)[0])
    assert torch.allclose(found.signature(factor * F), plain.signature(F))
    start = found.likelihood().log_noise.exp()
    assert float(start) == pytest.approx(factor * float(size), rel=1e-4)
    ones = torch.ones(40)
    weighted = [
        Weighted(s).log_likelihood((u * F).float(), Weighted.pack(u * y, ones))
        for s, u in ((plain, 1.0), (found, factor))
    ]
    assert float(weighted[1]) == pytest.approx(float(weighted[0]), rel=1e-4)
    # An exact prediction has a smallest noise, also in small units.
    exact = found.calibrated(factor * y, factor * y)
    assert torch.allclose(exact, torch.full((3,), 1e-3 * factor).double() * size)


@pytest.mark.parametrize("kind", SCORINGS)
def test_weights_count_data_more_than_once(kind: str) -> None:
    scoring, y = SCORINGS[kind](3), TARGETS[kind]
    weights = torch.randint(0, 4, (40,))
    twice = torch.repeat_interleave(torch.arange(40), weights)
    found = Weighted(scoring).log_likelihood(F.float(), Weighted.pack(y, weights.float()))
    wanted = scoring.likelihood().log_likelihood(F[twice].float(), y[twice])
    assert float(found) == pytest.approx(float(wanted), rel=1e-4)


@pytest.mark.parametrize("obeys", [True, False])
@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_a_search_finds_the_symmetry_of_other_targets(task: str, obeys: bool) -> None:
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.standard_normal((400, 1, 5))).float()
    sign = torch.ones(5) if obeys else torch.tensor([1.0, 1, -1, -1, 0])
    y = (x @ sign) / 2 + 0.2 * torch.from_numpy(random.standard_normal((400, 1))).float()
    if task == "multilabel":
        y = torch.cat([y > 0, y > 0.5], 1).float()
    settings = FindSettings(epochs=12, width=8)
    groups = GroupSet(permutations(5), trivial())
    found = find_symmetry((x, y), groups, settings=settings, task=task, progress=False)
    assert found.verdict == ("s5" if obeys else "none")
    assert (found.consequences[1].r2 is not None) == (task == "regression")
    assert np.isfinite(found.selection((x, y)).log_evidence)


def test_a_search_with_weights_looks_at_what_counts() -> None:
    # The first half obeys nothing and has no weight; the second obeys permutations.
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.standard_normal((800, 1, 5))).float()
    y = torch.where(torch.arange(800) < 400, x[:, 0, 0] > 0, x[:, 0].sum(1) > 0).long()
    weights = 2.0 * (torch.arange(800) >= 400)
    settings = FindSettings(epochs=12, width=8)
    groups = GroupSet(permutations(5), trivial())
    found = find_symmetry((x, y), groups, settings=settings, weights=weights, progress=False)
    assert found.verdict == "s5"
