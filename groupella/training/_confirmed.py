"""`confirmed`: does what the evidence says of a network hold on held-out data?

The evidence is learned from all training data, by approximations that err on the side of symmetry.
So a verdict that names a group is tested as `find_symmetry` tests its candidates: on a part of the
data, a network that obeys nothing and one that obeys the group are trained, and on the rest it is
measured what averaging over the group and imposing it cost. A verdict that fails becomes
"undecided", with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from groupella.decide import Selection
from groupella.decide.claims import Consequence, Judgement
from groupella.groups import GroupSet

from ._candidates import FindSettings
from ._fit import OnEpoch
from ._symmetry import judged


def confirmed(
    found: Selection,
    data: tuple[Tensor, Tensor],
    groups: GroupSet,
    outputs: int | None = None,
    settings: FindSettings | None = None,
    *,
    task: str = "classes",
    directory: str | Path | None = None,
    progress: bool = True,
    say: Callable[[str], None] | None = None,
    on_epoch: OnEpoch | None = None,
) -> tuple[Selection, tuple[Consequence, ...]]:
    """Return a selection whose verdict on the network was tested, and the table behind it.

    A verdict that names no group is returned as it is, with an empty table.

    Parameters
    ----------
    found
        What the evidence says.
    data, groups, outputs, task
        The training data, the group set of the network, and what the targets are; see
        `find_symmetry`.
    settings
        How to train and test; `layers` and `confirm` have no effect. The level is shared by all
        groups that the evidence could have named.
    directory, progress, say, on_epoch
        As in `find_symmetry`.
    """
    names = found.obeys
    if not names:
        return found, ()
    chosen = settings or FindSettings()
    share = len(names) / max(len(found.candidates.names), 1)
    claims = replace(chosen.claims, level=chosen.claims.level * share)
    judgement, table = judged(
        data,
        GroupSet(*(groups[name] for name in names)),
        outputs,
        replace(chosen, claims=claims, confirm="predictions", layers=False),
        task=task,
        directory=directory,
        progress=progress,
        say=say,
        on_epoch=on_epoch,
    )
    return replace(found, judgement=_weighed(found, names, judgement)), table


def _weighed(found: Selection, names: tuple[str, ...], tested: Judgement) -> Judgement:
    """What evidence and test say together: the evidence's verdict, or undecided."""
    if tested.obeys is not None and set(tested.obeys) == set(names):
        return replace(tested, obeys=names, reason=f"by the evidence, and {tested.reason}")
    return Judgement(
        None,
        tested.probability if tested.obeys is None else 0.0,
        f"the evidence says {found.verdict}, but on held-out data it does not hold: "
        f"{tested.reason}",
        tested.findings,
        open=tested.open,
    )
