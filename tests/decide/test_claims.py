"""`judge` on made-up scores of held-out data, whose right answer is known."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from groupella.decide import Candidates
from groupella.decide._differences import largest_z
from groupella.decide.claims import FREE, Claims, Comparison, Difference, Judgement, told_apart
from groupella.decide.claims import Tested as Scores

ONE = Candidates(("z2",), {"z2": ()})
CHAIN = Candidates(("z2", "p4"), {"z2": (), "p4": ("z2",)})
CHANCE = -math.log(10)
KNOWN = 1.8  # nats that the free network has learned
MARGIN = Claims().tolerance * KNOWN

Answer = tuple[Judgement, Mapping[str, Any]]


class World:
    """Held-out scores: every difference has a given mean and a standard deviation per datum."""

    def __init__(self, n: int = 400, seed: int = 0, noise: float = 0.3, classes: int = 4) -> None:
        self.rng = np.random.default_rng(seed)
        self.n, self.noise = n, noise
        self.classes = np.arange(n) % classes
        self.chance = np.full(n, CHANCE)
        self.free = CHANCE + KNOWN + self.jitter(0.5)

    def jitter(self, scale: float) -> Any:
        """Noise whose mean is exactly zero."""
        values = self.rng.standard_normal(self.n)
        return scale * (values - values.mean())

    def random(self, mean: float) -> Any:
        """A difference whose mean is only expected to be `mean`."""
        return mean + self.noise * self.rng.standard_normal(self.n)

    def gap(self, mean: float, noise: float | None = None) -> Any:
        return mean + self.jitter(self.noise if noise is None else noise)

    def judge(self, tested: Mapping[str, Scores], candidates: Candidates = ONE) -> Answer:
        found = Comparison(tested, self.chance, self.classes, candidates).judgement
        return found, {f.candidate: f for f in found.findings}

    def one(
        self,
        averaging: float,
        imposing: float,
        *,
        told: float = 0.5,
        noise: tuple[float, float] = (0.3, 0.3),
    ) -> Answer:
        """The answer about z2, whose averaging and imposing gain so many nats."""
        free = Scores(self.free, {"z2": self.free + self.gap(averaging, noise[0])}, {"z2": told})
        z2 = self.free + self.gap(imposing, noise[1])
        return self.judge({FREE: free, "z2": Scores(z2, {"z2": z2}, {"z2": 0.5})})


@pytest.mark.parametrize(
    ("averaging", "imposing", "told", "outcome", "verdict"),
    [
        pytest.param(0.05, 0.1, 0.5, "holds", "z2", id="both help"),
        pytest.param(0.0, 0.0, 0.5, "holds", "z2", id="both cost nothing"),
        pytest.param(0.1, 0.1, 0.9, "holds", "z2", id="averaging helps on unfamiliar data"),
        pytest.param(-0.5, -0.5, 0.5, "rejected", "none", id="both cost"),
        pytest.param(-0.5, 0.5, 0.5, "rejected", "none", id="averaging costs, imposing helps"),
        pytest.param(0.1, -0.5, 0.5, "open", "undecided", id="averaging helps, imposing costs"),
        pytest.param(-MARGIN, -0.5, 0.5, "rejected", "none", id="averaging is open"),
        pytest.param(-0.5, 0.2, 0.9, "holds", "z2", id="unfamiliar data, imposing helps"),
        pytest.param(-0.5, -0.5, 0.9, "rejected", "none", id="unfamiliar data, imposing costs"),
        pytest.param(-0.5, -0.06, 0.9, "open", "undecided", id="unfamiliar data, open"),
        pytest.param(-MARGIN, -0.03, 0.5, "open", "undecided", id="both are open"),
    ],
)
def test_what_averaging_and_imposing_say(
    averaging: float, imposing: float, told: float, outcome: str, verdict: str
) -> None:
    judgement, found = World().one(averaging, imposing, told=told)
    finding = found["z2"]
    assert finding.outcome == outcome
    assert judgement.verdict == verdict
    assert finding.against == FREE
    assert finding.margin == pytest.approx(MARGIN)
    assert finding.averaging.mean == pytest.approx(averaging)
    assert finding.imposing.mean == pytest.approx(imposing)
    assert judgement.reason
    if outcome == "holds":
        assert finding.probability > 0.99
    if outcome == "rejected":
        assert finding.probability < 0.01
        assert judgement.probability > 0.99


def test_what_averaging_costs_on_unfamiliar_data_does_not_count_against_a_candidate() -> None:
    judgement, found = World().one(-0.5, -0.06, told=0.9)
    assert judgement.verdict == "undecided"
    assert found["z2"].probability == 0.5
    _, familiar = World().one(-MARGIN, -0.03, told=0.5)
    assert familiar["z2"].probability == pytest.approx(0.5, abs=0.01)


def test_an_assertion_says_if_moved_data_look_unlike_the_data() -> None:
    _, found = World().one(-0.5, 0.2, told=0.9)
    assert found["z2"].reason.startswith("imposing it costs nothing, on data like these")
    _, found = World().one(-MARGIN, 0.2, told=0.5)
    assert "data like these" not in found["z2"].reason


def test_few_data_leave_open_what_many_decide() -> None:
    verdicts = [World(n).one(-0.02, -0.02)[0].verdict for n in (20, 2000)]
    assert verdicts == ["undecided", "z2"]
    verdicts = [World(n).one(-1.5 * MARGIN, -1.5 * MARGIN)[0].verdict for n in (20, 2000)]
    assert verdicts == ["undecided", "none"]


def test_a_class_that_loses_all_speaks_against_a_symmetry_that_helps_the_others() -> None:
    world = World(n=400, classes=20)
    gain = np.where(world.classes == 3, -1.5, 0.15)
    averaged = world.free + gain + world.jitter(0.1)
    same = world.free + world.jitter(0.1)
    tested = {
        FREE: Scores(world.free, {"z2": averaged}, {"z2": 0.5}),
        "z2": Scores(same, {"z2": same}, {"z2": 0.5}),
    }
    judgement, found = world.judge(tested)
    assert averaged.mean() > world.free.mean()
    assert found["z2"].outcome == "rejected"
    assert "in one class" in found["z2"].reason
    assert judgement.verdict == "none"
    # The same losses spread over all classes are no reason.
    spread = world.rng.permutation(gain)
    tested[FREE] = Scores(world.free, {"z2": world.free + spread}, {"z2": 0.5})
    assert world.judge(tested)[0].verdict == "z2"


@pytest.mark.parametrize("gain", [0.0, -0.3])
def test_nothing_is_said_at_chance(gain: float) -> None:
    world = World()
    scores = world.chance + world.gap(gain)
    bad = Scores(scores, {"z2": scores, "p4": scores}, {"z2": 0.5, "p4": 0.5})
    judgement, _ = world.judge({FREE: bad, "z2": bad, "p4": bad}, CHAIN)
    assert judgement.obeys is None
    assert judgement.verdict == "undecided"
    assert judgement.probability == 0.0
    assert "class frequencies" in judgement.reason


def test_a_free_network_that_learned_nothing_is_no_yardstick() -> None:
    world = World()
    low = world.chance + world.jitter(0.3)
    z2 = Scores(world.free, {"z2": world.free}, {"z2": 0.5})
    judgement, found = world.judge({FREE: Scores(low, {"z2": low}, {"z2": 0.5}), "z2": z2})
    assert found["z2"].outcome == "open"
    assert "learned nothing" in found["z2"].reason
    assert judgement.verdict == "undecided"


def chain(world: World, z2: Any, p4: Any, whole: Any = 0.0, beyond: Any = 0.0) -> Answer:
    """The answer about z2 ⊂ p4 from the scores of networks.

    Averaging the free network over z2 gains `whole`, that of z2 over p4 gains `beyond`.
    """
    sure = {"z2": 0.5, "p4": 0.5}
    averaged = {"z2": world.free + whole, "p4": world.free + whole + beyond}
    tested = {
        FREE: Scores(world.free, averaged, sure),
        "z2": Scores(z2, {"z2": z2, "p4": z2 + beyond}, sure),
        "p4": Scores(p4, {"z2": p4, "p4": p4}, sure),
    }
    return world.judge(tested, CHAIN)


def test_the_strictest_that_holds_is_the_verdict() -> None:
    world = World()
    good = world.free + world.gap(0.2)
    judgement, found = chain(world, good, good + world.gap(0.1))
    assert judgement.obeys == ("p4",)
    assert found["p4"].against == "z2"
    assert judgement.probability > 0.99
    judgement, found = chain(world, good, good + world.gap(-0.6), beyond=world.gap(-0.6))
    assert judgement.obeys == ("z2",)
    assert judgement.probability > 0.99
    doubtful = good + world.gap(-MARGIN * 1.1, 3.0)
    judgement, found = chain(world, good, doubtful, beyond=world.gap(-MARGIN * 1.1, 3.0))
    assert judgement.obeys == ("z2",)
    assert "p4 can neither be asserted nor excluded" in judgement.reason
    assert judgement.open == ("p4",)
    assert judgement.probability < 0.9


def test_a_symmetry_is_not_asserted_when_a_part_of_it_is_open() -> None:
    """p4 costs nothing beyond z2, but z2 itself may cost a lot."""
    world = World(n=100)
    # z2 looks a little better than the free network; that it costs more than the margin is likely.
    z2 = world.free + world.gap(0.01, 2.0)
    judgement, found = chain(world, z2, z2 + world.gap(0.05, 0.05), world.gap(-0.1, 2.0))
    assert found["z2"].outcome == "open"
    assert found["p4"].outcome == "open"
    assert judgement.verdict == "undecided"


def test_a_symmetry_is_not_asserted_when_a_part_of_it_is_rejected() -> None:
    world = World()
    z2 = world.free + world.gap(-0.8)
    judgement, found = chain(world, z2, world.free + world.gap(0.1), world.gap(-0.8), 1.0)
    assert found["z2"].outcome == "rejected"
    assert found["p4"].outcome != "holds"
    assert judgement.obeys in ((), None)


def test_groups_that_are_not_comparable_are_asserted_together() -> None:
    world = World()
    names = ("p4", "flips")
    sure = dict.fromkeys(names, 1.0)
    same = {n: world.free + world.gap(0.1) for n in names}
    tested = {n: Scores(same[n], dict.fromkeys(names, same[n]), sure) for n in names}
    tested[FREE] = Scores(world.free, same, sure)
    both = Candidates(names, {"p4": (), "flips": ()})
    assert world.judge(tested, both)[0].verdict == "p4 and flips"


@pytest.mark.parametrize(("loss", "verdict"), [(-0.1, "p4m"), (1.0, "z2"), (MARGIN, "z2")])
def test_groups_that_hold_one_by_one_are_open_if_what_they_generate_does_not_hold(
    loss: float, verdict: str
) -> None:
    world = World()
    names = ("z2", "p4", "flips", "p4m")
    parts = {"z2": (), "p4": ("z2",), "flips": ("z2",), "p4m": ("z2", "p4", "flips")}
    scores = {n: world.free + world.gap(-loss if n == "p4m" else 0.1) for n in names}
    sure = dict.fromkeys(names, 0.5)
    tested = {n: Scores(scores[n], scores, sure) for n in names}
    tested[FREE] = Scores(world.free, scores, sure)
    judgement, found = world.judge(tested, Candidates(names, parts, {"p4m": ("p4", "flips")}))
    assert judgement.verdict == verdict
    if loss > 0:
        assert set(judgement.open) >= {"p4", "flips"}
        assert "do not hold together" in found["p4"].reason
        assert judgement.probability < 0.5


def test_no_candidates() -> None:
    world = World()
    judgement, _ = world.judge({FREE: Scores(world.free)}, Candidates((), {}))
    assert judgement.obeys == ()


SIMULATIONS = 1500
LEVEL = 0.05


def assert_share(wrong: int) -> None:
    """At most LEVEL, up to what chance explains."""
    assert wrong <= stats.binom(SIMULATIONS, LEVEL).ppf(0.999), wrong / SIMULATIONS


@pytest.mark.parametrize(  # every pair of values of two of them
    ("told", "n", "noise"), [(0.5, 30, 0.1), (0.5, 300, 1.0), (0.9, 30, 1.0), (0.9, 300, 0.1)]
)
def test_a_symmetry_that_costs_the_margin_is_asserted_at_the_level(
    told: float, n: int, noise: float
) -> None:
    """Both tests at the boundary, where a wrong assertion is the most likely."""
    claims = Claims(level=LEVEL)
    wrong = 0
    for seed in range(SIMULATIONS):
        world = World(n, seed, noise)
        averaged, z2 = (world.free + world.random(-claims.tolerance * KNOWN) for _ in range(2))
        tested = {
            FREE: Scores(world.free, {"z2": averaged}, {"z2": told}),
            "z2": Scores(z2, {"z2": z2}, {"z2": 0.5}),
        }
        wrong += bool(Comparison(tested, world.chance, world.classes, ONE, claims).judgement.obeys)
    assert_share(wrong)


@pytest.mark.parametrize("noise", [0.3, 2.0])
def test_a_chain_that_is_wrong_from_its_first_step_is_asserted_at_the_level(noise: float) -> None:
    """z2 costs the margin, and p4 nothing beyond it: both are wrong."""
    claims = Claims(level=LEVEL)
    sure = {"z2": 0.5, "p4": 0.5}
    wrong = 0
    for seed in range(SIMULATIONS):
        world = World(100, seed, noise)
        cost = claims.tolerance * KNOWN
        averaged, z2 = (world.free + world.random(-cost) for _ in range(2))
        p4 = z2 + 0.05 * world.rng.standard_normal(world.n)
        tested = {
            FREE: Scores(world.free, {"z2": averaged, "p4": averaged}, sure),
            "z2": Scores(z2, {"z2": z2, "p4": z2}, sure),
            "p4": Scores(p4, {"z2": p4, "p4": p4}, sure),
        }
        wrong += bool(
            Comparison(tested, world.chance, world.classes, CHAIN, claims).judgement.obeys
        )
    assert_share(wrong)


def test_pure_guessing_is_called_learned_at_the_level() -> None:
    claims = Claims(level=LEVEL)
    wrong = 0
    for seed in range(SIMULATIONS):
        world = World(100, seed)
        free, z2 = (world.chance + world.random(0.0) for _ in range(2))
        tested = {
            FREE: Scores(free, {"z2": free}, {"z2": 0.5}),
            "z2": Scores(z2, {"z2": z2}, {"z2": 0.5}),
        }
        wrong += (
            Comparison(tested, world.chance, world.classes, ONE, claims).judgement.obeys is not None
        )
    assert_share(wrong)


def test_differences_against_scipy() -> None:
    world = World(n=60, classes=3)
    one, other = world.free + world.random(0.2), world.free
    one[world.classes == 1] -= 1.0
    found = Difference.of(one, other, world.classes)
    gap = one - other
    assert found.mean == pytest.approx(gap.mean())
    assert found.error == pytest.approx(stats.sem(gap))
    assert found.worst == pytest.approx(gap[world.classes == 1].mean())
    assert found.worst_error == pytest.approx(stats.sem(gap[world.classes == 1]))
    z = stats.norm.ppf(0.99)
    low, high = stats.norm(gap.mean(), stats.sem(gap)).interval(0.98)
    assert found.surely_above(low - 1e-9, z)
    assert not found.surely_above(low + 1e-9, z)
    assert found.surely_below(high + 1e-9, z)
    assert not found.surely_below(high - 1e-9, z)
    expected = stats.norm(gap.mean(), stats.sem(gap)).sf(-0.1)
    assert found.probability_above(-0.1) == pytest.approx(expected)
    assert Difference.of(one[:1], other[:1], world.classes[:1]).error == math.inf


@pytest.mark.parametrize("mean", [0.1, -MARGIN, -0.6])
def test_a_judgement_survives_json(mean: float) -> None:
    judgement, _ = World().one(mean, mean)
    content = json.loads(json.dumps(judgement.as_dict()))
    assert content["verdict"] == judgement.verdict
    assert Judgement.from_dict(content) == judgement


@pytest.mark.parametrize("name", list(asdict(Claims())))
@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, math.nan])
def test_bad_claims_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must lie between 0 and 1"):
        replace(Claims(), **{name: value})


@pytest.mark.parametrize(
    ("share", "outcome", "verdict"),
    [(0.96, "holds", "z2"), (0.85, "open", "undecided"), (0.5, "open", "undecided")],
)
def test_where_no_weaker_network_has_learned_a_symmetry_must_explain_nearly_everything(
    share: float, outcome: str, verdict: str
) -> None:
    """Labels that also tell where an image lies look like this to a free network at chance."""
    world = World()
    at_chance = CHANCE + world.jitter(0.3)
    free = Scores(at_chance, {"z2": at_chance}, {"z2": 0.5})
    z2 = CHANCE - share * CHANCE + world.jitter(0.1)
    judgement, found = world.judge({FREE: free, "z2": Scores(z2, {"z2": z2}, {"z2": 0.5})})
    assert (found["z2"].outcome, judgement.verdict) == (outcome, verdict)


def left(world: World, t: float, others: float = 1.0) -> Any:
    """What is left over of each datum, with a t statistic of t."""
    return t / math.sqrt(world.n) + others * world.jitter(1.0)


def with_leftover(
    t: float, *, known: float = KNOWN, told: float = 0.5, n: int = 400, gain: float = KNOWN
) -> Answer:
    """z2, of which averaging and imposing say that it holds, where h sees something beyond it."""
    world = World(n)
    free = CHANCE + known + world.jitter(0.1)
    tested = {
        FREE: Scores(free, {"z2": free + world.jitter(0.05)}, {"z2": told}),
        "z2": Scores(CHANCE + gain + world.jitter(0.1), leftover={FREE: left(world, t)}),
    }
    return world.judge(tested)


@pytest.mark.parametrize(
    ("t", "told", "outcome"),
    [
        pytest.param(0.0, 0.5, "holds", id="nothing is left"),
        pytest.param(-6.0, 0.5, "holds", id="what h sees misleads it"),
        pytest.param(3.0, 0.5, "open", id="something seems left"),
        pytest.param(8.0, 0.5, "rejected", id="something is left"),
        pytest.param(8.0, 0.9, "holds", id="unfamiliar data"),
    ],
)
def test_what_is_left_over_speaks_against_a_symmetry(t: float, told: float, outcome: str) -> None:
    judgement, found = with_leftover(t, told=told)
    assert found["z2"].outcome == outcome
    assert judgement.verdict == {"holds": "z2", "open": "undecided", "rejected": "none"}[outcome]
    if told < 0.6:
        left_over = found["z2"].leftover
        assert left_over.mean / left_over.error == pytest.approx(t, rel=0.1, abs=0.1)
    if outcome != "holds":
        assert "network without symmetry" in judgement.reason


@pytest.mark.parametrize(
    ("z", "outcome"), [(0.0, "holds"), (-6.0, "holds"), (3.5, "open"), (7.0, "rejected")]
)
def test_what_is_left_over_of_one_class_of_many_is_not_lost_in_the_others(
    z: float, outcome: str
) -> None:
    world = World()
    free = CHANCE + KNOWN + world.jitter(0.1)
    each = np.stack([world.jitter(1.0) for _ in range(10)], 1)
    one = world.jitter(1.0)
    each[:, 3] = one + (z / math.sqrt(world.n)) * one.std() / math.sqrt(1 - z * z / world.n)
    tested = {
        FREE: Scores(free, {"z2": free + world.jitter(0.05)}, {"z2": 0.5}),
        "z2": Scores(
            CHANCE + KNOWN + world.jitter(0.1),
            leftover={FREE: left(world, 0.0)},
            leftover_each={FREE: each},
        ),
    }
    if z > 3:
        assert largest_z(each) == pytest.approx(z)
    assert world.judge(tested)[1]["z2"].outcome == outcome


def test_classes_that_obey_a_symmetry_are_rarely_suspected() -> None:
    """Twenty classes, most of them rare; what h sees says nothing, is skewed and has long tails."""
    rng, suspected, trials = np.random.default_rng(0), 0, 400
    for _ in range(trials):
        p = rng.dirichlet(0.05 + 0.3 * rng.random(20), size=150) * 0.98 + 0.001
        y = (rng.random(150)[:, None] > p.cumsum(1)).sum(1)
        sees = rng.exponential(size=(8, 150, 20)) ** 2
        beyond = sees[0] - sees.mean(0)
        z = largest_z((np.eye(20)[y] - p) * beyond)
        suspected += z > math.sqrt(2 * math.log(20 / Claims().suspicion))
    assert (
        stats.binomtest(suspected, trials, Claims().suspicion, alternative="greater").pvalue > 0.001
    )


def test_what_is_left_over_but_worth_little_does_not_count() -> None:
    """t = 8 on 40,000 data is worth 0.0008 nats a datum."""
    assert with_leftover(8.0, n=40_000)[0].verdict == "z2"


def test_a_weak_network_tests_a_symmetry_only_by_what_is_left_over() -> None:
    """It knows a tenth of what z2's network does; on few data t²/2 may be more than the margin."""
    verdicts = [with_leftover(0.5, known=0.15, n=n)[0].verdict for n in (30, 400)]
    assert verdicts == ["undecided", "z2"]
    assert [with_leftover(0.5, n=n)[0].verdict for n in (30, 400)] == ["z2", "z2"]


