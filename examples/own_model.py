"""Convert a model of your own and ask, layer by layer, which symmetry it should have.

A small ResNet with BatchNorm learns digits of 8×8 pixels. `convert` gives its layers a path for
shifts (z2), one for shifts and turns (p4) and one without symmetry, with the trained weights in the
right paths, so that it computes the same. Then the evidence decides.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from groupella import convert
from groupella.networks import freeze_statistics
from groupella.training import fit


def conv(c_in, c_out, stride=1):
    return nn.Conv2d(c_in, c_out, 3, stride, padding=1, padding_mode="circular", bias=False)


class Block(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv1, self.bn1 = conv(c_in, c_out, stride=2), nn.BatchNorm2d(c_out)
        self.conv2, self.bn2 = conv(c_out, c_out), nn.BatchNorm2d(c_out)
        self.shortcut = nn.Conv2d(c_in, c_out, 1, stride=2)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


torch.manual_seed(0)
model = nn.Sequential(
    conv(1, 6), nn.BatchNorm2d(6), nn.ReLU(), Block(6, 12), nn.Flatten(), nn.Linear(192, 10)
)
x, y = map(torch.from_numpy, load_digits(return_X_y=True))
x = (x.float() / 8 - 1).view(-1, 1, 8, 8)
train, test = (x[:600], y[:600]), (x[600:], y[600:])

fit(model, train, method="map", epochs=8, lr=0.01, progress=False)
done = convert(model, ["trivial", "z2", "p4"], x[:1])
print(done)

network = freeze_statistics(done.network)
options = {"update_every": 2, "curvature_subset": 200, "curvature_samples": 1}
result = fit(network, train, epochs=10, validation=test, progress=False, **options)
print(f"held-out accuracy {result.history[-1].validation_accuracy:.2f}")
for layer, verdict in result.selection().verdicts.items():
    print(layer, "obeys", verdict)
