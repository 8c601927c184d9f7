"""The answer of `find_symmetry`: the verdict, its network, and what the layers of it obey."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from groupella.decide import Candidates, Selection, selection, verdict_text
from groupella.decide.claims import Consequence, Judgement
from groupella.evidence import Predictive
from groupella.groups import Symmetry
from groupella.networks import InvariantNet, fold
from groupella.nn.shared_maps import FactorTooLargeError

from ._candidates import observed, outputs
from ._cost import MOST_BYTES, curvature_cost
from ._fit import Fit
from ._held_out import HeldOut
from ._scoring import Scoring


@dataclass(frozen=True)
class FoundSymmetry:
    """The answer of `find_symmetry`: the judgement, the network that obeys it, and the table.

    `held_out` has the first held-out data, and a network that was trained without them: with the
    verdict's symmetry where there is one, else the one that predicts best.
    """

    judgement: Judgement
    symmetry: Symmetry
    fit: Fit
    consequences: tuple[Consequence, ...]
    candidates: Candidates
    scoring: Scoring
    held_out: HeldOut

    @property
    def verdict(self) -> str:
        """A name, "p4 and flips", "none" or "undecided"."""
        return self.judgement.verdict

    @cached_property
    def network(self) -> InvariantNet:
        """The trained network, without normalisation."""
        network = self.fit.network
        assert isinstance(network, InvariantNet)
        return fold(network)

    @property
    def temperature(self) -> float:
        """The temperature of the network's class predictions, as held-out data ask for it."""
        return self.held_out.temperature

    @cached_property
    def predictive(self) -> Predictive | None:
        """Predictions of the network with uncertainty, calibrated on held-out data.

        Usual inputs are predicted as by the weights alone, strange ones less surely; real targets
        get intervals. They take inputs (n, channels, *lattice) as `find_symmetry` does. None if the
        last layer has more than 8,192 features, or a layer is too wide for factors of its
        curvature.
        """
        try:
            return self.held_out.predictive(self.network)
        except FactorTooLargeError:
            return None

    def selection(self, data: tuple[Tensor, Tensor]) -> Selection:
        """Return what each layer obeys, with the numbers of the evidence of the folded network.

        Layers obey what is imposed on them; the verdict on the network is that of the judgement.
        The numbers are missing if the network is too wide for factors of its curvature.
        """
        try:
            if curvature_cost(self.network).bytes > MOST_BYTES:
                raise FactorTooLargeError("more than the automatic limit")
            likelihood = self.scoring.likelihood(outputs(self.network, data[0]), data[1])
            found = selection(self.network, observed(self.network, data, self.fit, likelihood))
        except FactorTooLargeError:
            found = Selection.unmeasured(self.network, len(data[1]))
        judged = self.judgement
        strict = next((f for f in judged.layers if f.holds), None)
        layers = []
        for number, layer in enumerate(found.layers):
            more = strict if strict is not None and number < strict.depth else None
            names = (more.candidate,) if more else judged.obeys or ()
            inside = {m for name in names for m in (name, *self.candidates.inside[name])}
            members = tuple(n for n in self.candidates.names if n in inside)
            layers.append(
                replace(
                    layer,
                    paths=tuple(replace(p, members=members, alive=True) for p in layer.paths),
                    verdict=more.candidate if more else verdict_text(judged.obeys),
                    clearness=math.inf,
                    alternative=None,
                    probability=more.probability if more else judged.probability,
                )
            )
        return replace(found, layers=tuple(layers), candidates=self.candidates, judgement=judged)
