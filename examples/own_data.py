"""Find out which symmetries your own images have.

The images are short bars at random places; the label says whether a bar is horizontal or vertical,
and is wrong for one image in twenty. So the place does not matter (z2), but quarter turns do (p4).
From the command line, which tests each group on held-out data instead:

    groupella select --data bars.npz --groups trivial,z2,p4
"""

import tempfile
from pathlib import Path

import numpy as np
import torch

from groupella.data import from_npz
from groupella.groups import GroupSet, p4, trivial, z2
from groupella.networks import trunk
from groupella.training import fit

random = np.random.default_rng(0)
labels = random.integers(2, size=400)
images = 0.2 * random.standard_normal((400, 8, 8))
for image, label in zip(images, labels, strict=True):
    bar = np.zeros((8, 8))
    bar[0, :3] = 2
    image += np.roll(bar.T if label else bar, random.integers(8, size=2), axis=(0, 1))
wrong = random.random(400) < 0.05

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "bars.npz"
    np.savez(file, images=images, labels=np.where(wrong, 1 - labels, labels))
    data = from_npz(file)

torch.manual_seed(0)
network = trunk(
    GroupSet(trivial(), z2(), p4()),
    alpha=2,
    image_size=8,
    classes=2,
    in_channels=1,
    blocks=[(1, 1), (2, 2)],
    init="balanced",  # few data: all paths start equal
)
result = fit(network, (data.train_x, data.train_y), epochs=20, lr=0.02, burn_in=10, progress=False)
# With data, each path is really taken out to see what it is worth.
for layer, verdict in result.selection((data.train_x, data.train_y)).verdicts.items():
    print(layer, "obeys", verdict)
