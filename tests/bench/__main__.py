"""Run all benches, one after the other: `python -m tests.bench [--short] [NAME …]`.

Each works in a temporary folder of its own. It fails where mail or a turn was lost, or a bench
could not be run, and never for a time: `--short`, a minute in all, is for CI.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

_NAMES: Final = (
    "mail", "wake", "turn", "spawn", "memory", "resume", "growth", "fairness", "commands",
    "roster", "tokens",
)  # fmt: skip
_REPOSITORY: Final = Path(__file__).parents[2]


def main() -> int:
    """Run those that are named, or all; return 1 where one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(_NAMES)}")
    parser.add_argument("--short", action="store_true", help="a minute in all")
    given = parser.parse_args()
    if unknown := set(given.names) - set(_NAMES):
        parser.error(f"no such bench: {', '.join(sorted(unknown))}")
    options = ["--short"] if given.short else []
    failed = [name for name in given.names or _NAMES if not _runs(name, options)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _runs(name: str, options: list[str]) -> bool:
    print(f"## {name}\n", flush=True)
    path = os.pathsep.join(filter(None, (str(_REPOSITORY), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
        argv = [sys.executable, "-m", f"tests.bench.{name}", *options]
        done = subprocess.run(argv, cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=False)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
