"""`teamctl hosts`: forgetting a host, and errors in a broker's folder."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from teamctl.hosts import certificates
from teamctl.hosts.broker import Broker, BrokerRecord
from teamd.command_line.installation import install_command, load_for_hosts
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
        Outbox(paths, "h2", durable=False).append(to="carol", team="project", message={})
    done = call(paths, "hosts", "forget", "H2")
    dropped = f"dropped: {told} that waited for it\n" if told else ""
    assert (done.status, done.out, done.err) == (0, f"h2 is forgotten\n{dropped}", "")
    assert read_views(paths) == []


def test_all_files_about_a_host_are_removed_and_those_of_similar_names_stay(
    paths: TeamPaths,
) -> None:
    places = HostPlaces(paths)
    places.create()
    gone: list[Path] = []
    kept: list[Path] = []
    for host, found in (("h2", gone), ("h22", kept), ("h2-a", kept)):
        outbox = places.outbox(host)
        found += [outbox, outbox.with_name(f"{host}.rejected.jsonl")]
        found += [places.confirmed(host), places.received(host), places.roster(host)]
    for path in (*gone, *kept):
        path.write_text("{}\n")
    places.remove_files("h2")
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in kept)
    assert places.known() == ["h2-a", "h22"]


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """A broker's folder with a record and a CA."""
    folder = Broker(tmp_path)
    made = certificates.new_authority("ca")
    folder.ca_cert.write_bytes(made.cert)
    folder.ca_key.write_bytes(made.key)
    folder.record.write_bytes(RECORD.encode())
    return folder


RECORD = BrokerRecord(id="abc123", listen="0.0.0.0:4222", addresses=("h1",), teams={}).with_host(
    "project", "h2"
)


def test_a_record_of_a_later_version_is_not_taken_for_a_damaged_one(broker: Broker) -> None:
    assert broker.read() == RECORD
    record = broker.record
    record.write_bytes(record.read_bytes().replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(StoreError) as refused:
        broker.read()
    told = "it is of another version; restore it from a backup"
    assert str(refused.value) == f"{record}: {told}"
    record.write_bytes(b"{")
    with pytest.raises(StoreError, match="; restore it from a backup"):
        broker.read()


@pytest.mark.parametrize("lost", ["ca.crt", "ca.key"])
def test_a_lost_ca_must_be_restored_from_a_copy(broker: Broker, lost: str) -> None:
    assert broker.issue(RECORD, "project", "h2").name == "h2"
    (broker.folder / lost).unlink()
    with pytest.raises(StoreError) as refused:
        broker.issue(RECORD, "project", "h2")
    told = "has lost its CA; restore ca.crt and ca.key from a backup"
    assert str(refused.value) == f"{broker.folder} {told}"


def test_a_key_of_another_kind_cannot_sign() -> None:
    ca = certificates.new_authority("ca")
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with pytest.raises(TypeError, match="of another kind"):
        certificates.issue_host(replace(ca, key=other), "h2", "user")
    assert certificates.belong_together(certificates.issue_host(ca, "h2", "user"), ca.cert)


def test_only_a_missing_package_leads_to_the_advice_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A missing module of this program is an internal error."""
    with pytest.raises(ModuleNotFoundError, match=r"teamctl\.hosts\.nothing"):
        load_for_hosts("teamctl.hosts.nothing")
    monkeypatch.delitem(sys.modules, "teamctl.hosts.certificates", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(TeamError, match=re.escape(f"`{install_command('hosts')}` installs them")):
        load_for_hosts("teamctl.hosts.certificates")
