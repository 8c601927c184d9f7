"""Is a law the same in all directions? Find out from data.

The force on a charge in a magnetic field along z, from its velocity and place: it turns with the
coordinates only about the z axis, so the answer is "SO(2)z".
"""

import torch

from groupella.groups import GroupSet, V, about_axis, orthogonal, rotations
from groupella.training import EquivarianceSettings, find_equivariance

groups = GroupSet(orthogonal(3), rotations(3), about_axis(2))

torch.manual_seed(0)
velocity, place = torch.randn(500, 3), torch.randn(500, 3)
field = torch.tensor([0.0, 0.0, 1.0]).expand(500, 3)
force = torch.linalg.cross(velocity, field) - 0.5 * place

found = find_equivariance(
    (torch.cat([velocity, place], 1), force),
    groups,
    groups.space((), 2, V),
    groups.space((), 1, V),
    EquivarianceSettings(channels=4, depth=1, epochs=30, batch_size=32, lr=0.02),
    say=print,
)
print("the force obeys", found.verdict)