@pytest.mark.parametrize(
    ("share", "t", "verdict"),
    [(0.8, 0.0, "z2"), (0.8, 3.0, "undecided"), (0.6, 0.0, "undecided"), (0.95, 0.0, "z2")],
)
def test_where_no_weaker_network_has_learned_most_must_be_explained_and_nothing_left(
    share: float, t: float, verdict: str
) -> None:
    judgement, _ = with_leftover(t, known=0.0, gain=-share * CHANCE)
    assert judgement.verdict == verdict


def test_labels_that_obey_a_symmetry_are_rarely_suspected() -> None:
    """Where h sees nothing of the labels, t is Student's, and 5 % of tests may be suspicious."""
    rng, suspected, trials = np.random.default_rng(0), 0, 400
    for _ in range(trials):
        world = World(200)
        free = CHANCE + KNOWN + world.jitter(0.1)
        tested = {
            FREE: Scores(free, {"z2": free + world.jitter(0.05)}, {"z2": 0.5}),
            "z2": Scores(free, leftover={FREE: rng.standard_normal(200)}),
        }
        suspected += world.judge(tested)[0].verdict != "z2"
    assert (
        stats.binomtest(suspected, trials, Claims().suspicion, alternative="greater").pvalue > 0.001
    )


def test_a_class_that_imposing_harms_rejects_whatever_the_mean() -> None:
    world = World()
    loss = np.where(world.classes == 0, -0.8, 0.3)
    free = Scores(world.free, {"z2": world.free + world.gap(0.1)}, {"z2": 0.5})
    z2 = world.free + loss + world.jitter(0.1)
    judgement, found = world.judge({FREE: free, "z2": Scores(z2, {"z2": z2}, {"z2": 0.5})})
    assert found["z2"].imposing.mean > 0
    assert (found["z2"].outcome, judgement.verdict) == ("rejected", "none")
    assert "in one class" in found["z2"].reason


