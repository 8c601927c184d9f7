"""`python -m groupella.networks`: every preset, our count, the paper's.

"one bias a layer" is the network with our biases, "paper's biases" the one with those of the
published code, "published" what that code counts (in brackets what the paper prints).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from ._presets import PRESETS


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 when a count differs from the published one."""
    parser = argparse.ArgumentParser(
        prog="python -m groupella.networks",
        description="The networks of the paper's tables and their numbers of parameters.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args(arguments)
    rows = [
        {
            "name": row.name,
            "ours": row.count(paper_biases=False),
            "paper_biases": row.count(paper_biases=True),
            "published": row.published,
            "printed": row.printed,
        }
        for row in PRESETS.values()
    ]
    wrong = [r for r in rows if r["published"] not in (None, r["paper_biases"])]
    if options.json:
        print(json.dumps({"presets": rows, "all_equal": not wrong}))
        return int(bool(wrong))
    width = max(len(row.name) for row in PRESETS.values())
    print(f"{'preset':<{width}} {'one bias a layer':>17} {'paper biases':>13}  published")
    for r in rows:
        published = f"{r['published']:>13,}" if r["published"] else f"{'':>13}"
        print(
            f"{r['name']:<{width}} {r['ours']:>17,} {r['paper_biases']:>13,} {published}"
            f"  ({r['printed']})"
        )
    for r in wrong:
        print(f"{r['name']}: {r['paper_biases']:,} instead of {r['published']:,}")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
