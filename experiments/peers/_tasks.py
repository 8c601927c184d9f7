"""Tasks of the comparison: small, with an answer that is known by construction.

linear: y = W x + noise on a 5×5 torus, W among the maps of one candidate
sets, sequences: labels that a network has to learn (`select`'s tasks, sequences of 16 sites)
digits: real images, scikit-learn's 8×8 digits, moved by p4m and told up to the truth
digits16: those of `select`, the same digits on a torus of 16×16 sites; five of the ten, since dense
    layers of 256 sites are slow to train
deep: three layers with skips on a 5×5 torus, each with the maps of a candidate of its own; the
    plants are those of the planted benchmark
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
import torch

from groupella.bases import equivariant_basis, increments
from groupella.decide import NONE
from groupella.experiments.planted._presets import PLANTS
from groupella.experiments.planted._select_tasks import sequences, sets
from groupella.groups import (
    Element,
    GroupSet,
    LatticeElement,
    cyclic,
    flips,
    line_reflections,
    named_group,
    p4,
    p4m,
    permutations,
    translations,
    z2,
)

from ._problem import SHRINK, SLOPE, Problem

MEMBERS = ("p4m", "p4", "flips", "z2", "trivial")
Draw = Callable[[int], Problem]
SIDE, NOISE = 5, 0.3
DEEP_NOISE = 0.1
LENGTH = 16
USED, TESTED = 1000, 250  # data of sets and sequences


def _name(member: str) -> str:
    return NONE if member == "trivial" else member


def _linear(planted: str, seed: int, n: int = 100, tests: int = 200) -> Problem:
    """A random map of a candidate in which everything that weaker ones add is of the same size.

    So p4 is never p4m by chance. Without a symmetry, a random matrix.
    """
    rng = np.random.default_rng([seed, MEMBERS.index(planted)])
    groups = GroupSet(z2(), flips(), p4(), p4m())
    teacher = _map(planted, groups, rng)
    inputs = rng.standard_normal((n + tests, len(teacher)))
    outputs = inputs @ teacher.T + NOISE * rng.standard_normal(inputs.shape)
    x, y = torch.tensor(inputs[:, None]).float(), torch.tensor(outputs).float()
    truth = _name(planted)
    pool, test = (x[:n], y[:n]), (x[n:], y[n:])
    return Problem(f"linear-{truth}", truth, groups, (SIDE, SIDE), pool, test, True, seed)


def _map(planted: str, groups: GroupSet, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """A matrix that keeps the mean square of white inputs, among the maps of a candidate."""
    space = groups.space((SIDE, SIDE), 1, "trivial")
    teacher = np.zeros((space.size, space.size))
    if planted == "trivial":
        teacher = rng.standard_normal(teacher.shape)
    else:
        parts = increments({m.name: equivariant_basis(space, space, m) for m in groups})
        for name in parts.inside(planted):
            u = rng.standard_normal(parts[name].dim)
            teacher += parts[name].expand(u / np.linalg.norm(u))
    return np.asarray(teacher * np.sqrt(space.size) / np.linalg.norm(teacher))


def _deep(planted: tuple[str, ...], seed: int, n: int = 400, tests: int = 200) -> Problem:
    """White inputs through layers of random maps, each as large as what skips it."""
    rng = np.random.default_rng([seed, *(MEMBERS.index(m) for m in planted)])
    groups = GroupSet(z2(), flips(), p4(), p4m())
    x = h = rng.standard_normal((n + tests, SIDE**2))
    for number, member in enumerate(planted):
        h = SHRINK * (h + h @ _map(member, groups, rng).T)
        if number < len(planted) - 1:
            h = np.where(h > 0, h, SLOPE * h)
    y = h + DEEP_NOISE * h.std() * rng.standard_normal(h.shape)
    inputs, outputs = torch.tensor(x[:, None]).float(), torch.tensor(y).float()
    layers = tuple(_name(m) for m in planted)
    # What the last layer does not obey, the whole does not obey: plants never get stricter.
    return Problem(
        f"deep-{'-'.join(layers)}",
        layers[-1],
        groups,
        (SIDE, SIDE),
        (inputs[:n], outputs[:n]),
        (inputs[n:], outputs[n:]),
        False,
        seed,
        layers,
    )


def _arrays(kind: str, truth: str, seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    count = USED + TESTED
    if kind == "sets":
        x, labels = sets(truth, rng, n=count)
        groups = GroupSet(cyclic(8), permutations(8))
    else:
        x, labels = sequences(truth, rng, n=count, length=LENGTH)
        groups = GroupSet(translations(1), line_reflections())
    y = torch.from_numpy(np.unique(labels, return_inverse=True)[1])
    inputs = torch.from_numpy(x)
    inputs = (inputs - inputs[:USED].mean()) / inputs[:USED].std()
    pool, test = (inputs[:USED], y[:USED]), (inputs[USED:], y[USED:])
    return Problem(f"{kind}-{truth}", truth, groups, tuple(x.shape[2:]), pool, test, False, seed)


def _digits(obeys: str, seed: int) -> Problem:
    """Real digits on an 8×8 torus, each moved by a random element of p4m.

    Labels tell the digit, and of the motion its coset of `obeys` (z2: of z2 with the diagonal
    mirror, which is no candidate; trivial: the quadrant that it shifts to). Test data are other
    digits.
    """
    from groupella.data import load

    data = load("digits", seed=seed, progress=False)
    rng = np.random.default_rng(seed)
    groups = GroupSet(z2(), flips(), p4(), p4m())
    space = groups.space((8, 8), 1, "trivial")
    pieces = []
    for images, names, count in (
        (data.train_x, data.train_y, USED),
        (data.test_x, data.test_y, TESTED),
    ):
        chosen = np.flatnonzero(np.isin(names.numpy(), DIGITS))
        rows = rng.choice(chosen, count, replace=count > len(chosen))
        motions = space.sample(p4m(), count, int(rng.integers(2**31)))
        x = torch.cat([space.act(g, images[i : i + 1]) for g, i in zip(motions, rows, strict=True)])
        coset = np.array([_coset(g, obeys) for g in motions])
        digit = np.searchsorted(DIGITS, names.numpy()[rows])
        pieces.append((x.flatten(2).float(), torch.from_numpy(digit * COSETS[obeys] + coset)))
    mean, std = pieces[0][0].mean(), pieces[0][0].std()
    pool, test = (((x - mean) / std, y) for x, y in pieces)
    truth = _name(obeys)
    return Problem(f"digits-{truth}", truth, groups, (8, 8), pool, test, False, seed)


def _digits16(obeys: str, seed: int) -> Problem:
    """Moved digits with labels that obey a group, as `select` reads them."""
    from groupella.data import labelled

    data = labelled(
        p4m(),
        named_group(obeys),
        "digits",
        keep=[str(d) for d in DIGITS],
        seed=seed,
        progress=False,
    )
    groups = GroupSet(z2(), flips(), p4(), p4m())
    lattice = tuple(data.train_x.shape[2:])
    pool = (data.train_x[:USED].flatten(2).float(), data.train_y[:USED])
    test = (data.test_x[:TESTED].flatten(2).float(), data.test_y[:TESTED])
    return Problem(f"digits16-{obeys}", obeys, groups, lattice, pool, test, False, seed)


def _coset(g: Element, obeys: str) -> int:
    """The number of the coset K·g of the point group K that labels ignore; or the quadrant."""
    assert isinstance(g, LatticeElement)
    if obeys == "trivial":
        return 2 * (g.shift[0] >= 4) + (g.shift[1] >= 4)
    point = np.array(g.point)
    ignored = {
        "p4m": list(_turns()) + [t @ _MIRROR for t in _turns()],
        "p4": list(_turns()),
        "flips": [np.eye(2, dtype=int), _MIRROR],
        "z2": [np.eye(2, dtype=int), _MIRROR @ list(_turns())[1]],
    }[obeys]
    everything = list(_turns()) + [t @ _MIRROR for t in _turns()]
    cosets: list[set[bytes]] = []
    for h in everything:
        coset = {(k @ h).astype(np.int8).tobytes() for k in ignored}
        if coset not in cosets:
            cosets.append(coset)
    return next(i for i, c in enumerate(cosets) if point.astype(np.int8).tobytes() in c)


def _turns() -> list[npt.NDArray[np.int_]]:
    turn = np.array([[0, -1], [1, 0]])
    return [np.linalg.matrix_power(turn, k) for k in range(4)]


_MIRROR = np.array([[1, 0], [0, -1]])  # reverses the second axis, as flips() does
DIGITS = (2, 3, 4, 5, 7)
COSETS = {"p4m": 1, "p4": 2, "flips": 4, "z2": 4, "trivial": 4}

TASKS: dict[str, Draw] = {
    **{f"linear-{_name(m)}": partial(_linear, m) for m in MEMBERS},
    **{f"sets-{t}": partial(_arrays, "sets", t) for t in ("s8", "cyclic8", NONE)},
    **{f"sequences-{t}": partial(_arrays, "sequences", t) for t in ("line_reflections", "z1")},
    **{f"digits-{_name(m)}": partial(_digits, m) for m in MEMBERS},
    "digits16-p4": partial(_digits16, "p4"),
    **{f"deep-{'-'.join(_name(m) for m in plant)}": partial(_deep, plant) for plant in PLANTS},
}
FAMILIES = ("linear", "sets", "sequences", "digits", "digits16", "deep")


@lru_cache(maxsize=2)
def draw(task: str, seed: int) -> Problem:
    """The data of a task, the same for every method, with the maps that obey each candidate."""
    problem = TASKS[task](seed)
    _ = problem.stages, problem.motions  # made here: no method pays for them
    return problem