@pytest.mark.parametrize(
    ("loss", "outcome", "verdict"), [(0.4, "rejected", "none"), (0.01, "holds", "z2")]
)
def test_a_target_that_loses_speaks_against_a_symmetry_that_helps_the_others(
    loss: float, outcome: str, verdict: str
) -> None:
    """Of ten real targets one depends on what averaging hides; the sum of all gains by it."""
    world = World()
    gaps = np.stack([world.gap(0.06, 0.1) for _ in range(9)] + [world.gap(-loss, 0.1)], 1)
    each = np.full((world.n, 10), KNOWN / 10)
    free = Scores(
        world.free,
        {"z2": world.free + gaps.sum(1)},
        {"z2": 0.5},
        {"z2": 0.9},
        by_target=each,
        averaged_by_target={"z2": each + gaps},
    )
    z2 = Scores(world.free + gaps.sum(1), {"z2": world.free}, {"z2": 0.5}, by_target=each)
    judgement, found = world.judge({FREE: free, "z2": z2})
    assert found["z2"].averaging.mean > 0
    assert (found["z2"].outcome, judgement.verdict) == (outcome, verdict)
    assert ("for one target" in found["z2"].reason) == (outcome == "rejected")
    pooled = Scores.pooled([free, free])
    assert pooled.by_target is not None
    assert pooled.by_target.shape == pooled.averaged_by_target["z2"].shape == (2 * world.n, 10)


