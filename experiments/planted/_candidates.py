"""The symmetries that students of the benchmark choose among."""

from __future__ import annotations

from groupella.groups import GroupSet, flips, p4, p4m, trivial, z2

CANDIDATES = GroupSet(trivial(), z2(), flips(), p4(), p4m())
