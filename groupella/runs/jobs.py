"""A job: everything that decides the result of one run, as plain values for its settings.json."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .estimate import check_estimate, costs
from .spelling import axes, group_set, one_group

if TYPE_CHECKING:
    from groupella.data import ImageData
    from groupella.groups import GroupSet
    from groupella.networks import Trunk
    from groupella.training import FindSettings, Fit, Settings

Blocks = tuple[tuple[int, int], ...]

# What `select`, `sweep` and the demo train with, found by trial on the embedded digits. Complete,
# so that results do not change when the defaults of `Settings` do.
TRAINING: Mapping[str, Any] = {
    "epochs": 50,
    "batch_size": 32,
    "lr": 0.005,
    "method": "fixed_point",
    "burn_in": 10,
    "update_every": 2,
    "hyper_steps": 5,
    "prune_from": 0.5,
    "curvature_subset": 200,
    "curvature_samples": 4,
}


@dataclass(frozen=True)
class Job:
    """Select among `groups` on `data`.

    Parameters
    ----------
    title
        Heading of the report.
    data
        Data set, as in `groupella.data.load`.
    groups, motion, obeys
        Names, or file.py:NAME. With `motion`, images are moved by random elements of that group
        and labelled so that the labels obey `obeys`.
    keep
        Classes to keep, separated by commas.
    task
        "classes", "regression" or "multilabel"; None as the targets of `data` are.
    size, train_size
        Side of the images, and number of training images.
    fitting, most
        How oblong images become square, and the number of pixels to which large images are averaged
        where `size` is None; see `groupella.data.load`.
    paths, increments
        As in `groupella.nn.layer.ResidualPathway`.
    alpha, blocks, hidden
        Size of the trunk. ``blocks=None`` halves the lattice down to 2 sites.
    preset
        Row of the paper's tables, a name in `groupella.networks.PRESETS`, instead of `groups`,
        `paths`, `blocks` and `hidden`.
    init
        How paths start: "earn" or "balanced".
    prior
        What the prior precisions apply to: "weights" or "lengthscales".
    seed
        Random seed for data, weights and batch order.
    search
        "confirm" trains a network for every candidate and tests each on held-out data
        (`groupella.training.find_symmetry`). "paths" trains one network with a path for every
        group, whose precisions the evidence learns (`groupella.training.fit`).
    tested
        Whether a verdict of "paths" is tested on held-out data (`groupella.training.confirmed`).
    training
        Changes to `groupella.training.Settings`; with "confirm" only `epochs`, and
        `looks`, `layers` and `confirm` of `groupella.training.FindSettings`.
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
    search: str = "paths"
    training: Mapping[str, Any] = field(default_factory=dict)
    task: str | None = None
    fitting: str | None = None
    most: int | None = None
    tested: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def check(self) -> None:
        """Raise `ValueError` if the settings of the training are not as they must be."""
        from groupella._schema import build
        from groupella.training import FindSettings, Settings

        if self.search == "confirm":
            build(FindSettings, {**self._of_search(), "seed": self.seed}, "training")
        else:
            build(Settings, {**self.training, "seed": self.seed}, "training")

    def digest(self, budget: float | None = None) -> str:
        """Return eight hexadecimal digits that differ between jobs and budgets."""
        text = json.dumps([self.as_dict(), budget], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def epochs(self) -> int | None:
        """Epochs of each training; None if a search chooses them by the number of data."""
        return self.find_settings().epochs if self.search == "confirm" else self.settings().epochs

    def for_epochs(self, epochs: int) -> Job:
        return replace(self, training={**self.training, "epochs": epochs})

    @property
    def source(self) -> str:
        """The name of the data set without its transformation."""
        from groupella.data import TRANSFORMS

        name, colon, transform = self.data.rpartition(":")
        return name if colon and transform in TRANSFORMS else self.data

    def own_files(self) -> dict[str, Path]:
        """Return the user's files that decide the result, by name; not the modules they import."""
        from groupella.data import BASES

        groups = (self.groups, self.motion or "", self.obeys or "")
        names = [text.rpartition(":")[0] for text in groups if ".py:" in text]
        if self.source not in BASES:
            names.append(self.source)
        return {name: Path(name).expanduser() for name in names}

    def load(self, data_dir: str | None = None, progress: bool = True) -> ImageData:
        """Return the data; the same job always gives the same data."""
        from groupella.data import labelled, load, needs_square

        square, most = False, self.most
        if most is not None:
            members = self.group_set((3,))
            square = needs_square(members)
            most = most if all(m.is_catalogue for m in members) else None
        options: dict[str, Any] = {
            "size": self.size,
            "seed": self.seed,
            "train_size": self.train_size,
            "keep": None if self.keep is None else self.keep.split(","),
            "data_dir": data_dir,
            "progress": progress,
            "fit": self.fitting,
            "most": most,
            "square": square,
        }
        if self.motion is None:
            kind = None if self.preset is not None else axes(self.groups)
            return load(self.data, axes=kind, task=self.task, **options)
        obeys = None if self.obeys is None else one_group(self.obeys)
        return labelled(one_group(self.motion), obeys, self.data, **options)

    def group_set(self, lattice: tuple[int, ...] | None = None) -> GroupSet:
        """Return the groups; some need the lattice of the data, such as "permutations"."""
        if self.preset is not None:
            from groupella.networks import PRESETS

            return PRESETS[self.preset].groups
        return group_set(self.groups, points=lattice[0] if lattice else None)

    def network(self, data: ImageData) -> Trunk:
        """Return a freshly initialised network; torch's global random state does not change."""
        import torch

        from groupella.networks import preset, trunk

        common: dict[str, Any] = {
            "alpha": self.alpha,
            "image_size": data.lattice,
            "classes": len(data.classes),
            "in_channels": data.channels,
            "init": self.init,
        }
        self._check_memory(data)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            if self.preset is not None:
                return preset(self.preset, **common)
            groups = self.group_set(data.lattice)
            return trunk(
                groups,
                self.paths,
                blocks=self.blocks or halving(data.lattice),
                hidden=self.hidden,
                increments=self.increments,
                **common,
            )

    def _check_memory(self, data: ImageData) -> None:
        """Raise if the machine cannot hold what the network needs, before any of it is made."""
        from groupella.networks import PAPER_BLOCKS, PRESETS

        groups, paths = self.group_set(data.lattice), self.paths
        blocks: Blocks = self.blocks or halving(data.lattice)
        if self.preset is not None:
            paths, blocks = PRESETS[self.preset].paths, PAPER_BLOCKS
        if not data.lattice:
            return
        settings = self.settings()
        offsets = self.preset is None
        found = costs(groups, paths, data.lattice, self.alpha, blocks, offsets=offsets)
        values = data.channels * math.prod(data.lattice)
        check_estimate(found, settings.learns_precisions, values, settings.batch_size)

    def find_settings(self) -> FindSettings:
        """Return the settings of the search "confirm", or of the test of a verdict of "paths"."""
        from groupella.training import FindSettings

        return FindSettings(width=8 * self.alpha, seed=self.seed, **self._of_search())

    def _of_search(self) -> dict[str, Any]:
        own = ("epochs", "looks", "layers", "confirm") if self.search == "confirm" else ()
        return {k: v for k, v in self.training.items() if k in own}

    def settings(self) -> Settings:
        from groupella.training import Settings

        return Settings(**{"seed": self.seed, **self.training})

    def fit(self, network: Trunk, data: ImageData, settings: Settings, **options: Any) -> Fit:
        """Call `groupella.training.fit` with the job's prior and the augmentation of the data."""
        from groupella.evidence import Prior
        from groupella.evidence.likelihoods import likelihood_of
        from groupella.training import fit

        return fit(
            network,
            (data.train_x, data.train_y),
            likelihood_of(data.targets.kind),
            settings,
            prior=Prior.from_network(network, on=self.prior),  # type: ignore[arg-type]
            augment=data.augmentation,
            **options,
        )


def halving(lattice: tuple[int, ...]) -> Blocks:
    """Return layers that halve the lattice down to 2 sites per side and widen to 4α."""
    side = min(lattice)
    blocks: list[tuple[int, int]] = []
    while side >= 4 and side % 2 == 0:
        blocks.append((min(2 ** len(blocks), 4), 2))
        side //= 2
    return tuple(blocks) or ((1, 1), (2, 1), (4, 1))
