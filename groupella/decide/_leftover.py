"""What a network that obeys less sees and a candidate hides: do the labels depend on it?

Let f be the outputs of the network that obeys m, and φ(x) = h(x) − mean of h(g·x) over elements g
of m, for a network h that obeys less. If the labels obey m, and x is as likely as g·x, then φ says
nothing of what f gets wrong, whatever was learned by either: the score s = ∂ log p(y | f + β φ)/∂β
at β = 0 has the mean 0. In units of the root of the information, a mean of t says that the best β
gains about t²/2 nats a datum.

One class of many may depend on what is hidden, or one target: in the sum of all outputs it is lost.
So each output k is tested alone too, with scores s_i of β φ_k and z = Σ s_i / √(Σ s_i²). Where s is
symmetric about 0, z exceeds q with a probability of at most exp(−q²/2), however few data there are
(Efron 1969).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ._differences import Difference


@dataclass(frozen=True)
class Leftover:
    """The scores of a candidate's network, for each network that obeys less.

    z, z_seems: quantiles at which they are surely, or seem to be, positive. slight, margin: nats
    from which they count. each, q, q_seems, slight_each: the same of the output of which most is
    left over, as a z of n independent data: worth z²/2n nats.
    """

    by: Mapping[str, Difference]
    z: float
    z_seems: float
    slight: float
    margin: float
    each: Mapping[str, float]
    n: int
    q: float
    q_seems: float
    slight_each: float

    @property
    def sure(self) -> str | None:
        """The network by which labels surely depend on what is left over, more than slightly."""
        return self._largest(
            lambda t: t.surely_above(0.0, self.z) and t.mean**2 / 2 > self.slight
        ) or self._of_one(self.q, 0.0)

    @property
    def seeming(self) -> str | None:
        """The network by which they seem to, where it may be more than slight."""
        return self._largest(
            lambda t: t.surely_above(0.0, self.z_seems) and self._most(t) > self.slight
        ) or self._of_one(self.q_seems, self.q)

    def excludes(self, network: str) -> bool:
        """Whether what this network sees is surely worth less than the margin."""
        return network in self.by and self._most(self.by[network]) <= self.margin

    def probability_excluded(self, network: str) -> float:
        """The probability that what this network sees is worth less than the margin."""
        return 1 - self.by[network].probability_above(math.sqrt(2 * self.margin))

    def _largest(self, counts: Callable[[Difference], bool]) -> str | None:
        left = {name: t.mean for name, t in self.by.items() if counts(t)}
        return max(left, key=left.__getitem__, default=None)

    def _of_one(self, q: float, error: float) -> str | None:
        least = max(q, math.sqrt(2 * self.n * self.slight_each) - error)
        left = {name: z for name, z in self.each.items() if z > least}
        return max(left, key=left.__getitem__, default=None)

    def _most(self, score: Difference) -> float:
        """The largest gain that the data allow."""
        return max(score.mean + self.z * score.error, 0.0) ** 2 / 2