def few(world: World, loss: float, count: int) -> Any:
    """What averaging costs: nothing, but for a class of `count` data, which all lose alike."""
    gap = world.gap(0.1)
    world.classes = np.where(np.arange(len(gap)) < count, 9, world.classes)
    gap[:count] = -loss + 0.01 * world.jitter(1.0)[:count]
    return gap


@pytest.mark.parametrize(
    ("count", "outcome", "verdict"), [(8, "open", "undecided"), (40, "rejected", "none")]
)
def test_a_class_of_few_data_keeps_a_symmetry_open_and_does_not_reject_it(
    count: int, outcome: str, verdict: str
) -> None:
    world = World()
    free = Scores(world.free, {"z2": world.free + few(world, 0.6, count)}, {"z2": 0.5})
    z2 = world.free + world.gap(0.1)
    judgement, found = world.judge({FREE: free, "z2": Scores(z2, {"z2": z2}, {"z2": 0.5})})
    assert (found["z2"].outcome, judgement.verdict) == (outcome, verdict)
    assert found["z2"].probability <= 0.5


def test_classes_of_few_data_that_obey_a_symmetry_are_rarely_rejected() -> None:
    """Averaging two probabilities that are exchangeable: 40 classes of 8 data, one in a hundred."""
    rng = np.random.default_rng(0)
    classes, rejected = np.repeat(np.arange(40), 8), 0
    level = math.sqrt(2 * math.log(40 / 0.01))
    for _ in range(300):
        one, other = rng.beta(0.4, 0.4, (2, len(classes)))
        both = np.log((one + other) / 2)
        rejected += Difference.of(both, np.log(one), classes).worst_z < -level
    assert rejected <= 3


