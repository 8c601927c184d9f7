"""The verdict in words. Layers are counted from 1."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from groupella.decide import NONE, NOT_MEASURED, UNDECIDED, Selection
from groupella.decide.claims import Judgement

MOST_RUNS = 4  # of consecutive layers with one verdict that a sentence lists


def path_names(selection: Selection) -> list[str]:
    """Return the names of all paths, in order of appearance."""
    return list(dict.fromkeys(p.path for s in selection.layers for p in s.paths))


def sentence(selection: Selection) -> str:
    """Return the verdict: "The network obeys z2: layers 1 to 3 obey p4, layer 4 obeys z2."."""
    if selection.judgement is not None:
        return " ".join([judged(selection.judgement), *_by_evidence(selection)])
    if not selection.is_measured:
        return "What the layers obey was not measured."
    verdicts = [layer.verdict for layer in selection.layers]
    if len(verdicts) == 1:
        return f"The layer {obeys(verdicts[0])}."
    if len(set(verdicts)) == 1:
        if verdicts[0] == UNDECIDED:
            return "Undecided: no path of any layer is alive, so nothing was learned."
        if verdicts[0] == NONE:
            return "No layer obeys any of the groups."
        return f"Every layer obeys {verdicts[0]}."
    return f"The network {obeys(selection.verdict)}: {_each_layer(verdicts)}."


def _each_layer(verdicts: list[str]) -> str:
    """Return "layers 1 to 3 obey p4, layer 4 obeys z2"."""
    runs = [
        (name, [number for number, _ in members])
        for name, members in groupby(enumerate(verdicts, 1), key=lambda item: item[1])
    ]
    parts = [f"{_layers(numbers)} {obeys(name, len(numbers))}" for name, numbers in runs]
    if len(runs) > MOST_RUNS:
        parts = [
            f"{'one layer' if count == 1 else f'{count} layers'} {obeys(name, count)}"
            for name, count in Counter(verdicts).items()
        ]
    return ", ".join(parts)


def _by_evidence(selection: Selection) -> list[str]:
    """Return what the evidence says of layers, where it is that which was tested; else nothing."""
    if any(layer.probability is not None for layer in selection.layers):
        return []
    return [f"By the evidence alone, {_each_layer([s.verdict for s in selection.layers])}."]


def judged(judgement: Judgement) -> str:
    """Return a tested verdict: "The labels obey p4 (probability 0.991).", or why not."""
    if judgement.obeys is None:
        return f"Undecided: {judgement.reason}."
    said = f"The labels {obeys(judgement.verdict, 2)}"
    if judgement.open:
        more = " and ".join(judgement.open)
        said += (
            f", perhaps also {more}: these data cannot tell (probability that "
            f"{judgement.verdict} is all: {judgement.probability:.3f})."
        )
    else:
        said += f" (probability {judgement.probability:.3f})."
    parts = (said, stricter_layers(judgement), f"Reason: {judgement.reason}.")
    return " ".join(part for part in parts if part)


def stricter_layers(judgement: Judgement) -> str:
    """Return which first layers obey more than the labels do, in a sentence, or ""."""
    said = []
    for found in judgement.layers:
        if found.holds:
            what = "layer obeys" if found.depth == 1 else f"{found.depth} layers obey"
            said.append(
                f"The first {what} {found.candidate} (probability {found.probability:.3f})."
            )
    return " ".join(said)


def headline(selection: Selection) -> str:
    """Return the verdict alone, in a few words: "The labels obey p4."."""
    judgement = selection.judgement
    if judgement is None:
        return sentence(selection)
    if judgement.obeys is None:
        return "Undecided: the data cannot tell."
    more = f", perhaps also {' and '.join(judgement.open)}" if judgement.open else ""
    return f"The labels {obeys(judgement.verdict, 2)}{more}."


def explanation(selection: Selection) -> list[str]:
    """Return what follows the headline: how sure it is and why; [] where it says all."""
    judgement = selection.judgement
    if judgement is None:
        return []
    why = f"Reason: {judgement.reason}."
    layers = _by_evidence(selection)
    if judgement.obeys is None:
        return [why, *layers]
    sure = f"Probability{f' that {judgement.verdict} is all' if judgement.open else ''}"
    said = [f"{sure}: {judgement.probability:.3f}. {why}", stricter_layers(judgement), *layers]
    return [part for part in said if part]


def obeys(verdict: str, count: int = 1) -> str:
    """Return verb and verdict for `count` layers or networks: "obeys p4", "obey nothing"."""
    verb = "obeys" if count == 1 else "obey"
    if verdict in (NOT_MEASURED, UNDECIDED):
        return f"{'is' if count == 1 else 'are'} {verdict}"
    return f"{verb} nothing" if verdict == NONE else f"{verb} {verdict}"


def _layers(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"layer {numbers[0]}"
    joint = " and " if len(numbers) == 2 else " to "
    return f"layers {numbers[0]}{joint}{numbers[-1]}"
