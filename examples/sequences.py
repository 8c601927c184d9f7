"""Sequences: does a signal have a direction, and does its place matter?

A pulse with a steep and a flat flank is somewhere on a ring of 16 sites; the label says which flank
comes first. The place does not matter (translations), the direction does (no reflections). Sets
work in the same way, with `permutations(n)`.
"""

import torch

from groupella.groups import GroupSet, line_reflections, translations, trivial
from groupella.networks import trunk
from groupella.training import fit

torch.manual_seed(0)
pulse = torch.tensor([3.0, 2.0, 1.0])
y = torch.randint(2, (300,))
x = 0.1 * torch.randn(300, 1, 16)
for signal, label in zip(x, y, strict=True):
    signal[0, :3] += pulse.flip(0) if label else pulse
    signal.copy_(signal.roll(int(torch.randint(16, ())), 1))

groups = GroupSet(trivial(), translations(1), line_reflections())
network = trunk(groups, alpha=3, image_size=16, classes=2, in_channels=1, blocks=[(1, 1), (2, 2)])
result = fit(network, (x, y), epochs=30, lr=0.01, burn_in=10, prune_from=None, progress=False)
# With data, each path is really taken out to see what it is worth.
for layer, verdict in result.selection((x, y)).verdicts.items():
    print(layer, "obeys", verdict)
