"""The tasks: equations, what the groups do to inputs and targets, and the group that is obeyed.

Particles have masses m_i and positions x_i.

| task | target | obeys |
| --- | --- | --- |
| inertia | Σ m_i (|x_i|² 1 − x_i x_iᵀ) | O(3) |
| modified inertia | inertia + 0.3 (Σ m_i z_i²) ẑẑᵀ | rotations about z |
| torque | Σ m_i x_i × x_{i+1} | SO(3), not reflections |
| wind | Σ m_i x_i + (x̂·x_1) ŷ | none |
| pendulum | double pendulum of springs: change of both places and momenta after 0.5 | O(2)m z |
| breeze | the same in a light wind along x | O(2)m z to within 5 % |
| windy-pendulum | the same in a strong wind along x | none |
| two-body | two masses that attract each other: the change after 0.5 | O(3) |
| synthetic | sin|a| − |b|³/2 + a·b / |a||b|, a, b ∈ R⁵ | O(5) |
| particles | the matrix element of e μ scattering, from four four-momenta | SO(1,3) |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from groupella.groups import (
    SCALAR,
    FeatureSpace,
    GroupSet,
    Symmetry,
    Tensors,
    V,
    about_axis,
    lorentz,
    orthogonal,
    rotations,
)

PARTICLES = 5
TIME, STEPS = 0.5, 20
SPRING = 4.0
METRIC = torch.tensor([1.0, -1.0, -1.0, -1.0])


@dataclass(frozen=True)
class Task:
    """A law: the candidates, the spaces of inputs and targets, the law itself, and the truth.

    Parameters
    ----------
    name
        How the task is called.
    candidates
        The groups to choose among, besides none.
    channels, inputs, outputs
        Copies of the fibre of the inputs, that fibre, and that of the targets.
    law
        Targets from inputs (n, channels·fibre).
    draw
        Inputs (n, channels·fibre) from standard normal numbers of that shape.
    obeys
        The strictest candidate that the law obeys, or "none".
    copies
        Copies of the fibre of the targets.
    within
        How far the law is from obeying it, as a share of the targets' spread.
    """

    name: str
    candidates: tuple[Symmetry, ...]
    channels: int
    inputs: Tensors
    outputs: Tensors
    law: Callable[[Tensor], Tensor]
    draw: Callable[[Tensor], Tensor]
    obeys: str
    copies: int = 1
    within: float = 0.0

    @property
    def groups(self) -> GroupSet:
        return GroupSet(*self.candidates)

    def spaces(self) -> tuple[FeatureSpace, FeatureSpace]:
        """The spaces of inputs and targets."""
        groups = self.groups
        return (
            groups.space((), self.channels, self.inputs),
            groups.space((), self.copies, self.outputs),
        )

    def data(self, n: int, seed: int) -> tuple[Tensor, Tensor]:
        """n inputs and targets; different seeds give different data."""
        generator = torch.Generator().manual_seed(seed)
        shape = (n, *self.spaces()[0].shape)
        x = self.draw(torch.randn(shape, generator=generator, dtype=torch.double))
        return x.float(), self.law(x).float()


def _bodies(x: Tensor) -> tuple[Tensor, Tensor]:
    """Masses (n, k) and positions (n, k, 3)."""
    each = x.view(len(x), PARTICLES, 4)
    return each[..., 0], each[..., 1:]


def _positive_masses(x: Tensor) -> Tensor:
    each = x.view(len(x), PARTICLES, 4).clone()
    each[..., 0] = softplus(each[..., 0])
    return each.view(len(x), -1)


def _inertia(x: Tensor) -> Tensor:
    mass, place = _bodies(x)
    squares = place.square().sum(-1)[..., None, None] * torch.eye(3, dtype=x.dtype)
    outer = place[..., :, None] * place[..., None, :]
    total: Tensor = (mass[..., None, None] * (squares - outer)).sum(1)
    return total.flatten(1)


def _modified_inertia(x: Tensor) -> Tensor:
    mass, place = _bodies(x)
    found = _inertia(x)
    found[:, 8] += 0.3 * (mass * place[..., 2].square()).sum(1)
    return found


def _torque(x: Tensor) -> Tensor:
    mass, place = _bodies(x)
    total: Tensor = (mass[..., None] * torch.linalg.cross(place, place.roll(-1, 1))).sum(1)
    return total


def _wind(x: Tensor) -> Tensor:
    mass, place = _bodies(x)
    moment = (mass[..., None] * place).sum(1)
    moment[:, 1] += 2 * place[:, 0, 0]
    return moment


def _synthetic(x: Tensor) -> Tensor:
    a, b = x[:, :5], x[:, 5:]
    first, second = torch.linalg.norm(a, dim=1), torch.linalg.norm(b, dim=1)
    found: Tensor = first.sin() - second**3 / 2 + (a * b).sum(1) / (first * second)
    return found[:, None]


def _particles(x: Tensor) -> Tensor:
    p, p_after, q, q_after = x.view(len(x), 4, 4).unbind(1)
    metric = METRIC.to(x)

    def tensor(before: Tensor, after: Tensor) -> Tensor:
        """4 (pᵘ p̃ᵛ + pᵛ p̃ᵘ − (p·p̃ − p·p) gᵘᵛ), indices up."""
        outer = before[:, :, None] * after[:, None, :]
        rest = (before * metric * (after - before)).sum(1)
        return 4 * (outer + outer.mT - rest[:, None, None] * torch.diag(metric))

    lowered = metric[:, None] * tensor(q, q_after) * metric
    return (tensor(p, p_after) * lowered).sum((1, 2))[:, None]


def _flow(force: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> Tensor:
    """Change of (q₁, q₂, p₁, p₂) after `TIME`, unit masses, by Runge and Kutta's fourth order."""

    def rate(z: Tensor) -> Tensor:
        q, p = z[:, :2], z[:, 2:]
        return torch.cat([p, force(q, p)], 1)

    start = z = x.view(len(x), 4, 3)
    h = TIME / STEPS
    for _ in range(STEPS):
        a = rate(z)
        b = rate(z + h / 2 * a)
        c = rate(z + h / 2 * b)
        d = rate(z + h * c)
        z = z + h / 6 * (a + 2 * b + 2 * c + d)
    return (z - start).flatten(1)


