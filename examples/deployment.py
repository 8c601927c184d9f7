"""Use it in scikit-learn, and hand the network to a process that has no groupella.

Whether four numbers sum to more than zero does not depend on their order (s4). `SymmetrySelector`
finds that out as a classifier among others; `export` writes its network as weights and a module of
nothing but torch. The same from the command line, for a run in a directory:

    groupella export runs/mine --format safetensors --out network
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.model_selection import cross_val_score

from groupella import SymmetrySelector

WITHOUT_GROUPELLA = """
import sys
sys.modules["groupella"] = None  # as if it were not installed
import numpy as np, torch
from network import load
print(*load()(torch.from_numpy(np.load("x.npy"))[:, None]).argmax(1).tolist())
"""

x = np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32)
y = np.where(x.sum(1) > 0, "high", "low")

selector = SymmetrySelector("permutations", epochs=12, width=8)
print(f"accuracy {cross_val_score(selector, x, y, cv=2).mean():.2f}")
answer = selector.fit(x, y).answer_
print("the class obeys", answer.verdict)

with tempfile.TemporaryDirectory() as folder:
    weights, source = answer.export(folder)
    print(f"{weights.name} and {source.name} are all that is needed")
    np.save(Path(folder) / "x.npy", x)
    command = [sys.executable, "-c", WITHOUT_GROUPELLA]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    numbers = np.array(done.stdout.split(), dtype=int)
print("the same classes:", bool((selector.classes_[numbers] == selector.predict(x)).all()))
