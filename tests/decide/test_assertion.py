"""A symmetry is asserted only where the evidence is against everything that denies it."""

from __future__ import annotations

import math

import pytest

from groupella.decide.assertion import Assertion, assertion

IMPLIES = {
    "p4m": ("none", "z2", "flips", "p4"),
    "p4": ("none", "z2"),
    "flips": ("none", "z2"),
    "z2": ("none",),
}


def decide(**probabilities: float) -> Assertion:
    return assertion({h: math.log(p) for h, p in probabilities.items()}, IMPLIES)


def test_probabilities_are_those_of_equal_priors() -> None:
    found = assertion({"p4": -1000.0, "z2": -1000.0 - math.log(3), "none": -math.inf}, IMPLIES)
    assert found.probabilities == pytest.approx({"p4": 0.75, "z2": 0.25, "none": 0.0})
    assert found.holds == pytest.approx({"p4": 0.75, "z2": 1.0, "none": 1.0})


def test_a_symmetry_is_asserted_when_what_denies_it_is_improbable() -> None:
    found = decide(p4m=0.001, p4=0.992, flips=0.002, z2=0.003, none=0.002)
    assert found.verdict == found.best == "p4"
    assert found.established == ("p4",)


def test_a_probable_symmetry_is_not_asserted_below_the_level() -> None:
    found = decide(p4m=0.97, p4=0.02, z2=0.01)
    assert found.is_undecided
    assert found.best == "p4m"
    assert "p4 (0.02) cannot be excluded at the level 0.01" in found.reason


def test_groups_that_cannot_be_compared_deny_each_other() -> None:
    found = decide(p4=0.949, flips=0.05, z2=0.001)
    assert found.is_undecided
    assert found.established == ("z2",)


def test_a_stricter_rival_is_no_danger_but_may_leave_it_open() -> None:
    assert decide(z2=0.95, p4m=0.05).verdict == "z2"
    found = decide(z2=0.6, p4m=0.4)
    assert found.is_undecided
    assert found.established == ("z2",)
    assert "z2 (0.6) and p4m (0.4) cannot be told apart" in found.reason


def test_no_information_leaves_everything_open() -> None:
    found = assertion(dict.fromkeys((*IMPLIES, "none"), -12.0), IMPLIES)
    assert found.is_undecided
    assert found.established == ("none",)


def test_more_verdicts_at_once_ask_for_more() -> None:
    evidences = {"p4": math.log(0.995), "none": math.log(0.005)}
    assert assertion(evidences, IMPLIES).verdict == "p4"
    assert assertion(evidences, IMPLIES, comparisons=3).is_undecided


def test_temperature_flattens() -> None:
    evidences = {"p4": 0.0, "none": -10.0}
    assert assertion(evidences, IMPLIES).verdict == "p4"
    found = assertion(evidences, IMPLIES, temperature=10.0)
    assert found.probabilities["none"] == pytest.approx(1 / (1 + math.e))


def test_small_doubts_keep_their_digits() -> None:
    found = assertion({"p4": 0.0, "none": -60.0}, IMPLIES, level=1e-30)
    assert found.is_undecided
    assert assertion({"p4": 0.0, "none": -80.0}, IMPLIES, level=1e-30).verdict == "p4"


@pytest.mark.parametrize(
    ("evidences", "options", "message"),
    [
        ({}, {}, "no hypotheses"),
        ({"p4": math.nan}, {}, "p4 is nan"),
        ({"p4": -math.inf}, {}, "every hypothesis"),
        ({"p4": 0.0}, {"level": 0.0}, "level"),
        ({"p4": 0.0}, {"least": 1.0}, "least"),
        ({"p4": 0.0}, {"comparisons": 0}, "comparisons"),
        ({"p4": 0.0}, {"temperature": 0.0}, "temperature"),
    ],
)
def test_what_makes_no_sense_is_refused(
    evidences: dict[str, float], options: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        assertion(evidences, IMPLIES, **options)  # type: ignore[arg-type]
