"""The postman's program, which only teamd starts; see `start`."""

from __future__ import annotations

import sys

from teamd.files.paths import TeamPaths
from teamd.masking import Mask
from teamd.postman.build import live
from teamd.postman.start import read_command


def main() -> int:
    """Run the postman; return the exit code."""
    root, settings = read_command(sys.argv[1:])
    return live(TeamPaths(root), settings, Mask())


if __name__ == "__main__":
    sys.exit(main())