def test_what_averaging_rejects_needs_no_network() -> None:
    world = World()
    costs = Scores(world.free, {"z2": world.free + world.gap(-0.5)}, {"z2": 0.5})
    z2 = Scores(world.free + world.gap(0.1))
    short, found = world.judge({FREE: costs})
    whole, _ = world.judge({FREE: costs, "z2": z2})
    assert short.verdict == whole.verdict == "none"
    assert found["z2"].imposing is None
    assert Judgement.from_dict(short.as_dict()) == short
    # Where averaging does not reject it, nothing is known before its network is trained.
    free = Scores(world.free, {"z2": world.free + world.gap(0.1)}, {"z2": 0.5})
    compared = Comparison({FREE: free}, world.chance, world.classes, ONE)
    assert compared.findings == {}
    assert compared.judgement.verdict == "undecided"


def test_stricter_candidates_wait_for_the_networks_of_weaker_ones() -> None:
    world = World()
    fine = {name: world.free + world.gap(0.1) for name in ("z2", "p4")}
    free = Scores(world.free, fine, dict.fromkeys(fine, 0.5))
    compared = Comparison({FREE: free}, world.chance, world.classes, CHAIN)
    assert compared.order == ["z2", "p4"]
    better = world.free + 0.1
    z2 = Scores(better, {"p4": better + world.gap(-0.6)}, {"p4": 0.5})
    compared = Comparison({FREE: free, "z2": z2}, world.chance, world.classes, CHAIN)
    assert compared.findings["p4"].against == "z2"
    assert compared.judgement.verdict == "z2"


