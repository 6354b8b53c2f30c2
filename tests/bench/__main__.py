"""Run all benches, one after the other: `python -m tests.bench [--short | --save] [NAME …]`.

Each works in its own temporary folder. The run fails if mail or a turn was lost or a bench could
not run, and never because of a time. `--short` is for CI: it runs several benches at once, so that
its times mean nothing; `--save` writes the help topic and the picture of a full run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.bench import page, ruler
from tests.forked.client import SHARED_VARIABLE

_NAMES: Final = tuple(page.SECTIONS)
_AT_ONCE: Final = 4
_REPOSITORY: Final = Path(__file__).parents[2]


def main() -> int:
    """Run the named benches, or all; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(_NAMES)}")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--short", action="store_true", help="a minute at most in all")
    how.add_argument("--save", action="store_true", help="all benches; keep what they print")
    given = parser.parse_args()
    if unknown := set(given.names) - set(_NAMES):
        parser.error(f"no such bench: {', '.join(sorted(unknown))}")
    if given.save and given.names:
        parser.error("a run is saved whole: give no names")
    print(ruler.machine(), flush=True)
    names = given.names or _NAMES
    outputs = (_run_short if given.short else _run_long)(names)
    if failed := [name for name, output in outputs.items() if output is None]:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    if given.save:
        page.write({name: output or "" for name, output in outputs.items()})
    return 0


def _run_short(names: Sequence[str]) -> dict[str, str | None]:
    """Run short benches, several at once; they share the process of `tests.forked`."""
    with tempfile.TemporaryDirectory() as shared, ThreadPoolExecutor(_AT_ONCE) as pool:
        variables = {SHARED_VARIABLE: shared}
        begun = {name: pool.submit(_run, name, variables, short=True) for name in names}
        outputs = {}
        for name, bench in begun.items():
            outputs[name] = bench.result()
            print(f"## {name}\n\n{outputs[name] or ''}", flush=True)
    return outputs


def _run_long(names: Sequence[str]) -> dict[str, str | None]:
    outputs = {}
    for name in names:
        print(f"## {name}\n", flush=True)
        outputs[name] = _run(name, {}, short=False)
    return outputs


def _run(name: str, variables: Mapping[str, str], *, short: bool) -> str | None:
    """Run a bench and return its output; print that of a long one as it comes.

    Returns:
        `None` if the bench fails.
    """
    path = os.pathsep.join(filter(None, (str(_REPOSITORY), os.environ.get("PYTHONPATH"))))
    lines = []
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
        argv = [sys.executable, "-u", "-m", f"tests.bench.{name}", *(["--short"] if short else [])]
        environment = {**os.environ, "PYTHONPATH": path, **variables}
        with subprocess.Popen(
            argv, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if not short:
                    print(line, end="", flush=True)
                lines.append(line)
    return None if process.returncode else "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
