"""The report of a tested verdict: a short headline, why, what to do next, and what is confused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groupella.report import (
    Confusion,
    HeldOutScore,
    ReportContent,
    next_steps,
    page,
)

Read = Callable[[str], Any]


def with_verdict(content: ReportContent, **changes: Any) -> ReportContent:
    judgement = content.selection.judgement
    assert judgement is not None
    changed = replace(judgement, **changes)
    return replace(content, selection=replace(content.selection, judgement=changed))


def test_the_headline_is_short_and_the_reason_follows(judged: ReportContent, read: Read) -> None:
    parsed = read(page(judged))
    assert parsed.all("h2")[0].text == "The labels obey z2."
    text = parsed.all("main")[0].text
    wanted = [
        "The labels obey z2.",
        "Probability: 0.970. Reason: z2: averaging",
        "What to do next",
        "Each group imposed",
        "What is taken for what",
        "What each layer obeys",
    ]
    places = [text.lower().index(words.lower()) for words in wanted]
    assert places == sorted(places)
    assert "What each layer uses" not in text
    undecided = with_verdict(judged, obeys=None, reason="too few data")
    parsed = read(page(undecided))
    assert parsed.all("h2")[0].text == "Undecided: the data cannot tell."
    assert "Reason: too few data." in parsed.text


def test_the_row_of_the_verdict_is_marked(judged: ReportContent, read: Read) -> None:
    def won(content: ReportContent) -> list[str]:
        rows = (row for row in read(page(content)).all("tr") if row.attributes.get("class"))
        return [row.all("td")[0].text for row in rows]

    assert won(judged) == ["z2"]
    assert won(with_verdict(judged, obeys=())) == ["none"]
    assert won(with_verdict(judged, obeys=None)) == []
    table = read(page(judged)).table("each group imposed on the whole network")
    assert [row[:3] for row in table] == [
        ["group", "found", "accuracy"],
        ["chance", "–", "10.0%"],
        ["none", "–", "90.0%"],
        ["z2", "the verdict", "95.1%"],
        ["p4", "rejected", "40.0%"],
    ]


def test_every_count_of_the_confusion_matrix_is_in_its_place(
    judged: ReportContent, read: Read
) -> None:
    head, *rows = read(page(judged)).table("what is taken for what")
    assert head == ["", *"0123456789"]
    assert rows[3] == ["3", "", "", "", "103", "", "", "", "", "17", ""]
    assert rows[9] == ["9", "", "", "", "", "5", "", "", "", "", "109"]
    assert "on 1,067 test data" in read(page(judged)).text


def test_of_many_classes_the_most_frequent_mistakes_are_listed(
    judged: ReportContent, read: Read
) -> None:
    size = 30
    counts = [[9 if i == j else 0 for j in range(size)] for i in range(size)]
    counts[4][7], counts[20][1] = 3, 6
    found = Confusion(tuple(f"c{i}" for i in range(size)), tuple(map(tuple, counts)), "test data")
    parsed = read(page(replace(judged, confusion=found)))
    assert parsed.table("most frequent confusions") == [
        ["class", "taken for", "how often"],
        ["c20", "c1", "6"],
        ["c4", "c7", "3"],
    ]
    assert "What is taken for what" not in parsed.text
    with pytest.raises(ValueError, match="needs 2×2 counts"):
        Confusion(("a", "b"), ((1, 2),), "test data")


@pytest.mark.parametrize(
    ("changes", "words", "not_said"),
    [
        ({}, "Use the network: it obeys z2 whatever its weights", "No stricter candidate"),
        ({"obeys": ("p4",)}, "No stricter candidate was tried", "Ask again with smaller"),
        ({"obeys": ()}, "do not augment by these motions", "Use the network"),
        ({"obeys": None}, "the data cannot tell. What helps is more data", "Use the network"),
    ],
)
def test_what_to_do_next_follows_from_the_verdict(
    judged: ReportContent, changes: Any, words: str, not_said: str
) -> None:
    said = " ".join(next_steps(with_verdict(judged, **changes)))
    assert words in said
    assert not_said not in said
    assert "Score the network" not in said
    bare = replace(judged, held_out=HeldOutScore())
    assert "Score the network on data that it has never seen" in " ".join(next_steps(bare))


def test_open_candidates_are_named(judged: ReportContent) -> None:
    content = with_verdict(judged, open=("p4",))
    assert "p4: neither asserted nor excluded" in " ".join(next_steps(content))
    assert "The labels obey z2, perhaps also p4." in page(content)
    assert "Probability that z2 is all: 0.970." in page(content)


def test_a_verdict_by_evidence_should_be_confirmed(content: ReportContent) -> None:
    assert "select without --paths" in next_steps(content)[0]


def test_scores_of_every_task_are_facts(judged: ReportContent, read: Read) -> None:
    scores = {"r2": 0.875, "rmse": 12.3456, "accuracy": 0.5}
    text = read(page(replace(judged, held_out=HeldOutScore(None, 0.2, 9, scores)))).text
    assert "test R²0.875" in text
    assert "test RMSE12.3" in text
    assert "test accuracy50.0 %" in text


def test_what_was_confused_is_saved(judged: ReportContent, tmp_path: Path) -> None:
    again = ReportContent.load(judged.save(tmp_path / "report.json"))
    assert again.confusion == judged.confusion
