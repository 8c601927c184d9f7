"""How good predicted probabilities are, against those of the weights alone ("map").

Networks of five tasks: handed footprints (glide), coloured shapes, sequences, turned digits, sets.
Each is trained by `groupella.select`, whose `predict_proba` is compared, and by `fit`, with
`Predictive.calibrated` on a quarter of its data. Both see test data, and strange ones: noise of the
data's own size added, a contrast of two, every third number put to the mean. A number is NLL /
expected calibration error. Then the share of real targets inside intervals, for regressions, and
inside Gaussian ones of the same variance.

laplace-torch, where it is installed, gets the networks of `fit`: last layer, Kronecker factors,
prior precision by marginal likelihood, probit.
"""

# mypy: disable-error-code="import-untyped, import-not-found, no-untyped-call"
from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_diabetes, load_digits, make_friedman1
from torch import Tensor, nn

import groupella
from groupella.curvature import mc
from groupella.evidence import Evidence, Predictive, calibration_error
from groupella.evidence.likelihoods import Categorical, Gaussian
from groupella.experiments.planted import _select_tasks as planted
from groupella.training import fit

Array = npt.NDArray[Any]
Make = Callable[[np.random.Generator, int], tuple[Array, Array]]
TRAIN, TEST, STRANGE = 400, 1000, 400
LEVELS = (0.5, 0.9)


@dataclass(frozen=True)
class Task:
    """How data are made, and the groups to choose among."""

    make: Make
    groups: Any
    task: str = "classes"
    train: int = TRAIN
    test: int = TEST


