"""A job: everything that decides one run, as plain values that go into its settings.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupella.runs.spelling import group_set, one_group

if TYPE_CHECKING:
    from groupella.data import ImageData
    from groupella.groups import GroupSet
    from groupella.networks import Trunk
    from groupella.training import Settings

Blocks = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Job:
    """Select among `groups` on `data`.

    data: as in `groupella.data.load`; with `motion`, its images moved by that group and
        labelled so that the labels obey `obeys`; `keep` names classes, with commas between
    groups: names, or file.py:NAME, as also `motion` and `obeys`
    paths, increments: as in `groupella.nn.layer.ResidualPathway`
    alpha, blocks, hidden: the trunk; `blocks=None` halves the lattice until 2 sites are left
    preset: instead of `groups`, `paths`, `blocks` and `hidden`, a row of the paper's tables by its
        name in `groupella.networks.PRESETS`
    init, prior: of the paths ("earn" or "balanced"), and where it lies ("weights", "lengthscales")
    training: changes of `groupella.training.Settings`
    """

    title: str
    data: str
    groups: str
    motion: str | None = None
    obeys: str | None = None
    keep: str | None = None
    size: int | None = None
    train_size: int | None = None
    paths: str | None = None
    increments: bool = True
    alpha: int = 4
    blocks: Blocks | None = None
    hidden: int = 8
    preset: str | None = None
    init: str = "earn"
    prior: str = "weights"
    seed: int = 0
    training: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Job:
        blocks = content["blocks"]
        plan = None if blocks is None else tuple((int(w), int(s)) for w, s in blocks)
        return cls(**{**content, "blocks": plan})

    def for_epochs(self, epochs: int) -> Job:
        return replace(self, training={**self.training, "epochs": epochs})

    @property
    def source(self) -> str:
        """The data without the transformation that their name may end in."""
        from groupella.data import TRANSFORMS

        name, colon, transform = self.data.rpartition(":")
        return name if colon and transform in TRANSFORMS else self.data

    def own_files(self) -> dict[str, Path]:
        """The user's own files that decide the result, by their names; not what these import."""
        from groupella.data import BASES

        groups = (self.groups, self.motion or "", self.obeys or "")
        names = [text.rpartition(":")[0] for text in groups if ".py:" in text]
        if self.source not in BASES:
            names.append(self.source)
        return {name: Path(name).expanduser() for name in names}

    def load(self, data_dir: str | None = None, progress: bool = True) -> ImageData:
        """The data, the same for the same job."""
        from groupella.data import labelled, load

        options: dict[str, Any] = {
            "size": self.size,
            "seed": self.seed,
            "train_size": self.train_size,
            "keep": None if self.keep is None else self.keep.split(","),
            "data_dir": data_dir,
            "progress": progress,
        }
        if self.motion is None:
            return load(self.data, **options)
        obeys = None if self.obeys is None else one_group(self.obeys)
        return labelled(one_group(self.motion), obeys, self.data, **options)

    def group_set(self) -> GroupSet:
        if self.preset is not None:
            from groupella.networks import PRESETS

            return PRESETS[self.preset].groups
        return group_set(self.groups)

    def network(self, data: ImageData) -> Trunk:
        """Freshly initialised from the seed; torch's own random state is left alone."""
        import torch

        from groupella.networks import preset, trunk

        common: dict[str, Any] = {
            "alpha": self.alpha,
            "image_size": data.lattice,
            "classes": len(data.classes),
            "in_channels": data.channels,
            "init": self.init,
        }
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            if self.preset is not None:
                return preset(self.preset, **common)
            return trunk(
                self.group_set(),
                self.paths,
                blocks=self.blocks or halving(data.lattice),
                hidden=self.hidden,
                increments=self.increments,
                **common,
            )

    def settings(self) -> Settings:
        from groupella.training import Settings

        return Settings(**{"seed": self.seed, **self.training})


def halving(lattice: tuple[int, ...]) -> Blocks:
    """Layers that halve the lattice while that leaves at least 2 sites a side, and widen to 4α."""
    side = min(lattice)
    blocks: list[tuple[int, int]] = []
    while side >= 4 and side % 2 == 0:
        blocks.append((min(2 ** len(blocks), 4), 2))
        side //= 2
    return tuple(blocks) or ((1, 1), (2, 1), (4, 1))
