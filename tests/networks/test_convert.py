"""Conversion of ordinary models: the same function, weights in the right path, reasons."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.decide import selection
from groupella.evidence import Evidence
from groupella.evidence.likelihoods import Categorical
from groupella.groups import GroupSet, p4, p4m, translations, trivial, z2
from groupella.harden import harden
from groupella.networks import convert, freeze_statistics
from groupella.nn.layer import ResidualPathway
from groupella.testing import equivariance_error


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class Block(nn.Module):
    """The basic block of a ResNet."""

    def __init__(self, c: int, c_out: int, stride: int, mode: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(c, c_out, 3, stride, 1, bias=False, padding_mode=mode)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False, padding_mode=mode)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.downsample = (
            nn.Sequential(nn.Conv2d(c, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))
            if stride > 1 or c != c_out
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.downsample(x))


class ResNet(nn.Module):
    def __init__(self, mode: str = "circular") -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1, padding_mode=mode)
        self.bn1 = nn.BatchNorm2d(4)
        self.layers = nn.Sequential(Block(4, 4, 1, mode), Block(4, 6, 2, mode))
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        z = self.layers(F.relu(self.bn1(self.conv1(x))))
        f: Tensor = self.fc(z.mean((2, 3)))
        return f


def vgg() -> nn.Module:
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(True)),
        nn.Flatten(),
        nn.Sequential(nn.Linear(6 * 4, 8), nn.ReLU(True), nn.Dropout(), nn.Linear(8, 3)),
    )


class Vit(nn.Module):
    """A small ViT, with a class token before the patches or after them."""

    def __init__(self, token: str = "") -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 2, stride=2)
        self.token = nn.Parameter(torch.zeros(1, 1, 8)) if token else None
        self.first = token == "first"
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        z = self.patches(x).flatten(2).mT
        if self.token is not None:
            token = self.token.expand(len(z), -1, -1)
            z = torch.cat([token, z] if self.first else [z, token], 1)
        f: Tensor = self.head(self.encoder(z).mean(1))
        return f


def trained(model: nn.Module, x: Tensor) -> nn.Module:
    """With statistics and factors that are not those of an untrained model."""
    for p in model.parameters():
        nn.init.normal_(p, std=0.5)
    model(x)
    return model.eval()


@pytest.mark.parametrize("mode", ["circular", "zeros", "reflect", "replicate"])
def test_a_resnet_computes_the_same_and_all_its_convolutions_are_converted(mode: str) -> None:
    x = torch.randn(4, 1, 8, 8)
    model = trained(ResNet(mode), x)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    done = convert(model, GroupSet(trivial(), z2(), p4m()), x)
    other = torch.randn(5, 1, 8, 8)
    torch.testing.assert_close(done.network(other), model(other), rtol=1e-4, atol=1e-5)
    assert done.difference < 1e-5
    assert [layer.name for layer in done.kept] == ["fc"]
    assert "no sites" in done.kept[0].note
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    shortcut = next(layer for layer in done.layers if "downsample" in layer.name)
    assert shortcut.lattice == (4, 4)
    assert "stride: 2×2" in shortcut.note


def test_a_vgg_is_converted_with_its_flattened_map() -> None:
    x = torch.randn(4, 1, 8, 8)
    model = trained(vgg(), x)
    done = convert(model, GroupSet(trivial(), z2(), p4()), x)
    other = torch.randn(5, 1, 8, 8)
    torch.testing.assert_close(done.network(other), model(other), rtol=1e-4, atol=1e-5)
    assert [layer.name for layer in done.layers if layer.converted] == ["0.0", "1.0", "3.0"]
    assert [layer.name for layer in done.kept] == ["3.3"]
    assert "no sites" in done.kept[0].note
    first, second, third = (layer for layer in done.layers if layer.converted)
    assert (first.lattice, second.lattice, third.lattice) == ((10, 10), (4, 4), (2, 2))
    assert third.shares is not None
    weight = model.get_submodule("3.0").weight.reshape(8, 6, 4)
    invariant = (weight.mean(2).square().sum() * 4 / weight.square().sum()).item()
    assert third.shares["p4"] == pytest.approx(invariant, abs=1e-5)
    layer = done.network.get_submodule("3.0").layer
    assert isinstance(layer, ResidualPathway)
    assert float(equivariance_error(layer.strict("p4"), layer.space_in, None, p4())) < 1e-5
    assert float(equivariance_error(layer, layer.space_in, None, p4())) > 0.1


@pytest.mark.parametrize("mode", [True, False])
def test_a_vit_is_converted_where_its_tokens_are_a_lattice(mode: bool) -> None:
    x = torch.randn(4, 1, 8, 6)
    model = trained(Vit(), x)
    done = convert(model, GroupSet(trivial(), z2()), x)
    with torch.set_grad_enabled(mode):
        torch.testing.assert_close(done.network(x), model(x), rtol=1e-4, atol=1e-5)
    converted = {layer.name: layer.lattice for layer in done.layers if layer.converted}
    linear = {f"encoder.linear{i}": (4, 3) for i in (1, 2)}
    assert converted == {"patches": (4, 3), **linear}
    notes = {layer.name: layer.note for layer in done.kept}
    assert "does not call it" in notes["encoder.self_attn.out_proj"]


@pytest.mark.parametrize("token", ["first", "last"])
def test_a_class_token_is_no_site_and_keeps_a_linear_layer(token: str) -> None:
    x = torch.randn(2, 1, 8, 6)
    model = trained(Vit(token), x)
    done = convert(model, GroupSet(trivial(), z2()), x)
    other = torch.randn(5, 1, 8, 6)
    torch.testing.assert_close(done.network(other), model(other), rtol=1e-4, atol=1e-5)
    rows = {layer.name: layer for layer in done.layers}
    assert rows["encoder.linear1"].lattice == (4, 3)
    assert rows["encoder.linear1"].note == "tokens are sites; linear for 1 more"
    # The layer of the sites moves patches and nothing else.
    made = done.network.get_submodule("encoder.linear1")
    z = torch.randn(1, 13, 8)
    with torch.no_grad():
        made.tokens.layer.paths["z2"].weight.zero_()
        changed = (made(z) - model.encoder.linear1(z)).abs().sum(2)[0] > 1e-4
    where = 0 if token == "first" else 12
    assert changed.tolist() == [i != where for i in range(13)]
    done.network(other).square().sum().backward()
    assert made.others.weight.grad.abs().max() > 0


class Registers(Vit):
    """Its further tokens depend on the image: no token is known to be no patch."""

    def forward(self, x: Tensor) -> Tensor:
        z = self.patches(x).flatten(2).mT
        f: Tensor = self.head(self.encoder(torch.cat([z.mean(1, keepdim=True), z], 1)).mean(1))
        return f


def test_tokens_of_unknown_origin_are_left_alone() -> None:
    x = torch.randn(2, 1, 8, 6)
    done = convert(trained(Registers(), x), GroupSet(trivial(), z2()), x)
    notes = {layer.name: layer.note for layer in done.kept}
    assert "13 tokens are no lattice of 2 axes: 12 patches and 1 more" in notes["encoder.linear1"]


def test_a_patch_embedding_turns_about_the_centres_of_its_patches() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 4, stride=4))
    x = torch.randn(2, 2, 16, 16)
    done = convert(model, GroupSet(z2(), p4()), x)
    torch.testing.assert_close(done.network(x), model(x), rtol=1e-4, atol=1e-5)
    (row,) = done.layers
    weight = model[0].weight.detach()
    mean = torch.stack([weight.rot90(k, (2, 3)) for k in range(4)]).mean(0)
    share = (mean.square().sum() / weight.square().sum()).item()
    assert row.shares == pytest.approx({"z2": 1 - share, "p4": share}, abs=1e-5)
    # The strict layer is the convolution with the mean filter: turning an image turns its output.
    pathway = done.network[0]
    pathway.layer = pathway.layer.strict("p4")
    torch.testing.assert_close(pathway(x), F.conv2d(x, mean, model[0].bias, 4))
    torch.testing.assert_close(pathway(x.rot90(1, (2, 3))), pathway(x).rot90(1, (2, 3)))


@pytest.mark.parametrize("dim", [1, 3])
def test_sequences_and_voxels(dim: int) -> None:
    conv = {1: nn.Conv1d, 3: nn.Conv3d}[dim]
    model = nn.Sequential(conv(2, 3, 3, padding=1), nn.ReLU(), conv(3, 2, 3, stride=2))
    x = torch.randn(2, 2, *[6] * dim)
    done = convert(model, GroupSet(trivial(), translations(dim)), x)
    torch.testing.assert_close(done.network(x), model(x), rtol=1e-4, atol=1e-5)
    assert not done.kept


def isotropic(weight: Tensor) -> Tensor:
    """The mean over the eight motions of a square."""
    turned = [weight.rot90(k, (2, 3)) for k in range(4)]
    return torch.stack([*turned, *(w.flip(3) for w in turned)]).mean(0)


def test_each_part_of_a_filter_is_in_the_path_of_its_symmetry() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"))
    x = torch.randn(2, 2, 6, 6)
    groups = GroupSet(trivial(), z2(), p4m())
    (row,) = convert(model, groups, x).layers
    weight = model[0].weight.detach()
    symmetric = (isotropic(weight).square().sum() / weight.square().sum()).item()
    assert row.shares is not None
    assert row.shares["p4m"] == pytest.approx(symmetric, abs=1e-5)
    assert row.shares["z2"] == pytest.approx(1 - symmetric, abs=1e-5)
    with torch.no_grad():
        model[0].weight.copy_(isotropic(weight))
    done = convert(model, groups, x)
    assert done.layers[0].shares == pytest.approx({"p4m": 1.0, "z2": 0.0}, abs=1e-6)
    layer = done.network[0].layer
    assert isinstance(layer, ResidualPathway)
    strict = layer.strict("p4m")
    assert float(equivariance_error(strict, layer.space_in, layer.space_out, p4m())) < 1e-5
    torch.testing.assert_close(strict(x), model(x), rtol=1e-4, atol=1e-5)


def test_overlapping_subspaces_still_sum_to_the_weight() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"))
    x = torch.randn(2, 2, 6, 6)
    for increments in (True, False):
        done = convert(model, ["p4", "flips(0)", "z2"], x, increments=increments)
        assert done.difference < 1e-5


def test_the_free_path_starts_at_zero_and_learns() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), nn.Flatten())
    x = torch.randn(4, 1, 4, 4)
    for free in ("F-FC", "FC", "S-FC"):
        network = convert(model, GroupSet(trivial(), z2()), x, free=free).network
        network(x).square().sum().backward()
        path = network[0].layer.paths[trivial().name]
        slopes = [p.grad.abs().max().item() for p in path.parameters() if p.grad is not None]
        assert max(slopes) > 0


def test_what_cannot_be_converted_is_said_layer_by_layer() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.Conv2d(4, 4, 3, padding=1, groups=4),
        nn.Conv2d(4, 4, 3, padding=2, dilation=2),
        nn.Conv2d(4, 4, 4, padding=1),
        nn.Conv2d(4, 4, 2, stride=2),
        nn.ConvTranspose2d(4, 4, 2, stride=2),
    )
    x = torch.randn(1, 1, 9, 9)
    done = convert(model, GroupSet(z2(), p4()), x)
    notes = [layer.note for layer in done.layers]
    assert done.layers[0].converted
    for note, words in zip(notes[1:4], ("4 groups", "dilated", "even side"), strict=True):
        assert words in note
    assert [layer.converted for layer in done.layers] == [True, False, False, False, True, False]
    assert "transposed" in notes[5]
    table = str(done)
    assert "kept" in table
    assert "relative difference of the outputs" in table
    with pytest.raises(ValueError, match=r"0: no path can hold \d+% of its weights: add z2"):
        convert(model[:1], GroupSet(trivial(), p4()), x)
    with pytest.raises(ValueError, match="no layer of the model can be converted"):
        convert(nn.Sequential(nn.Conv1d(1, 2, 3)), GroupSet(p4(), z2()), torch.randn(1, 1, 8))


def test_wrong_arguments_are_clear_errors() -> None:
    model, x = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1)), torch.randn(1, 1, 8, 8)
    assert convert(model, "z2,p4", x).layers[0].converted
    with pytest.raises(ValueError, match="no group 'p5'; did you mean 'p8'"):
        convert(model, "z2,p5", x)
    with pytest.raises(ValueError, match=r"the model fails on an example of shape \(1, 3, 8, 8\)"):
        convert(model, "z2", torch.randn(1, 3, 8, 8))
    with pytest.raises(TypeError, match="example must be a tensor of inputs, got ndarray"):
        convert(model, "z2", x.numpy())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="model must be a torch module, got function"):
        convert(lambda x: x, "z2", x)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [ResNet, lambda: Vit("first")], ids=["ResNet", "Vit"])
def test_a_converted_network_with_norms_has_evidence_and_a_selection(
    make: Callable[[], nn.Module],
) -> None:
    x, y = torch.randn(12, 1, 8, 8), torch.arange(12) % 3
    done = convert(trained(make(), x), GroupSet(trivial(), z2(), p4()), x)
    evidence = Evidence(done.network, Categorical())
    evidence.update((x, y))
    found = selection(done.network, evidence)
    converted = [layer.name for layer in done.layers if layer.converted]
    names = [name.removesuffix(".layer").removesuffix(".tokens") for name in found.verdicts]
    assert names == converted


class Mixer(nn.Module):
    """Channels last, as in Swin or an MLP mixer."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.one(x.movedim(1, -1)).tanh().flatten(1)
        return y


@pytest.mark.parametrize(
    "make", [ResNet, lambda: ResNet("zeros"), vgg, Vit, lambda: Vit("first"), Mixer]
)
def test_a_converted_network_hardens_to_plain_torch(make: Callable[[], nn.Module]) -> None:
    x = torch.randn(4, 2 if make is Mixer else 1, 8, 8)
    model = trained(make(), x)
    network = freeze_statistics(convert(model, GroupSet(z2(), trivial()), x).network)
    plain = harden(network, {}).eval()
    ours = [m for m in plain.modules() if type(m).__module__.startswith("groupella")]
    assert not ours
    torch.testing.assert_close(plain(x), model(x), rtol=1e-4, atol=1e-5)


def test_shared_modules_stay_shared() -> None:
    conv = nn.Conv2d(2, 2, 3, padding=1)
    model = nn.Sequential(conv, nn.ReLU(), conv)
    x = torch.randn(2, 2, 5, 5)
    done = convert(model, GroupSet(z2()), x)
    assert done.network[0] is done.network[2]
    assert done.difference < 1e-5
