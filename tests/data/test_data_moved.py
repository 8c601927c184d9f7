"""Motions by groups, and labels that obey exactly the planted symmetry."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from groupella.data import Moved
from groupella.data._moved import act_each
from groupella.groups import (
    GroupSet,
    Symmetry,
    c2,
    c4,
    d4,
    flips,
    mirror,
    p2,
    p4,
    p4m,
    trivial,
    z2,
)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("group", [z2(), p4(), p4m(), flips(0), c4(), mirror(1), trivial()])
def test_act_each_equals_acting_one_by_one(group: Symmetry) -> None:
    space = GroupSet(group).space((6, 6), 2, fibre="trivial")
    elements = space.sample(group, 40, seed=1)
    x = torch.rand(40, 2, 6, 6)
    expected = torch.cat([space.act(g, x[n : n + 1]) for n, g in enumerate(elements)])
    assert torch.equal(act_each(space, elements, x), expected)


def test_act_each_does_signs_and_general_orthogonal_maps() -> None:
    signed = Symmetry.from_generators("minus", (2, 2), [-np.eye(4)])
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    general = Symmetry.from_generators("turn", (2, 1), [np.diag([1.0, -1.0]) @ turn])
    for group, shape in ((signed, (2, 2)), (general, (2, 1))):
        space = GroupSet(group).space(shape, 1, fibre="trivial")
        elements = space.sample(group, 30, seed=1)
        x = torch.rand(30, 1, *shape, dtype=torch.float64)
        expected = torch.cat([space.act(g, x[n : n + 1]) for n, g in enumerate(elements)])
        torch.testing.assert_close(act_each(space, elements, x), expected)
        assert len(set(elements)) == 2


def test_moved_by_quarter_turns_is_rot90() -> None:
    x = torch.rand(200, 1, 5, 5)
    moved, y = Moved(c4(), obeys=trivial())(x, torch.zeros(200, dtype=torch.long), None, rng())
    names = Moved(c4(), obeys=trivial()).task(("thing",), (5, 5)).classes
    times = {"thing, unmoved": 0, "thing, rot90": 1, "thing, rot180": 2, "thing, rot270": 3}
    assert set(names) == set(times)
    expected = [
        torch.rot90(image, times[names[label]], (1, 2)) for image, label in zip(x, y, strict=True)
    ]
    assert torch.equal(moved, torch.stack(expected))
    assert (torch.bincount(y) > 30).all()


def test_mirrored_is_left_right() -> None:
    x = torch.rand(100, 1, 4, 4)
    moved, y = Moved(mirror(axis=1), obeys=trivial())(x, torch.zeros(100).long(), None, rng())
    expected = torch.where(y.view(-1, 1, 1, 1) == 1, x.flip(-1), x)
    assert torch.equal(moved, expected)


def test_quadrants_are_the_papers() -> None:
    x = torch.rand(400, 1, 8, 8)
    digit = torch.arange(400) % 10
    task = Moved(z2(), obeys=trivial(), place="quadrant")
    moved, y = task(x, digit, None, rng())
    assert moved.shape == (400, 1, 16, 16)
    assert torch.equal(y // 4, digit)
    for n in range(400):
        i, j = divmod(int(y[n]) % 4, 2)
        expected = torch.zeros(1, 16, 16)
        expected[:, 8 * i : 8 * i + 8, 8 * j : 8 * j + 8] = x[n]
        assert torch.equal(moved[n], expected)
    assert task.task(("a",), (16, 16)).classes == (
        "a, top left",
        "a, top right",
        "a, bottom left",
        "a, bottom right",
    )
    assert (torch.bincount(y % 4) > 60).all()


@pytest.mark.parametrize("place", ["quadrant", "centre"])
def test_tasks_on_one_group_show_the_same_images(place: str) -> None:
    x, y = torch.rand(50, 1, 8, 8), torch.arange(50)
    group = p4() if place == "quadrant" else c4()
    subgroups = (None, c2(), trivial())
    tasks = [Moved(group, obeys, place)(x, y, None, rng()) for obeys in subgroups]
    assert torch.equal(tasks[0][1], y)
    for images, labels in tasks[1:]:
        assert torch.equal(images, tasks[0][0])
        assert torch.equal(labels // (labels.max() // 49), y)


PLANTED = [
    (group, subgroup)
    for group, subgroups in {
        p4m(): (p4m(), p4(), flips(1), flips(0), p2(), z2(), d4(), c4(), mirror(0), trivial()),
        p4(): (p4(), p2(), z2(), c4(), c2(), trivial()),
    }.items()
    for subgroup in subgroups
]


@pytest.mark.parametrize(("group", "obeys"), PLANTED)
@pytest.mark.parametrize("everywhere", [False, True])
def test_labels_are_invariant_under_the_planted_group_and_nothing_else(
    group: Symmetry, obeys: Symmetry, everywhere: bool
) -> None:
    """A table of every image that can occur and its label, asked what each element does to it."""
    side = 8
    x = torch.rand(1, 1, 4, 4).expand(6000, 1, 4, 4)
    task = Moved(group, obeys, place="quadrant", everywhere=everywhere)
    images, labels = task(x, torch.zeros(6000).long(), None, rng())
    space = GroupSet(group).space((side, side), 1, fibre="trivial")

    label_of: dict[bytes, int] = {}
    for image, label in zip(images, labels.tolist(), strict=True):
        assert label_of.setdefault(image.numpy().tobytes(), label) == label

    first = {label: k for k, label in reversed(list(enumerate(labels.tolist())))}
    keep = set(space.elements(obeys))
    halves = [g for g in space.elements(group) if all(t in (0, side // 2) for t in g.shift)]
    for g in halves:
        moved = space.act(g, images[list(first.values())])
        seen = [label_of.get(image.numpy().tobytes()) for image in moved]
        assert None not in seen
        unchanged = all(a == b for a, b in zip(seen, first, strict=True))
        assert unchanged == (g in keep)

    points = {p4m(): 8, p4(): 4}
    index = 4 * points[group] // sum(g in keep for g in halves)
    assert set(labels.tolist()) == set(range(index))
    assert len(task.task(("thing",), (side, side)).classes) == index


def test_everywhere_reaches_every_site() -> None:
    x = torch.zeros(4000, 1, 4, 4)
    x[:, :, 0, 0] = 1
    few, _ = Moved(z2(), place="quadrant")(x, torch.zeros(4000), None, rng())
    many, _ = Moved(z2(), place="quadrant", everywhere=True)(x, torch.zeros(4000), None, rng())
    assert int((few.sum((0, 1)) > 0).sum()) == 4
    assert int((many.sum((0, 1)) > 0).sum()) == 64


def test_in_the_centre_nothing_is_cut() -> None:
    x = torch.rand(30, 1, 8, 8)
    moved, _ = Moved(d4(), place="centre")(x, torch.zeros(30), None, rng())
    assert moved.shape == (30, 1, 16, 16)
    torch.testing.assert_close(moved[..., 4:12, 4:12].sum((1, 2, 3)), x.sum((1, 2, 3)))
    assert float(moved.sum()) == pytest.approx(float(x.sum()), rel=1e-5)


def test_a_group_by_generators() -> None:
    swap = np.arange(16).reshape(4, 4)[::-1, ::-1].ravel()
    group = Symmetry.from_generators("half turn", (4, 4), [swap])
    x = torch.rand(60, 1, 4, 4)
    moved, y = Moved(group, obeys=trivial())(x, torch.zeros(60).long(), None, rng())
    expected = torch.where(y.view(-1, 1, 1, 1) == 1, x.flip(-1, -2), x)
    assert torch.equal(moved, expected)
    with pytest.raises(ValueError, match="'quadrant' needs a catalogue group"):
        Moved(group, place="quadrant")


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="labels cannot obey p4m: it is no subgroup of p4"):
        Moved(p4(), obeys=p4m())
    x, y = torch.rand(4, 1, 16, 16), torch.zeros(4).long()
    with pytest.raises(ValueError, match="too many classes; place the images in a quadrant"):
        Moved(z2(), obeys=trivial())(x, y, None, rng())
    with pytest.raises(ValueError, match="mirror"):
        Moved(c4(), obeys=mirror(1))(x, y, None, rng())
    with pytest.raises(ValueError, match="whole number of pixels"):
        Moved(z2(), place="quadrant")(x, y, 15, rng())


def test_remarks_say_what_cannot_be_told_apart() -> None:
    assert Moved(z2(), obeys=trivial(), place="quadrant").task(("a",), (8, 8)).remarks == ()
    (depends,) = Moved(c4(), obeys=trivial()).task(("a",), (8, 8)).remarks
    assert "0, 1 and 8" in depends
    (invariant,) = Moved(c4()).task(("a",), (8, 8)).remarks
    assert "6 and 9" in invariant
    assert len(Moved(c4(), obeys=c2()).task(("a",), (8, 8)).remarks) == 2
