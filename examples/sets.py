"""Sets: does the order of points matter for a number?

Five points in the plane. How far the farthest is from the centre does not depend on their order
(s5, all permutations). The length of the closed path through them does; it stays the same only if
all move one place on (cyclic5). From the command line:

    python sets.py farthest.npz path.npz
    groupella select --data path.npz --groups cyclic,permutations --epochs 15 --alpha 2
"""

import sys

import numpy as np

import groupella

x = np.random.default_rng(0).standard_normal((400, 5, 2))
farthest = np.linalg.norm(x, axis=2).max(1)
path = np.linalg.norm(x - np.roll(x, 1, axis=1), axis=2).sum(1)

tasks = {"farthest": farthest, "path": path}
for (name, y), file in zip(tasks.items(), [*sys.argv[1:], None, None], strict=False):
    if file is not None:
        np.savez(file, x=x, y=y)
    answer = groupella.select(x, y, "cyclic,permutations", epochs=15, width=16)
    print(name, "obeys", answer.verdict)
    print(f"R² {answer.score(x, y):.2f}")
