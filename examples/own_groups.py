"""Write your own group, and find out whether your data obey it.

Eight atoms: three oxygen, five hydrogen. Are all of them exchangeable, only those of one kind, or
none? The energies here depend on the kinds, so the answer is "molecule".
"""

import torch

from groupella.evidence.likelihoods import Gaussian
from groupella.groups import GroupSet, Symmetry, permutations, trivial
from groupella.networks import trunk
from groupella.training import fit

# A generator is a permutation of the sites: site s moves to p[s]. Two generators per kind.
molecule = Symmetry.from_generators(
    "molecule",
    8,
    [
        [1, 0, 2, 3, 4, 5, 6, 7],
        [1, 2, 0, 3, 4, 5, 6, 7],
        [0, 1, 2, 4, 3, 5, 6, 7],
        [0, 1, 2, 4, 5, 6, 7, 3],
    ],
)
groups = GroupSet(permutations(8), molecule, trivial())

torch.manual_seed(0)
x = torch.randn(300, 1, 8)
y = x[:, :, :3].mean(2) - x[:, :, 3:].mean(2) + 0.1 * torch.randn(300, 1)

network = trunk(groups, alpha=4, image_size=8, classes=1, in_channels=1, blocks=[(1, 1)])
result = fit(network, (x, y), Gaussian(), epochs=50, lr=0.02, burn_in=15, progress=False)
for layer, verdict in result.selection().verdicts.items():
    print(layer, "obeys", verdict)