def _pendulum(wind: float) -> Callable[[Tensor], Tensor]:
    """Springs of length 1 from the origin to q₁ and on to q₂, gravity along −z, wind along x."""

    def force(q: Tensor, p: Tensor) -> Tensor:
        first, second = q[:, 0], q[:, 1] - q[:, 0]
        pull = [s * (1 - 1 / torch.linalg.norm(s, dim=1, keepdim=True)) for s in (first, second)]
        weight = q.new_tensor([wind, 0.0, -1.0])
        return torch.stack([SPRING * (pull[1] - pull[0]), -SPRING * pull[1]], 1) + weight

    return lambda x: _flow(force, x)


def _hanging(x: Tensor) -> Tensor:
    """Pendulums near rest: q₁ near (0, 0, −1.3), q₂ near (0, 0, −2.5)."""
    rest = x.new_tensor([[0, 0, -1.3], [0, 0, -2.5], [0, 0, 0], [0, 0, 0]])
    return (rest + 0.5 * x.view(len(x), 4, 3)).flatten(1)


def _two_body(x: Tensor) -> Tensor:
    def force(q: Tensor, p: Tensor) -> Tensor:
        apart = q[:, 1] - q[:, 0]
        pull = 2 * apart / (apart.square().sum(1, keepdim=True) + 0.25) ** 1.5
        return torch.stack([pull, -pull], 1)

    return _flow(force, x)


def _spatial() -> Symmetry:
    """The rotations among the Lorentz transformations."""
    algebra = [x.fibre for x in lorentz().algebra if abs(x.fibre + x.fibre.T).max() < 1e-12]
    return Symmetry.from_lie_algebra("SO(3)", algebra)


_THREE = (orthogonal(3), rotations(3), about_axis(2))


def _of_bodies(name: str, outputs: Tensors, law: Callable[[Tensor], Tensor], obeys: str) -> Task:
    return Task(name, _THREE, PARTICLES, SCALAR + V, outputs, law, _positive_masses, obeys)


_UPRIGHT = (orthogonal(3), about_axis(2, "mirrors"), about_axis(2))


def _of_pendulum(name: str, wind: float, obeys: str, within: float = 0.0) -> Task:
    return Task(name, _UPRIGHT, 4, V, V, _pendulum(wind), _hanging, obeys, 4, within)


TASKS = {
    task.name: task
    for task in (
        _of_pendulum("pendulum", 0.0, "O(2)mz"),
        _of_pendulum("breeze", 0.02, "O(2)mz", 0.05),
        _of_pendulum("windy-pendulum", 1.0, "none"),
        Task("two-body", _THREE, 4, V, V, _two_body, lambda x: x, "O(3)", 4),
        _of_bodies("inertia", V * V, _inertia, "O(3)"),
        _of_bodies("modified-inertia", V * V, _modified_inertia, "SO(2)z"),
        _of_bodies("torque", V, _torque, "SO(3)"),
        _of_bodies("wind", V, _wind, "none"),
        Task(
            "synthetic",
            (orthogonal(5), rotations(5)),
            2,
            V,
            SCALAR,
            _synthetic,
            lambda x: x,
            "O(5)",
        ),
        Task(
            "particles",
            (lorentz(), _spatial()),
            4,
            V,
            SCALAR,
            _particles,
            lambda x: x / 4,
            "SO(1,3)",
        ),
    )
}
