"""Run a Python program whose Nth write is a short one: `python short.py N MARK PROGRAM ARGUMENT …`.

The kernel is asked to write the first bytes only, and that is what it says it has done; the next
write does what it is asked. The file MARK is made when it has come to that.
"""

from __future__ import annotations

import os
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
    _, number, mark, *sys.argv = sys.argv
    shorten(int(number), Path(mark))
    runpy.run_path(sys.argv[0], run_name="__main__")
