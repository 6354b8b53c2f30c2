"""`teamctl hosts`: forgetting a host, and errors in a broker's folder."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from teamctl.hosts import authority, extra
from teamctl.hosts.broker_folder import BrokerFolder
from teamctl.hosts.record import BrokerRecord
from teamd.command_line.installation import install_command
from teamd.errors import StoreError, TeamError
from teamd.files.paths import TeamPaths
from teamd.hosts.outbox import Outbox
from teamd.hosts.places import HostPlaces
from teamd.hosts.view import HostState, Views, read_views
from teamd.settings.trust import TrustStore
from tests.unit.life import call


@pytest.mark.parametrize(("lines", "told"), [(0, ""), (1, "a line"), (2, "2 lines")])
def test_forgetting_a_host_reports_its_queued_lines(
    paths: TeamPaths, lines: int, told: str
) -> None:
    file = paths.home / "team.toml"
    file.write_text('[hosts]\nname = "h1"\nservers = ["tls://127.0.0.1:1"]\n')
    TrustStore().confirm(file, file.read_bytes())
    HostPlaces(paths).create()
    views = Views(paths)
    views.change("h2", state=HostState.UNREACHABLE, since=1.0)
    views.write()
    for _ in range(lines):
        Outbox(paths, "h2", durable=False).append("mail", to="carol", message={})
    done = call(paths, "hosts", "forget", "H2")
    dropped = f"dropped: {told} that waited for it\n" if told else ""
    assert (done.status, done.out, done.err) == (0, f"h2 is forgotten\n{dropped}", "")
    assert read_views(paths) == []


@pytest.fixture
def broker(tmp_path: Path) -> BrokerFolder:
    """A broker's folder with a record and a CA."""
    folder = BrokerFolder(tmp_path)
    made = authority.new_authority("ca")
    folder.files.ca_cert.write_bytes(made.cert)
    folder.files.ca_key.write_bytes(made.key)
    folder.files.record.write_bytes(RECORD.encode())
    return folder


RECORD = BrokerRecord(id="abc123", listen="0.0.0.0:4222", addresses=("h1",), teams={}).with_host(
    "project", "h2"
)


def test_a_record_of_a_later_version_is_not_taken_for_a_damaged_one(broker: BrokerFolder) -> None:
    assert broker.read() == RECORD
    record = broker.files.record
    record.write_bytes(record.read_bytes().replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(StoreError) as refused:
        broker.read()
    told = "it is of another version; restore it from a backup"
    assert str(refused.value) == f"{record}: {told}"
    record.write_bytes(b"{")
    with pytest.raises(StoreError, match="; restore it from a backup"):
        broker.read()


@pytest.mark.parametrize("lost", ["ca.crt", "ca.key"])
def test_a_lost_ca_must_be_restored_from_a_copy(broker: BrokerFolder, lost: str) -> None:
    assert broker.issue(RECORD, "project", "h2").name == "h2"
    (broker.files.folder / lost).unlink()
    with pytest.raises(StoreError) as refused:
        broker.issue(RECORD, "project", "h2")
    told = "has lost its CA; restore ca.crt and ca.key from a backup"
    assert str(refused.value) == f"{broker.files.folder} {told}"


def test_a_key_of_another_kind_cannot_sign() -> None:
    ca = authority.new_authority("ca")
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    valid = authority.validity(ca.cert)
    with pytest.raises(TypeError, match="of another kind"):
        authority.issue_host(replace(ca, key=other), "h2", "user", valid)
    assert authority.belong_together(authority.issue_host(ca, "h2", "user", valid), ca.cert)


def test_only_a_missing_package_leads_to_the_advice_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A missing module of this program is an internal error."""
    with pytest.raises(ModuleNotFoundError, match=r"teamctl\.hosts\.nothing"):
        extra.load("nothing")
    monkeypatch.delitem(sys.modules, "teamctl.hosts.authority", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(TeamError, match=re.escape(f"`{install_command('hosts')}` installs them")):
        extra.load("authority")
