"""Thresholds of the methods whose papers have none: method → family of tasks → largest number.

Each has most right less wrong verdicts on the tuning seeds. `_thresholds.json` is written by

    python -m groupella.experiments.peers.tune
"""

from __future__ import annotations

import json
from pathlib import Path

TABLE = Path(__file__).with_name("_thresholds.json")
THRESHOLDS: dict[str, dict[str, float]] = json.loads(TABLE.read_text(encoding="utf-8"))
