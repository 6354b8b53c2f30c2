"""The postman's program, which only teamd starts; see `start`."""

from __future__ import annotations

import sys

from teamd.files.paths import TeamPaths
from teamd.masking import Mask
from teamd.messages import TEAMD
from teamd.postman.build import live
from teamd.postman.start import read_command
from teamd.process_title import set_title


def main() -> int:
    """Run the postman; return the exit code."""
    root, settings = read_command(sys.argv[1:])
    set_title(f"{TEAMD}: hosts")
    return live(TeamPaths(root), settings, Mask())


if __name__ == "__main__":
    sys.exit(main())