@pytest.mark.parametrize(
    ("averaging", "imposing", "told", "clearly"),
    [
        pytest.param(-0.7, -0.7, 0.9, True, id="both cost more than a quarter"),
        pytest.param(-0.7, 0.1, 0.5, True, id="averaging costs more than a quarter"),
        pytest.param(-0.7, -0.3, 0.9, False, id="averaging does, of unfamiliar data"),
        pytest.param(0.1, -0.7, 0.9, False, id="imposing does, averaging helps"),
        pytest.param(-0.3, -0.4, 0.5, False, id="both cost less"),
        pytest.param(-0.02, 0.1, 0.5, False, id="nothing costs"),
    ],
)
def test_what_contains_a_candidate_that_clearly_fails_needs_no_network(
    averaging: float, imposing: float, told: float, clearly: bool
) -> None:
    world = World()
    unknown = world.free + world.gap(-2.0)  # moved data look so unfamiliar that this says nothing
    averaged = {"z2": world.free + world.gap(averaging), "p4": unknown}
    z2 = world.free + world.gap(imposing)
    tested = {
        FREE: Scores(world.free, averaged, {"z2": told, "p4": 0.9}),
        "z2": Scores(z2, {"p4": z2}, {"p4": 0.9}),
    }
    found = Comparison(tested, world.chance, world.classes, CHAIN).findings
    if not clearly:
        assert "p4" not in found
        return
    assert (found["z2"].part, found["p4"].part) == (None, "z2")
    assert (found["p4"].outcome, found["p4"].imposing) == ("rejected", None)
    assert found["p4"].reason == "it contains z2, which clearly fails"
    assert found["p4"].probability <= found["z2"].probability
    # Once it has a network, that one is asked.
    tested["p4"] = Scores(world.free + 0.1, {}, {})
    compared = Comparison(tested, world.chance, world.classes, CHAIN)
    assert compared.findings["p4"].part is None
    assert compared.findings["p4"].outcome == "open"
    assert compared.judgement.verdict == "undecided"


