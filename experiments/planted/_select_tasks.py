"""Tasks whose answer is known by construction, for the part `select`.

A task either describes a job of `groupella select` (the embedded digits, or files of the user's own
that it writes first), or, where the command reads no such data (sequences, sets), gives arrays for
`groupella.training.find_symmetry`. The truth is the strictest candidate that the labels obey, or
"undecided" where there is nothing to learn.

Drawn shapes stand at a random position of a torus in a random quarter turn and in a random colour.
Textures are gratings cos(2π k·s/side + φ) with a random phase φ, so that shifts and half turns
never matter; labels tell the wave vector k up to the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from groupella.decide import NONE, UNDECIDED
from groupella.groups import GroupSet, cyclic, line_reflections, permutations, translations

Array = npt.NDArray[Any]
Labelled = tuple[Array, Array]
TEST_SHARE = 0.2  # that `load` keeps from x, y

IMAGES = "z2,flips,p4,p4m"
HANDED = {
    "l": ("X.", "X.", "XX"),
    "s": (".XX", "XX."),
    "f": (".XX", "XX.", ".X."),
    "p": ("XX", "XX", "X."),
}
PLAIN = {
    "t": ("XXX", ".X.", ".X."),
    "cross": (".X.", "XXX", ".X."),
    "bar": ("XXXX",),
    "block": ("XX", "XX"),
    "u": ("X.X", "XXX"),
    "corner": ("X..", "X..", "XXX"),
    "stairs": ("X..", "XX.", ".XX"),
    "ring": ("XXX", "X.X", "XXX"),
}
GLIDE_FILE = '''"""A glide reflection: one step down, mirrored left and right."""

import numpy as np

from groupella.groups import Symmetry, flips, z2

sites = np.arange(64).reshape(8, 8)
step = np.roll(sites[:, ::-1], 1, axis=0)
right = np.roll(sites, 1, axis=1)
glide = Symmetry.from_generators(
    "glide", (8, 8), [step.argsort(axis=None), right.argsort(axis=None)]
)
GROUPS = [z2(), flips(axis=1), glide]
'''


@dataclass(frozen=True)
class Task:
    """A truth, and how the data are made.

    job: writes files to a directory, from a seed, and returns options of a `Job`
    arrays: inputs (n, channels, sites) and labels from a generator, with `groups` to choose among
    """

    truth: str
    job: Callable[[Path, int], Mapping[str, Any]] | None = None
    arrays: Callable[[np.random.Generator], Labelled] | None = None
    groups: Callable[[], GroupSet] | None = None


def _digits(obeys: str, _: Path, __: int, **more: Any) -> dict[str, Any]:
    return {"data": "digits", "groups": IMAGES, "motion": "p4m", "obeys": obeys, **more}


def _mnist(obeys: str, place: Path, seed: int, n: int = 1400, tests: int = 500) -> dict[str, Any]:
    """Moved MNIST as a file, since the command would test on all 10,000 test images."""
    from groupella.data import labelled
    from groupella.groups import named_group

    data = labelled(
        named_group("p4m"),
        named_group(obeys),
        "mnist",
        size=16,
        seed=seed,
        train_size=n,
        test_size=tests,
        progress=False,
    )
    # Of 320 classes, some may have an image to test on and none to train on.
    known = np.isin(data.test_y, data.train_y)
    file = place / "mnist.npz"
    np.savez(
        file,
        train_x=data.pixels(data.train_x).numpy(),
        train_y=data.train_y.numpy(),
        test_x=data.pixels(data.test_x).numpy()[known],
        test_y=data.test_y.numpy()[known],
        classes=np.array(data.classes),
    )
    return {"data": str(file), "groups": IMAGES}


def _own(
    make: Callable[[np.random.Generator], Labelled], groups: str, place: Path, seed: int
) -> dict[str, Any]:
    """Images and labels as an .npz of the user's own."""
    x, y = make(np.random.default_rng(seed))
    file = place / "images.npz"
    np.savez(file, x=x, y=y)
    return {"data": str(file), "groups": groups}


def _folder(
    make: Callable[[np.random.Generator], Labelled], groups: str, place: Path, seed: int
) -> dict[str, Any]:
    """Images and labels as a folder of PNG files, one subfolder per class."""
    from PIL import Image

    x, y = make(np.random.default_rng(seed))
    for number, (image, label) in enumerate(zip(x, y, strict=True)):
        file = place / "images" / str(label) / f"{number:05d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    return {"data": str(place / "images"), "groups": groups}


