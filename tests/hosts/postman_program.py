"""A postman without teamd: `python -m tests.hosts.postman_program DIRECTORY NAME CONNECTION…`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from teamd.files.paths import TeamPaths
from teamd.masking import Mask
from teamd.postman.process import live
from teamd.settings.schema import HostSettings, Settings


def main() -> int:
    """Run a postman until killed."""
    _, root, name, server, *files = sys.argv
    cert, key, ca = map(Path, files)
    settings = replace(
        Settings(), hosts=HostSettings(name=name, servers=(server,), cert=cert, key=key, ca=ca)
    )
    return live(TeamPaths(Path(root)), settings, Mask())


if __name__ == "__main__":
    sys.exit(main())
