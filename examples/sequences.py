"""Sequences: does a signal have a direction, and does its place matter?

A pulse is somewhere on a ring of 16 sites. If the label says which flank of it is steep, the place
does not matter, but the direction does (shifts: z1). If it says only whether there is a steep
flank, the direction does not matter either (line_reflections). From the command line:

    python sequences.py flank.npz steep.npz
    groupella select --data flank.npz --groups z1,line_reflections --epochs 10 --alpha 2
"""

import sys

import numpy as np

import groupella

random = np.random.default_rng(0)
pulses = {"left": [3, 2, 1], "right": [1, 2, 3], "none": [2, 2, 2]}
flank = random.choice(["left", "right", "none"], size=450)
x = 0.2 * random.standard_normal((450, 16))
for signal, name in zip(x, flank, strict=True):
    signal[:3] += pulses[name]
    signal[:] = np.roll(signal, random.integers(16))
steep = np.where(flank == "none", "no", "yes")

tasks = {"flank": flank, "steep": steep}
for (name, y), file in zip(tasks.items(), [*sys.argv[1:], None, None], strict=False):
    if file is not None:
        np.savez(file, x=x, y=y)
    answer = groupella.select(x, y, "z1,line_reflections", epochs=10, width=16)
    print(name, "obeys", answer.verdict)
