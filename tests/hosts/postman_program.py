"""A postman without teamd: `python -m tests.hosts.postman_program TEAM-DIRECTORY NAME SERVER`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from teamd.files.paths import TeamPaths
from teamd.masking import Mask
from teamd.postman.build import live
from teamd.settings.hosts import HostSettings
from teamd.settings.schema import Settings


def main() -> int:
    """Be one until it is killed."""
    _, root, name, server = sys.argv
    settings = replace(Settings(), hosts=HostSettings(name=name, servers=(server,)))
    return live(TeamPaths(Path(root)), settings, Mask())


if __name__ == "__main__":
    sys.exit(main())
