"""Runs a Python program with short writes: `python short.py once|full N MARK PROGRAM …`.

`once`: the Nth write only writes its first bytes and returns their number, as the kernel may; the
next write is complete. The file MARK is created at the Nth write.

`full`: nothing is written beyond offset N of any file. The write that would do so is a short one,
and the next one fails, as on a full disk.
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
    """Make the Nth write from now on short, with or without an offset."""
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
