"""What to do next, in plain words, from what was found."""

from __future__ import annotations

from groupella.decide import NONE, NOT_MEASURED, UNDECIDED, verdict_text
from groupella.decide.claims import Judgement

from ._content import ReportContent

MORE = "more data, more epochs, or a smaller candidate beside the others"


def next_steps(content: ReportContent) -> tuple[str, ...]:
    """Return what a reader can do now, the most useful first.

    Parameters
    ----------
    content
        A report, of a tested verdict or of one by evidence.
    """
    judgement = content.selection.judgement
    steps = _by_evidence(content) if judgement is None else _tested(content, judgement)
    if not content.held_out.n:
        steps.append(
            "Score the network on data that it has never seen: give test data "
            "(test_x and test_y in the .npz, or select(…, test=(x, y)))."
        )
    return tuple(steps)


def _tested(content: ReportContent, judgement: Judgement) -> list[str]:
    if judgement.obeys is None:
        return [
            f"Do not build on a symmetry yet: the data cannot tell. What helps is {MORE}.",
            "Until then, the network that is saved is the one that predicted held-out data best.",
        ]
    steps = []
    if not judgement.obeys:
        steps.append(
            "Use a network without these symmetries, and do not augment by these motions: both "
            "would cost accuracy."
        )
        steps.append(
            "Ask again with smaller groups if some may hold: shifts alone, half turns instead of "
            "quarter turns, one reflection."
        )
    else:
        names = verdict_text(judgement.obeys)
        exact = not {*judgement.obeys} & {*judgement.within}
        how = f"{names} whatever its weights" if exact else judgement.verdict
        steps.append(
            f"Use the network: it obeys {how}. groupella.load(RUN) opens it in Python; groupella "
            "export RUN writes it as plain torch."
        )
        steps.append(
            f"In a model of your own, build {names} in, or augment by it; groupella check tells "
            "whether a model obeys a group."
        )
        candidates = content.selection.candidates
        above = [n for n in candidates.names if set(judgement.obeys) & {*candidates.inside[n]}]
        if not above:
            steps.append(
                "No stricter candidate was tried. If more motions may leave the targets alone, "
                "add their groups."
            )
    if judgement.open:
        steps.append(
            f"{', '.join(judgement.open)}: neither asserted nor excluded. To know, give {MORE}."
        )
    return steps


def _by_evidence(content: ReportContent) -> list[str]:
    verdict = content.selection.verdict
    if verdict == NOT_MEASURED:
        return []
    if verdict == UNDECIDED:
        return [f"Nothing was learned that could decide. What helps is {MORE}."]
    steps = [
        "Confirm it: select without --paths imposes each group and tests it on held-out data. "
        "The evidence alone can be wrong."
    ]
    if verdict != NONE or len(set(content.selection.verdicts.values())) > 1:
        steps.append(
            "Use the network: groupella export RUN writes it as plain torch, without dead paths."
        )
    return steps
