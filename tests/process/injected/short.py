"""Run a Python program whose writes are short: `python short.py once|full N MARK PROGRAM …`.

`once`: the kernel is asked to write the first bytes only of the Nth write, and that is what it says
it has done; the next write does what it is asked. The file MARK is made when it has come to that.

`full`: nothing is written beyond offset N of any file. The write that would is a short one, and the
next one fails: what a full disk does.
"""

from __future__ import annotations

import os
import resource
import runpy
import sys
from pathlib import Path
from typing import Any

MOST_BYTES = 5


def shorten(number: int, mark: Path) -> None:
    """Let the Nth write from now on be short, whether it has an offset or none."""
    left = number

    def shortened(real: Any) -> Any:
        def write(fd: int, data: Any, *offset: int) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                mark.touch()
                data = data[:MOST_BYTES]
            return real(fd, data, *offset)

        return write

    os.write = shortened(os.write)
    os.pwrite = shortened(os.pwrite)


if __name__ == "__main__":
    _, how, number, mark, *sys.argv = sys.argv
    if how == "once":
        shorten(int(number), Path(mark))
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(number), int(number)))
    runpy.run_path(sys.argv[0], run_name="__main__")