def _glide(truth: str, place: Path, seed: int) -> dict[str, Any]:
    """Footprints: the hand of a shape, its row, or neither matters."""
    file = place / "my_groups.py"
    file.write_text(GLIDE_FILE, encoding="utf-8")
    return _own(partial(footprints, truth), f"{file}:GROUPS", place, seed)


def picture(rows: tuple[str, ...], mirrored: bool) -> npt.NDArray[np.bool_]:
    """A shape as a mask, mirrored left and right if asked for."""
    mask = np.array([[c == "X" for c in row] for row in rows])
    return mask[:, ::-1] if mirrored else mask


def shapes(
    kinds: Mapping[str, tuple[str, ...]],
    told: frozenset[str],
    rng: np.random.Generator,
    n: int = 1250,
    side: int = 16,
    noise: float = 25.0,
) -> Labelled:
    """Coloured shapes (n, side, side, 3) of 8 bits; the hand of those in `told` is a label too."""
    names = list(kinds)
    classes = [(k, hand) for k in names for hand in ((False, True) if k in told else (None,))]
    x = np.empty((n, side, side, 3), np.uint8)
    chosen = rng.integers(len(classes), size=n)
    labels = np.array([k if h is None else f"{k} {'right' if h else 'left'}" for k, h in classes])
    for i in range(n):
        name, hand = classes[chosen[i]]
        mask = picture(kinds[name], bool(rng.integers(2)) if hand is None else bool(hand))
        mask = np.rot90(np.kron(mask, np.ones((2, 2), bool)), rng.integers(4))
        canvas = np.zeros((side, side), bool)
        canvas[: mask.shape[0], : mask.shape[1]] = mask
        canvas = np.roll(canvas, tuple(rng.integers(side, size=2)), (0, 1))
        front, back = rng.uniform(120, 255, 3), rng.uniform(0, 90, 3)
        image = (
            np.where(canvas[..., None], front, back)
            + noise * rng.standard_normal((side,) * 2)[..., None]
        )
        x[i] = np.clip(image, 0, 255).astype(np.uint8)
    return x, labels[chosen]


