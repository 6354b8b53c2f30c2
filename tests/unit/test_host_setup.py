"""The texts that `teamctl hosts` writes and reads: tokens, records, configuration and team.toml."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teamctl.hosts.broker import Broker, BrokerRecord, render_configuration, render_unit
from teamctl.hosts.own_host import NotAToken, Token

VERIFIER = shutil.which("systemd-analyze")
NAMES = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,20}", fullmatch=True)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
TOKEN = Token(
    team="project", name="h2", servers=("tls://h1:4222",), cert="cert", key="key", ca="ca"
)


def record(**teams: tuple[str, ...]) -> BrokerRecord:
    made = BrokerRecord(id="abc123", listen="0.0.0.0:4222", addresses=("h1", "::7"), teams={})
    for team, hosts in teams.items():
        for host in hosts:
            made = made.with_host(team, host)
    return made


def test_a_token_is_decoded_as_it_was_encoded() -> None:
    assert Token.decode(TOKEN.encode(), place="x").cert == TOKEN.cert


@settings(max_examples=20)
@given(key=st.sampled_from([*json.loads(TOKEN.encode())]), value=VALUES)
def test_a_token_with_any_field_value_is_refused_or_decoded_completely(
    key: str, value: object
) -> None:
    """It comes from another machine, and its fields are written into settings and files."""
    text = json.dumps(json.loads(TOKEN.encode()) | {key: value}).encode()
    with suppress(NotAToken):
        found = Token.decode(text, place="x")
        assert all(one.startswith("tls://") for one in found.servers)
        assert found.servers
        assert Token.decode(found.encode(), place="x") == found


@given(st.binary(max_size=60))
def test_random_bytes_are_not_a_token(data: bytes) -> None:
    with pytest.raises(NotAToken):
        Token.decode(data, place="x")


@pytest.mark.parametrize("server", ["nats://h1:4222", "tls://h1", "h1:4222", "tls://:1"])
def test_a_token_for_a_server_without_tls_is_refused(server: str) -> None:
    text = json.dumps(json.loads(TOKEN.encode()) | {"servers": [server]}).encode()
    with pytest.raises(NotAToken):
        Token.decode(text, place="x")


def test_a_record_is_decoded_as_it_was_encoded_and_each_change_has_its_own_witness() -> None:
    made = record(default=("h1", "h2"), other=("h1",))
    assert BrokerRecord.decode(made.encode()) == made
    changed = (made, made.with_host("project", "h3"), made.changed(addresses=("h9",)))
    assert len({one.witness for one in changed}) == 3
    assert made.servers == ("tls://h1:4222", "tls://[::7]:4222")


@given(VALUES)
def test_a_damaged_record_is_reported(value: object) -> None:
    with pytest.raises(ValueError, match="it is"):
        BrokerRecord.decode(json.dumps(value).encode())


def test_a_host_that_reuses_a_name_gets_another_broker_user() -> None:
    before = record(project=("h1", "h2"))
    after = before.without_host("project", "h2").with_host("project", "h2")
    assert before.user("project", "h2") != after.user("project", "h2")
    assert before.user("project", "h2") not in render_configuration(Broker(Path("/x")), after)


def test_a_record_of_the_version_before_is_read_without_the_brokers_own_host() -> None:
    document = json.loads(record(project=("h1", "h2")).encode())
    del document["own"]
    found = BrokerRecord.decode(json.dumps(document).encode())
    assert found.own == {}
    assert "$JS.API.>" not in render_configuration(Broker(Path("/x")), found)
    known = found.changed(own={"project": "h1"})
    assert render_configuration(Broker(Path("/x")), known).count("$JS.API.>") == 1


@pytest.mark.parametrize("folder", ["broker", '50% of "my" $HOME', "back\\slash é"])
def test_nats_server_accepts_the_configuration(tmp_path: Path, folder: str) -> None:
    made = record(web=("h1", "H2"), shop=("h1",)).changed(own={"web": "h1"})
    broker = Broker(tmp_path / folder)
    with broker.changing():
        broker.create_authority(made)
        broker.certify_server(made)
        broker.write(made)  # it asks nats-server -t
    assert broker.store.stat().st_mode & 0o777 == 0o700
    text = broker.configuration.read_text(encoding="utf-8")
    assert "\njetstream: {" in text
    assert text.count('"jetstream": "enabled"') == 2, "not for the witness"


@given(path=st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20))
def test_any_path_stays_one_word_in_the_unit_file(path: str) -> None:
    text = render_unit(Broker(Path("/srv") / path), record(web=("h1",)), "web", "/usr/bin/nats")
    (line,) = (one for one in text.splitlines() if one.startswith("ExecStart="))
    assert line.count('"') - line.count('\\"') == 4
    assert "%" not in line.replace("%%", "")


@pytest.mark.skipif(VERIFIER is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    folder = tmp_path / "50% of my $HOME"
    folder.mkdir()
    made = record(web=("h1",))
    place = Broker(folder).unit("web", made)
    place.write_text(render_unit(Broker(folder), made, "web", "/bin/true"))
    done = subprocess.run(
        [VERIFIER or "", "--user", "verify", place],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
