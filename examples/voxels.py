"""Voxels: does the orientation of a thing in space matter?

A rod or a plate lies somewhere in a noisy volume, along one of three axes. Which of the two it is
does not depend on the place, nor on turns of the cube (octahedral). Along which axis it lies
depends on turns, but not on the place (z3). From the command line:

    python voxels.py body.npz axis.npz
    groupella select --data axis.npz --groups z3,octahedral --epochs 10 --alpha 2
"""

import sys

import numpy as np

import groupella

random = np.random.default_rng(0)
x = 0.2 * random.standard_normal((300, 4, 4, 4))
body, axis = random.integers(2, size=300), random.integers(3, size=300)
rod, plate = np.zeros((2, 4, 4, 4))
rod[:2, 0, 0] = 3
plate[0, :2, :2] = 1.5
for volume, is_plate, along in zip(x, body, axis, strict=True):
    thing = np.moveaxis(plate if is_plate else rod, 0, along)
    volume += np.roll(thing, random.integers(4, size=3), axis=(0, 1, 2))

tasks = {"body": body, "axis": axis}
for (name, y), file in zip(tasks.items(), [*sys.argv[1:], None, None], strict=False):
    if file is not None:
        np.savez(file, x=x, y=y)
    answer = groupella.select(x, y, "z3,octahedral", epochs=8, width=12)
    print(name, "obeys", answer.verdict)
