"""From names to normalised, reproducible data sets."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from groupella.data import (
    TRANSFORMS,
    DataError,
    Images,
    Moved,
    Rotated,
    digits,
    labelled,
    load,
)
from groupella.groups import c4, p4, p4m, trivial, z2


@pytest.mark.parametrize("name", ["digits", *(f"digits:{t}" for t in TRANSFORMS)])
def test_digits_are_normalised_by_the_training_images(name: str) -> None:
    data = load(name)
    assert (len(data.train_y), len(data.test_y)) == (1400, 397)
    assert data.name == name
    assert data.train_x.dtype == torch.float32
    assert data.train_y.dtype == torch.int64
    assert data.train_x.mean().item() == pytest.approx(0, abs=1e-5)
    assert data.train_x.std().item() == pytest.approx(1, abs=1e-4)
    assert data.test_x.mean().item() != pytest.approx(0, abs=1e-4)
    assert 0 <= data.train_y.min() < data.train_y.max() == len(data.classes) - 1
    assert data.channels == 1
    assert data.lattice in {(8, 8), (16, 16)}
    pixels = data.pixels(data.train_x)
    assert pixels.min().item() == pytest.approx(0, abs=1e-5)
    assert pixels.max().item() == pytest.approx(1, abs=0.02)


def test_digits_are_scikit_learns_and_splits_do_not_overlap() -> None:
    from sklearn.datasets import load_digits

    images = digits()
    ours = torch.cat([images.train_x, images.test_x]).flatten(1).numpy() * 16
    theirs = load_digits().data
    assert sorted(map(bytes, ours.astype(np.uint8))) == sorted(map(bytes, theirs.astype(np.uint8)))


@pytest.mark.parametrize("name", ["digits:rotated", "digits:translated", "digits:quadrants+label"])
def test_the_seed_decides_everything(name: str) -> None:
    first, again, other = load(name, seed=1), load(name, seed=1), load(name, seed=2)
    assert torch.equal(first.train_x, again.train_x)
    assert torch.equal(first.train_y, again.train_y)
    assert torch.equal(first.test_x, again.test_x)
    assert not torch.equal(first.train_x, other.train_x)


def test_train_and_test_motions_are_drawn_independently() -> None:
    x = torch.rand(300, 1, 8, 8)
    same = Images("same", x, torch.zeros(300).long(), x, torch.zeros(300).long(), ("a",))
    data = load(same, "quadrants+label")
    assert not torch.equal(data.train_y, data.test_y)


def test_global_random_state_is_neither_used_nor_changed() -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    first = load("digits:rotated")
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(4)
    assert torch.equal(load("digits:rotated").train_x, first.train_x)


def test_two_tasks_with_one_seed_differ_only_in_their_labels() -> None:
    plain, quadrant = load("digits:quadrants"), load("digits:quadrants+label")
    assert torch.equal(plain.train_x, quadrant.train_x)
    assert torch.equal(plain.test_x, quadrant.test_x)
    assert torch.equal(plain.train_y, quadrant.train_y // 4)
    assert (plain.obeys, quadrant.obeys) == ("z2", "trivial")
    assert (len(plain.classes), len(quadrant.classes)) == (10, 40)


def test_loading_does_not_change_what_was_read() -> None:
    images = digits()
    before = images.train_x.clone()
    load(images)
    load(images, train_size=1400)
    assert torch.equal(images.train_x, before)


def test_a_part_of_the_data(tiny_cifar10, tmp_path) -> None:
    small, large = load("digits", train_size=100, test_size=50), load("digits", train_size=200)
    assert (len(small.train_y), len(small.test_y)) == (100, 50)
    rows = {bytes(row) for row in small.pixels(small.train_x).mul(16).round().byte().numpy()}
    more = {bytes(row) for row in large.pixels(large.train_x).mul(16).round().byte().numpy()}
    assert rows <= more
    assert small.train_x.mean().item() == pytest.approx(0, abs=1e-5)
    with pytest.raises(ValueError, match="train_size=2000, but there are 1400"):
        load("digits", train_size=2000)


def test_chosen_classes_are_renumbered() -> None:
    data = load("digits", keep=("7", "2", "5"))
    assert data.classes == ("7", "2", "5")
    assert set(data.train_y.tolist()) == {0, 1, 2}
    images = digits()
    assert int((data.train_y == 0).sum()) == int((images.train_y == 7).sum())
    with pytest.raises(ValueError, match="must name different classes"):
        load("digits", keep=("7", "x"))


def test_mnist_comes_in_the_papers_size(tiny_mnist, tmp_path) -> None:
    tiny_mnist.write(tmp_path)
    for name, classes in (("mnist", 10), ("mnist:quadrants+label", 40), ("mnist:rotated", 10)):
        data = load(name, data_dir=tmp_path, download=False)
        assert data.lattice == (32, 32)
        assert len(data.classes) == classes
        assert data.augmentation is None
    assert load("mnist", size=16, data_dir=tmp_path).lattice == (16, 16)


def test_cifar_is_augmented_as_in_the_paper_unless_labels_forbid_it(tiny_cifar10, tmp_path) -> None:
    tiny_cifar10.write(tmp_path / "cifar10")
    data = load("cifar10", data_dir=tmp_path)
    assert data.train_x.shape == (20, 3, 32, 32)
    torch.testing.assert_close(
        data.train_x.double().mean((0, 2, 3)), torch.zeros(3).double(), atol=1e-6, rtol=0
    )
    augmentation = data.augmentation
    assert augmentation is not None
    assert (augmentation.shift, augmentation.flip) == (4, True)
    black = data.pixels(torch.tensor(augmentation.fill).view(1, 3, 1, 1))
    torch.testing.assert_close(black, torch.zeros(1, 3, 1, 1), atol=1e-6, rtol=0)
    assert load("cifar10:rotated", data_dir=tmp_path).augmentation is not None
    assert load("cifar10:mirrored+label", data_dir=tmp_path).augmentation is None


def test_labelled_tasks() -> None:
    invariant, partly, free = (labelled(p4(), obeys) for obeys in (None, z2(), trivial()))
    assert [len(d.classes) for d in (invariant, partly, free)] == [10, 40, 160]
    assert [d.obeys for d in (invariant, partly, free)] == ["p4", "z2", "trivial"]
    assert [d.name for d in (invariant, partly)] == ["digits:p4", "digits:p4→z2"]
    assert invariant.lattice == (16, 16)
    turned = labelled(c4(), trivial(), keep="2457", size=12, train_size=300)
    assert turned.train_x.shape == (300, 1, 12, 12)
    assert len(turned.classes) == 16
    assert turned.remarks


def test_any_group_moves_any_data() -> None:
    data = load("digits", Moved(p4m()), train_size=200)
    assert data.name == "digits:p4m"
    assert data.obeys == "p4m"
    total = data.pixels(data.train_x).sum((1, 2, 3))
    before = digits().train_x.sum((1, 2, 3))
    assert set((total * 16).round().int().tolist()) <= set((before * 16).round().int().tolist())


def test_a_transformation_object_or_a_name_but_not_both() -> None:
    by_name, by_object = load("digits", "rotated"), load("digits", Rotated(canvas=16))
    assert torch.equal(by_name.train_x, by_object.train_x)
    assert by_name.name == by_object.name == "digits:rotated"
    with pytest.raises(ValueError, match="was given as well"):
        load("digits:rotated", "mirrored")


def test_unknown_names_are_clear_errors() -> None:
    with pytest.raises(DataError, match=r"no data set 'mnits'.*digits, mnist, cifar10, cifar100"):
        load("mnits")
    with pytest.raises(ValueError, match="no transformation 'twisted'; known are quadrants"):
        load("digits", "twisted")
    with pytest.raises(DataError, match="'digits:twisted'"):
        load("digits:twisted")


def test_data_sets_travel_between_processes() -> None:
    data = labelled(p4(), trivial(), train_size=20, test_size=10)
    copy = pickle.loads(pickle.dumps(data))
    assert torch.equal(copy.train_x, data.train_x)
    assert copy.classes == data.classes
    assert "20 + 10 images of 1×16×16, 160 classes" in repr(copy)


def test_a_constant_channel_does_not_give_nan() -> None:
    x = torch.zeros(10, 2, 4, 4)
    x[:, 0] = torch.rand(10, 4, 4)
    y = torch.arange(10) % 2
    data = load(Images("flat", x, y, x, y, ("a", "b")))
    assert torch.isfinite(data.train_x).all()
    assert (data.train_x[:, 1] == 0).all()
