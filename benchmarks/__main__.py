"""Run every benchmark here, or those named, one after the other in a process of its own.

A benchmark is a module whose name does not begin with an underscore.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(wanted: list[str]) -> int:
    names = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(names)}", file=sys.stderr)
        return 2
    failed = []
    for name in wanted or names:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