def test_each_look_has_its_share_of_the_level() -> None:
    world = World()
    once, twice = (
        Comparison({}, world.chance, world.classes, ONE, looks=looks).z for looks in (1, 2)
    )
    tail = [stats.t.sf(z, world.n - 1) for z in (once, twice)]
    assert tail[0] == pytest.approx(Claims().level / 2)
    assert tail[1] == pytest.approx(Claims().level / 4)


def test_folds_are_taken_together() -> None:
    one, two = (
        Scores(np.full(n, v), {"z2": np.full(n, 2 * v)}, {"z2": v}, {"z2": v})
        for n, v in ((3, 1.0), (2, 0.5))
    )
    both = Scores.pooled([one, two])
    assert both.scores.tolist() == [1, 1, 1, 0.5, 0.5]
    assert both.averaged["z2"].tolist() == [2, 2, 2, 1, 1]
    assert both.told == {"z2": 0.75}


@pytest.mark.parametrize(
    ("gain", "noise", "holds", "costs"),
    [(0.1, 0.3, True, False), (-0.5, 0.3, False, True), (0.0, 3.0, False, False)],
)
def test_layers_obey_more_only_if_that_surely_costs_nothing(
    gain: float, noise: float, holds: bool, costs: bool
) -> None:
    world = World()
    against = Scores(world.free)
    compared = Comparison({FREE: against}, world.chance, world.classes, ONE)
    found = compared.on_layers("z2", 2, Scores(world.free + world.gap(gain, noise)), against)
    assert found.holds is holds
    assert compared.costs_on_layers(found) is costs
    assert (found.candidate, found.depth) == ("z2", 2)
    assert found.margin == pytest.approx(MARGIN)


