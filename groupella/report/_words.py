"""The verdict in words.

A network obeys a symmetry when every layer does: it is the strictest member whose subspace contains
all live paths of all layers. Layers are counted from 1; where there is room their module's name
stands beside the number.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from groupella.decide import NONE, NOT_MEASURED, UNDECIDED, Selection
from groupella.decide import numbered as numbered
from groupella.decide import shown as shown

MOST_RUNS = 4  # of layers with one verdict, that a sentence lists




def sentence(selection: Selection) -> str:
    """Such as "The network obeys z2: layers 1 to 3 obey p4, layer 4 obeys z2."."""
    if not selection.is_measured:
        return "What the layers obey was not measured."
    layers = list(enumerate(selection.layers, 1))
    if len(layers) == 1:
        return f"The layer {obeys(selection.layers[0].verdict)}."
    runs = [
        (name, [number for number, _ in members])
        for name, members in groupby(layers, key=lambda item: item[1].verdict)
    ]
    if len(runs) == 1:
        name = runs[0][0]
        if name == UNDECIDED:
            return "Undecided: no path of any layer is alive, so nothing was learned."
        return "No layer obeys any of the groups." if name == NONE else f"Every layer obeys {name}."
    parts = [f"{_which(numbers)} {obeys(name, len(numbers))}" for name, numbers in runs]
    if len(runs) > MOST_RUNS:
        counts = Counter(layer.verdict for layer in selection.layers)
        parts = [f"{_how_many(count)} {obeys(name, count)}" for name, count in counts.items()]
    return f"The network {obeys(selection.verdict)}: {', '.join(parts)}."


def _which(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"layer {numbers[0]}"
    joint = " and " if len(numbers) == 2 else " to "
    return f"layers {numbers[0]}{joint}{numbers[-1]}"


def _how_many(count: int) -> str:
    return "one layer" if count == 1 else f"{count} layers"


def obeys(verdict: str, count: int = 1) -> str:
    """Verb and verdict for that many layers or networks: "obeys p4", "obey nothing"."""
    verb = "obeys" if count == 1 else "obey"
    if verdict in (NOT_MEASURED, UNDECIDED):
        return f"{'is' if count == 1 else 'are'} {verdict}"
    return f"{verb} nothing" if verdict == NONE else f"{verb} {verdict}"
