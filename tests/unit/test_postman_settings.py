"""The settings that the postman's program gets, and the TLS files of a connection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from teamd_commands import command_line

from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.postman.connection import make_context
from teamd.postman.start import _command, read_command
from teamd.settings import Settings
from teamd.settings.schema import HostSettings, Mail


def test_the_postman_s_program_gets_the_settings_in_force(tmp_path: Path) -> None:
    """The file may have changed since; no other settings, because anyone can read the arguments."""
    chosen = Settings(
        hosts=HostSettings(
            name="h1",
            servers=("tls://h9:4222", "tls://[fd00::1]:4222"),
            cert=Path("/keys/c.pem"), key=Path("/keys/k.pem"), ca=Path("/keys/ca.pem"),
            allow={"spawn": ("h2", "h3")}, outbox_bytes=2_000_000,
        ),
        mail=Mail(durability="os", max_message_bytes=5000),
    )  # fmt: skip
    started = command_line("postman")
    command = _command(TeamPaths(tmp_path), chosen)
    given = command[len(started) :]
    root, read = read_command(given)
    assert (command[: len(started)], root) == (started, tmp_path)
    assert (read.hosts, read.mail) == (chosen.hosts, chosen.mail)
    assert json.dumps(given).count("key") == json.dumps(given).count("keys") + 1


def test_a_missing_or_foreign_tls_file_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    ca, cert, key = (tmp_path / f"{one}.pem" for one in ("ca", "cert", "key"))
    settings = HostSettings(name="h1", servers=("tls://h9:4222",), ca=ca, cert=cert, key=key)
    with pytest.raises(TeamError, match=r"cannot be read \(No such file.*hosts join FILE` writes"):
        make_context(settings)
    for path in (ca, cert, key):
        path.write_text("rubbish")
    with pytest.raises(TeamError, match=r"do not belong together \(.*hosts join FILE` writes"):
        make_context(settings)


def test_without_own_files_a_context_still_verifies_the_server() -> None:
    context = make_context(HostSettings(name="h1", servers=("tls://h9:4222",)))
    assert context.check_hostname
    assert not context.is_used