def test_layers_that_harm_one_class_are_not_asserted() -> None:
    world = World(n=400, classes=20)
    change = np.where(world.classes == 3, -1.5, 0.15) + world.jitter(0.1)
    against = Scores(world.free)
    compared = Comparison({FREE: against}, world.chance, world.classes, ONE)
    assert change.mean() > 0
    found = compared.on_layers("z2", 1, Scores(world.free + change), against)
    assert not found.holds
    assert compared.costs_on_layers(found)


def test_rows_are_told_apart_as_far_as_their_distributions_differ() -> None:
    rng = np.random.default_rng(0)
    one, alike, apart = rng.standard_normal((3, 400, 10))
    assert abs(told_apart(one, alike) - 0.5) < 0.06
    apart[:, 0] += 2.0
    # Φ(1): the best that can be done with one shifted normal coordinate.
    assert told_apart(one, apart) == pytest.approx(stats.norm.cdf(1.0), abs=0.04)
    assert told_apart(one, one) == 0.5
    assert told_apart(one[:1], alike[:1]) == 0.5


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ((0.1, 0.2), "p4"),
        ((0.1, 0.1), "undecided"),
        ((0.1, -0.2), "z2"),
        ((-0.2, -0.3), "none"),
        ((0.02, 0.019), "undecided"),
    ],
)
def test_the_evidence_alone_is_bayes_rule_on_the_held_out_data(
    gains: tuple[float, float], verdict: str
) -> None:
    world = World()
    z2, p4 = (world.free + world.gap(gain) for gain in gains)
    tested = {FREE: Scores(world.free), "z2": Scores(z2), "p4": Scores(p4)}
    found = Comparison(tested, world.chance, world.classes, CHAIN).weighed
    assert found.verdict == verdict
    # Bayes' rule by hand: equal prior probabilities of none, z2 and p4.
    sums = np.array([world.free.sum(), z2.sum(), p4.sum()])
    chances = np.exp(sums - sums.max())
    assert found.probability == pytest.approx(min((chances / chances.sum()).max(), 0.999))


def test_the_evidence_alone_says_nothing_at_chance() -> None:
    world = World()
    guess = world.chance + world.gap(-0.01)
    tested = {FREE: Scores(guess), "z2": Scores(guess)}
    assert Comparison(tested, world.chance, world.classes, ONE).weighed.verdict == "undecided"