def textures(
    truth: str, rng: np.random.Generator, n: int = 1250, side: int = 16, noise: float = 0.7
) -> Labelled:
    """Gratings (n, side, side) whose wave vector is told up to the truth."""
    waves = np.array(
        [(a, b) for low, high in ((1, 2), (1, 3), (2, 3)) for a, b in _turned(low, high)]
    )
    labels = np.arange(len(waves)) % 4  # (a, b), (b, -a), (a, -b), (b, a)
    told = {
        "z2": labels,
        "p4": labels // 2,
        "flips": labels % 2,
        "p4m": np.zeros_like(labels),
    }[truth]
    chosen = rng.integers(len(waves), size=n)
    rows, columns = np.mgrid[:side, :side]
    k = waves[chosen][:, :, None, None]
    phase = rng.uniform(0, 2 * np.pi, (n, 1, 1))
    x = np.cos(2 * np.pi / side * (k[:, 0] * rows + k[:, 1] * columns) + phase)
    x += noise * rng.standard_normal(x.shape)
    return x.astype(np.float32), (chosen // 4) * 4 + told[chosen]


def _turned(low: int, high: int) -> list[tuple[int, int]]:
    """A wave vector, its quarter turn, its mirror image, and the quarter turn of that.

    Vectors that differ by their sign are the same.
    """
    return [(low, high), (high, -low), (low, -high), (high, low)]


def footprints(
    truth: str, rng: np.random.Generator, n: int = 1250, side: int = 8, noise: float = 0.2
) -> Labelled:
    """Handed shapes (n, side, side); labels tell the shape and, by the truth, more.

    flips: nothing else. z2: its hand. glide: whether its hand agrees with the parity of its row,
    which a step down with a mirror leaves alone and either of the two alone does not.
    """
    kinds = ("l", "s")
    chosen, hand = rng.integers(len(kinds), size=n), rng.integers(2, size=n)
    row, column = rng.integers(side, size=(2, n))
    x = noise * rng.standard_normal((n, side, side))
    for i in range(n):
        mask = picture(HANDED[kinds[chosen[i]]], bool(hand[i]))
        canvas = np.zeros((side, side))
        canvas[: mask.shape[0], : mask.shape[1]] = mask
        x[i] += np.roll(canvas, (row[i], column[i]), (0, 1))
    more = {"flips": np.zeros_like(hand), "z2": hand, "glide": hand ^ (row % 2)}[truth]
    return x.astype(np.float32), 2 * chosen + more


def sequences(
    truth: str, rng: np.random.Generator, n: int = 1250, length: int = 32, noise: float = 0.3
) -> Labelled:
    """Ramps and pulses (n, 1, length) at random places, reversed or not; z1: which is a label."""
    motifs = (
        (0.2, 0.4, 0.6, 0.8, 1.0),
        (1.0, -1.0, 0.5, 0.0, 0.0),
        (1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0),
    )
    chosen, backward = rng.integers(len(motifs), size=n), rng.integers(2, size=n)
    x = noise * rng.standard_normal((n, 1, length))
    for i in range(n):
        motif = np.array(motifs[chosen[i]])[:: -1 if backward[i] else 1]
        canvas = np.zeros(length)
        canvas[: len(motif)] = motif
        x[i, 0] += np.roll(canvas, rng.integers(length))
    return x.astype(np.float32), chosen * 2 + (backward if truth == "z1" else 0)


def sets(truth: str, rng: np.random.Generator, n: int = 1250, points: int = 8) -> Labelled:
    """Points with one feature (n, 1, points), and their labels."""
    x = rng.standard_normal((n, 1, points))
    return x.astype(np.float32), set_labels(truth, x)


def set_labels(truth: str, x: Array) -> Array:
    """s8: the quartile of the largest. cyclic8: do many exceed both neighbours? none: where it is.

    The quartiles are those of all sets.
    """
    if truth == "s8":
        largest = x.max((1, 2))
        return np.asarray(np.searchsorted(np.quantile(largest, (0.25, 0.5, 0.75)), largest))
    if truth == "cyclic8":
        peaks = (x > np.roll(x, 1, 2)) & (x > np.roll(x, -1, 2))
        return np.asarray(peaks.sum((1, 2)) > 2, int)
    return np.asarray(x[:, 0].argmax(1))


def random_labels(rng: np.random.Generator, n: int = 500, side: int = 8) -> Labelled:
    """Random pixels with random labels."""
    return rng.standard_normal((n, side, side)).astype(np.float32), rng.integers(5, size=n)


def constant_images(rng: np.random.Generator, n: int = 500) -> Labelled:
    """Images of one grey with random labels."""
    return np.full((n, 8, 8), 0.5, np.float32), rng.integers(3, size=n)


def _line() -> GroupSet:
    return GroupSet(translations(1), line_reflections())


def _points() -> GroupSet:
    return GroupSet(cyclic(8), permutations(8))


ALL_HANDED, FEW = frozenset(HANDED), {**PLAIN, "l": HANDED["l"]}
TASKS: dict[str, Task] = {
    **{
        f"digits-{name}": Task(NONE if name == "trivial" else name, partial(_digits, name))
        for name in ("p4m", "p4", "flips", "z2", "trivial")
    },
    **{
        f"mnist-{name}": Task(NONE if name == "trivial" else name, partial(_mnist, name))
        for name in ("p4m", "p4", "flips", "z2", "trivial")
    },
    "shapes-handed": Task("p4", partial(_folder, partial(shapes, HANDED, ALL_HANDED), "z2,p4,p4m")),
    "shapes-mirrored": Task(
        "p4m", partial(_folder, partial(shapes, HANDED, frozenset()), "z2,p4,p4m")
    ),
    "shapes-few-handed": Task("p4", partial(_own, partial(shapes, FEW, ALL_HANDED), "z2,p4,p4m")),
    **{
        f"textures-{name}": Task(name, partial(_own, partial(textures, name), IMAGES))
        for name in ("z2", "flips", "p4", "p4m")
    },
    **{
        f"footprints-{name}": Task(name, partial(_glide, name)) for name in ("glide", "flips", "z2")
    },
    **{
        f"sequences-{name}": Task(name, arrays=partial(sequences, name), groups=_line)
        for name in ("z1", "line_reflections")
    },
    **{
        f"sets-{name}": Task(name, arrays=partial(sets, name), groups=_points)
        for name in ("s8", "cyclic8", NONE)
    },
    "random-labels": Task(UNDECIDED, partial(_own, random_labels, IMAGES)),
    "constant-images": Task(UNDECIDED, partial(_own, constant_images, IMAGES)),
    "twenty-digits": Task(UNDECIDED, partial(_digits, "p4", train_size=20)),
}


def has_mnist() -> bool:
    """Whether the directory $GROUPELLA_DATA has the MNIST files."""
    from groupella.data import DataError, named_directory, verify

    if named_directory() is None:
        return False
    try:
        return all(check.ok for check in verify("mnist"))
    except (DataError, ValueError):
        return False