def turned_digits(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Digits turned by random quarter turns."""
    x, y = load_digits(return_X_y=True)
    chosen = rng.permutation(len(y))[:n]
    turns = rng.integers(4, size=n)
    images = x.reshape(-1, 8, 8)[chosen]
    return np.stack([np.rot90(i, t) for i, t in zip(images, turns, strict=True)]), y[chosen]


def maxima_of_sets(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Sets of eight numbers; in which quartile the largest is."""
    x, y = planted.sets("s8", rng, n)
    return x[:, 0], y


def summed_sets(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Sets of six numbers; Σ sin 2x and noise."""
    x = rng.normal(size=(n, 6))
    return x, np.sin(2 * x).sum(1) + 0.5 * rng.normal(size=n)


def wave_numbers(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Waves at any phase; their amplitude and noise."""
    amplitude, phase = rng.uniform(0.5, 2, n), rng.uniform(0, 2 * np.pi, n)
    x = np.cos(2 * np.pi / 16 * np.arange(16) + phase[:, None]) * amplitude[:, None]
    return x[:, None] + 0.2 * rng.normal(size=(n, 1, 16)), amplitude + 0.1 * rng.normal(size=n)


def neighbours(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """White noise; its covariance at a lag of one, and noise of t with five degrees of freedom."""
    x = rng.normal(size=(n, 1, 20))
    y = (x[:, 0, 1:] * x[:, 0, :-1]).sum(1) / 4
    return x, y + 0.4 * rng.standard_t(5, size=n)


def diabetes(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    x, y = load_diabetes(return_X_y=True)
    chosen = rng.permutation(len(y))[:n]
    return x[chosen], y[chosen]


def friedman(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    x, y = make_friedman1(n, noise=1.0, random_state=int(rng.integers(1 << 30)))
    return x, y


def glide() -> Any:
    space: dict[str, Any] = {}
    exec(planted.GLIDE_FILE, space)  # a text of our own
    return space["glide"]


TASKS = {
    "glide": Task(lambda rng, n: planted.footprints("glide", rng, n), glide()),
    "shapes": Task(
        lambda rng, n: planted.shapes(planted.HANDED, planted.ALL_HANDED, rng, n, noise=60.0), "p4"
    ),
    "sequences": Task(lambda rng, n: planted.sequences("z1", rng, n), "z1"),
    "digits": Task(turned_digits, "p4"),
    "sets": Task(maxima_of_sets, "permutations"),
    "summed sets": Task(summed_sets, "permutations", "regression"),
    "waves": Task(wave_numbers, "z1", "regression"),
    "neighbours": Task(neighbours, "z1", "regression"),
    "diabetes": Task(diabetes, "permutations", "regression", 220, 222),
    "friedman1": Task(friedman, "permutations", "regression"),
}


def strange(x: Array, rng: np.random.Generator) -> dict[str, Array]:
    """Inputs unlike those of training, by what was done to them."""
    x = x[:STRANGE].astype(float)
    mean, std = x.mean(), x.std()
    return {
        "noisy": x + std * rng.normal(size=x.shape),
        "contrast": mean + 2 * (x - mean),
        "erased": np.where(rng.random(x.shape) < 1 / 3, mean, x),
    }


def score(p: Array | Tensor, y: Array) -> str:
    """NLL / expected calibration error."""
    p, labels = torch.as_tensor(p).double(), torch.as_tensor(y)
    nll = -float(p[torch.arange(len(labels)), labels].log().mean())
    return f"{nll:6.3f} / {calibration_error(p, labels):.3f}"


def by_select(
    task: Task, rng: np.random.Generator, seed: int, settings: dict[str, Any]
) -> dict[str, list[str]]:
    x, y = task.make(rng, task.train + task.test)
    train, test = (x[: task.train], y[: task.train]), (x[task.train :], y[task.train :])
    answer = groupella.select(
        *train, task.groups, task=task.task, width=16, looks=1, layers=False, seed=seed, **settings
    )
    if task.task == "regression":
        assert answer.predictive is not None
        found = {"": coverage(lambda level: answer.interval(test[0], level), test[1])}
        answer.predictive.residuals = None
        gaussian = coverage(lambda level: answer.interval(test[0], level), test[1])
        return found | {"Gaussian": gaussian}
    names = np.array(answer.targets.names)
    shown = {"verdict": [answer.verdict, f"T {answer.temperature:.2f}"]}
    for what, inputs in {"usual": test[0], **strange(test[0], rng)}.items():
        labels = (test[1][: len(inputs), None] == names).argmax(1)
        plain = answer.outputs(inputs).double().softmax(1)
        shown[what] = [score(plain, labels), score(answer.predict_proba(inputs), labels)]
    return shown


def by_fit(
    task: Task, rng: np.random.Generator, seed: int, settings: dict[str, Any]
) -> dict[str, list[str]]:
    n = task.train
    x, y = task.make(rng, n + task.test)
    mean, std = x[:n].mean(), x[:n].std()
    if task.task == "classes":
        y = np.unique(y, return_inverse=True)[1]
    targets = torch.tensor(y) if task.task == "classes" else torch.tensor(y[:, None]).float()

    def ready(values: Array) -> Tensor:
        return torch.tensor((values - mean) / std, dtype=torch.float32).flatten(1)

    part = 3 * n // 4
    data, held = ((ready(x[a:b]), targets[a:b]) for a, b in ((0, part), (part, n)))
    torch.manual_seed(seed)
    outputs = int(targets.max()) + 1 if task.task == "classes" else 1
    network = nn.Sequential(
        nn.Linear(data[0].shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
        nn.Linear(64, outputs),
    )  # fmt: skip
    likelihood = Categorical() if task.task == "classes" else Gaussian()
    result = fit(
        network, data, likelihood, method="map", epochs=settings.get("epochs", 60), lr=0.005,
        batch_size=50, seed=seed, progress=False,
    )  # fmt: skip
    evidence = Evidence(network, result.evidence.likelihood)
    evidence.update(data, mode=mc(4, seed=seed))
    predictive = Predictive(evidence).calibrated(*held)
    test_x, test_y = x[n:], y[n:]
    if task.task == "regression":

        def bounds(level: float) -> list[Array]:
            return [b[:, 0].numpy() for b in predictive.interval(ready(test_x), level)]

        shown = {"": coverage(bounds, test_y)}
        predictive.residuals = None
        return shown | {"Gaussian": coverage(bounds, test_y)}
    other = laplace(network, data) if importlib.util.find_spec("laplace") else None
    found = {}
    for what, inputs in {"usual": test_x, **strange(test_x, rng)}.items():
        labels, z = test_y[: len(inputs)], ready(inputs)
        rows = [predictive.probabilities(z, "map"), predictive.probabilities(z)]
        rows += [] if other is None else [other(z)]
        found[what] = [score(p, labels) for p in rows]
    return found


def laplace(network: nn.Module, data: tuple[Tensor, Tensor]) -> Callable[[Tensor], Tensor]:
    from laplace import Laplace
    from torch.utils.data import DataLoader, TensorDataset

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Laplace(
            network, "classification", subset_of_weights="last_layer", hessian_structure="kron"
        )
        made.fit(DataLoader(TensorDataset(*data), batch_size=50))
        made.optimize_prior_precision(method="marglik")
    return lambda z: made(z, link_approx="probit").detach().double()


def coverage(bounds: Callable[[float], Any], y: Array) -> list[str]:
    found = []
    for level in LEVELS:
        low, high = bounds(level)
        found.append(f"{level:.0%}: {np.mean((low <= y) & (y <= high)):.1%}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--route", choices=("select", "fit", "both"), default="both")
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--epochs", type=int, help="of each training, instead of its own number")
    given = parser.parse_args()
    settings = {} if given.epochs is None else {"epochs": given.epochs}
    torch.set_num_threads(1)
    routes = {"select": by_select, "fit": by_fit}
    for number, (name, task) in enumerate(TASKS.items()):
        if name not in given.tasks:
            continue
        for route, work in routes.items():
            if given.route not in (route, "both"):
                continue
            rng = np.random.default_rng([given.seed, number])
            started = time.process_time()
            found = work(task, rng, given.seed, settings)
            print(f"{name}, {route} ({time.process_time() - started:.0f} s of CPU)")
            for what, columns in found.items():
                print(f"  {what:9}", *(f"{column:>15}" for column in columns), flush=True)


if __name__ == "__main__":
    main()
