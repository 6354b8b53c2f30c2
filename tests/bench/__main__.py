"""Run all benches, one after the other: `python -m tests.bench [--short | --save] [NAME …]`.

Each works in its own temporary folder. The run fails if mail or a turn was lost or a bench could
not run, and never because of a time. `--short` takes a minute in all and is for CI; `--save` writes
the help topic and the picture of a full run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.bench import page, ruler

_NAMES: Final = tuple(page.SECTIONS)
_REPOSITORY: Final = Path(__file__).parents[2]


def main() -> int:
    """Run the named benches, or all; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(_NAMES)}")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--short", action="store_true", help="a minute in all")
    how.add_argument("--save", action="store_true", help="all benches; keep what they print")
    given = parser.parse_args()
    if unknown := set(given.names) - set(_NAMES):
        parser.error(f"no such bench: {', '.join(sorted(unknown))}")
    if given.save and given.names:
        parser.error("a run is saved whole: give no names")
    options = ["--short"] if given.short else []
    print(ruler.machine(), flush=True)
    outputs = {name: _run(name, options) for name in given.names or _NAMES}
    if failed := [name for name, output in outputs.items() if output is None]:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    if given.save:
        page.write({name: output or "" for name, output in outputs.items()})
    return 0


def _run(name: str, options: list[str]) -> str | None:
    """Run a bench, print its output and return it; `None` if the bench fails."""
    print(f"## {name}\n", flush=True)
    path = os.pathsep.join(filter(None, (str(_REPOSITORY), os.environ.get("PYTHONPATH"))))
    lines = []
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
        argv = [sys.executable, "-u", "-m", f"tests.bench.{name}", *options]
        environment = {**os.environ, "PYTHONPATH": path}
        with subprocess.Popen(
            argv, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line)
    return None if process.returncode else "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
