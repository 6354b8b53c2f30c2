"""`teamctl hosts init`, `join`, `add` and `remove`: their files, output and errors."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from teamctl.hosts.broker import Broker, find_program
from teamctl.hosts.own_host import Keys
from teamd import settings
from teamd.command_line.installation import install_command
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.postman.connection import BrokerConnection, find_trouble
from teamd.settings.schema import HostSettings
from tests.e2e.harness import Project, opened
from tests.hosts.brokers import PAST, Town, free_port, listens, serving
from tests.strict.replies import say, use
from tests.waiting import wait_until


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Project]:
    """Another machine with an empty folder and another home."""
    folder = tmp_path / "second"
    folder.mkdir()
    with opened(folder) as made:
        yield made


def init(project: Project, *more: str) -> int:
    """Set up a team with h1 and further hosts; return the broker's port."""
    port = free_port()
    project.do("teamctl", "hosts", "init", "--name", "h1", "--listen", f"127.0.0.1:{port}", *more)
    return port


def token(project: Project, host: str = "h2") -> str:
    return str(Keys(project.paths).token(host))


def configuration(project: Project) -> Path:
    return Broker(Keys(project.paths).broker).configuration


def own(project: Project, name: str, port: int) -> HostSettings:
    """Return the settings of the machine's own postman."""
    keys = Keys(project.paths)
    servers = (f"tls://localhost:{port}",)
    return HostSettings(name=name, servers=servers, cert=keys.cert, key=keys.key, ca=keys.ca)


@contextmanager
def joined(project: Project, second: Project) -> Iterator[int]:
    """Let h2 join while the broker runs; yield the broker's port."""
    port = init(project, "h2")
    with serving(configuration(project), port):
        second.do("teamctl", "hosts", "join", token(project))
        yield port


def refused(project: Project, *argv: str) -> str:
    done = project.run("teamctl", "hosts", *argv)
    assert (done.status, done.stdout) == (1, "")
    return done.complaint.removeprefix("teamctl: ")


def test_init_and_join_are_enough_to_reach_another_host(project: Project, second: Project) -> None:
    port = init(project, "h2")
    with serving(configuration(project), port):
        said = second.do("teamctl", "hosts", "join", token(project))
        assert said.splitlines() == [
            "this host is h2 of the team project now",
            "next: `teamd start`, or `teamd reload` where it runs",
            f"then delete {token(project)}: who has it can act as h2",
        ]
        one, other = own(project, "h1", port), own(second, "h2", port)

        async def talk() -> None:
            async def greet(host: str, payload: bytes) -> bytes:
                return payload + f" from {host}".encode()

            opened = BrokerConnection.open_any
            async with opened(one) as link, opened(other) as their:
                await their.answer(greet)
                said = await link.request("command.h2.h1", b"hello", 10.0)
                assert said == b"hello from h1"

        asyncio.run(talk())


def test_teams_start_after_init_and_join_and_mail_arrives(
    project: Project, second: Project
) -> None:
    with joined(project, second):
        for one in (project, second):
            one.start()
        second.do("teamctl", "spawn", "bob", "coder", "Wait for mail.", "--wait")
        # A name is known once its host has connected.
        wait_until(lambda: '"h2"' in project.do("teamctl", "hosts", "--json"))
        project.do("teamctl", "send", "bob@project@h2", "Good day from h1.")
        second.wait_for("bob", "idle", turns=2)
        assert any("Good day from h1." in str(one) for one in second.records("bob"))


@pytest.mark.slow
def test_a_host_name_that_differs_from_the_certificate_is_reported(
    project: Project, second: Project
) -> None:
    """The broker does not answer such a host, so without this it would only look slow."""
    with joined(project, second):
        text = (second.folder / "team.toml").read_text()
        second.write("team.toml", text.replace('name = "h2"', 'name = "h9"'))
        second.do("teamctl", "trust")
        for one in (project, second):
            one.start()

        def said() -> str:
            return second.do("teamctl", "hosts")

        wait_until(lambda: "does not let this host speak as h9" in said(), what="why")
        log = second.paths.log("teamd.postman").read_text()
        assert log.count("does not let this host speak") < 10, "not with each beat"


def test_init_prints_the_next_steps(project: Project) -> None:
    said = project.do("teamctl", "hosts", "init", "--name", "h1", "--listen", "10.1.2.3:4222", "h2")
    folder = Keys(project.paths).broker
    record = json.loads((folder / "broker.json").read_text())
    first, second, third, unit, program, *rest = said.splitlines()
    assert first == "this host is h1 of the team project, and has the broker"
    assert second == "the others reach it at tls://10.1.2.3:4222"
    assert third == "next, start the broker, by one of:"
    assert unit == (
        f"  systemctl --user enable --now {folder}/teamd-broker-project-{record['id']}.service"
    )
    assert program.endswith(f"nats-server -c {folder}/nats-server.conf")
    assert rest == [
        "then `teamd start`, or `teamd reload` where it runs",
        f"carry {token(project)} to h2, by scp or so",
        "there: `teamctl hosts join FILE`",
        "delete the file in both places then: who has it can act as that host",
    ]


def test_programs_set_up_hosts_by_json(project: Project, second: Project) -> None:
    def ask(one: Project, *argv: str) -> Any:
        return json.loads(one.do("teamctl", "hosts", *argv, "--json"))

    listen = f"127.0.0.1:{free_port()}"
    made = ask(project, "init", "h2", "--name", "h1", "--listen", listen)
    assert made["tokens"] == {"h2": token(project)}
    assert made["configuration"] == str(configuration(project))
    added = ask(project, "add", "h3")
    assert added == {"host": "h3", "token": token(project, "h3"), "broker_runs": False}
    joined = ask(second, "join", added["token"])
    assert (joined["name"], joined["team"]) == ("h3", made["team"])
    assert ask(project, "remove", "h3") == {"host": "h3", "broker_runs": False}
    renewed = ask(project, "init", "--renew", "--address", "other")
    assert "other" in renewed["addresses"]


def test_only_the_owner_can_read_keys(project: Project, second: Project) -> None:
    init(project, "h2")
    second.run("teamctl", "hosts", "join", token(project))
    for paths in (project.paths, second.paths):
        for folder, _, names in os.walk(Keys(paths).folder):
            assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700, folder
            for name in names:
                assert stat.S_IMODE((Path(folder) / name).stat().st_mode) & 0o077 == 0, name


@pytest.mark.slow
def test_teammates_cannot_read_keys(project: Project) -> None:
    """Neither its commands nor its tools can read the keys or the token beside them."""
    init(project, "h2")
    keys = Keys(project.paths)
    project.stage.play(
        "ann",
        use(
            ("bash", {"command": f"cat {keys.key} .team/hosts/keys/*; find .team {keys.folder}"}),
            ("bash", {"command": f"cat {keys.broker}/ca.key {token(project)}; cp -r .team copy"}),
            ("bash", {"command": "cat /proc/*/environ /proc/*/cmdline | tr '\\0' ' '"}),
            ("read_file", {"path": ".team/hosts/keys/host.key"}),
            ("read_file", {"path": str(keys.broker / "ca.key")}),
            ("grep", {"pattern": "PRIVATE", "path": ".team/hosts"}),
            ("write_file", {"path": ".team/hosts/keys/ca.crt", "content": "evil"}),
        ),
        say("Tried."),
    )
    before = keys.ca.read_bytes()
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    project.wait_for("ann", "idle", turns=2)
    seen = [one.text for one in project.asked("ann", least=1)[-1].asked.last_results]
    assert len(seen) == 7
    assert not [one for one in seen if "PRIVATE KEY" in one or "host.key\n" in one]
    assert keys.ca.read_bytes() == before


def test_settings_written_by_init_are_trusted_and_the_rest_of_the_file_is_kept(
    project: Project,
) -> None:
    file = project.write("team.toml", "# mine\n[team]\nname = 'web'\n\n[hosts]\n# here\n")
    init(project)
    text = file.read_text()
    start = "# mine\n[team]\nname = 'web'\n\n[hosts]\n# here\nname = \"h1\"\nservers = ["
    assert text.startswith(start)
    listed = json.loads(project.do("teamctl", "trust", "--list", "--json"))["files"]
    assert [one["state"] for one in listed] == ["trusted"]


def test_settings_that_waited_for_trust_before_init_still_wait(project: Project) -> None:
    project.write("team.toml", "[limits]\ncalls_per_wake = 60\n", trusted=False)
    said = project.do("teamctl", "hosts", "init", "--name", "h1", "--listen", "127.0.0.1:4222")
    assert "then `teamctl trust`, since more in team.toml waits for it" in said
    assert "limits.calls_per_wake" in project.do("teamctl", "trust")


def test_joining_again_changes_nothing(project: Project, second: Project) -> None:
    init(project, "h2")
    second.do("teamctl", "hosts", "join", token(project))
    before = (second.folder / "team.toml").read_bytes()
    done = second.run("teamctl", "hosts", "join", token(project))
    assert done.status == 0
    assert "warning: nothing listens at tls://localhost:" in done.stderr
    assert (second.folder / "team.toml").read_bytes() == before


@pytest.mark.slow
def test_join_adopts_the_teams_name_and_refuses_another_team(
    project: Project, second: Project, tmp_path: Path
) -> None:
    project.write("team.toml", "[team]\nname = 'web'\n")
    init(project, "h2", "h3")
    second.do("teamctl", "hosts", "join", token(project))
    assert settings.load(second.folder / "team.toml", folder=second.folder).team.name == "web"
    assert refused(second, "join", token(project, "h3")) == (
        f"{second.folder}/team.toml: hosts.name already has another value; change it by hand"
    )
    (tmp_path / "third").mkdir()
    with opened(tmp_path / "third") as third:
        third.write("team.toml", "[team]\nname = 'shop'\n")
        assert refused(third, "join", token(project, "h3")) == (
            "the token is for the team web, and this one is called shop; "
            "join in the folder of web, or in an empty one"
        )
        assert not third.paths.root.exists()


@pytest.mark.slow
def test_a_named_team_joins_without_the_projects_team(project: Project, second: Project) -> None:
    """The hosts belong to that team alone; other settings still come from the project."""
    make_web(project)
    port = free_port()
    listen = f"127.0.0.1:{port}"
    project.do(
        "teamctl", "--team", "web", "hosts", "init", "--name", "h1", "--listen", listen, "h2"
    )
    web = TeamPaths(project.folder / ".teams" / "web")
    second.write("team.toml", "[model]\nmax_tokens = 777\n")
    make_web(second)
    second.do("teamctl", "--team", "web", "hosts", "join", str(Keys(web).token("h2")))
    shown = json.loads(second.do("teamctl", "--team", "web", "hosts", "--json"))
    assert shown["name"] == "h2"
    there = settings.load(second.folder / ".teams" / "web" / "team.toml", folder=second.folder)
    assert there.model.max_tokens == 777


def test_a_named_team_does_not_inherit_the_projects_hosts(project: Project) -> None:
    """Otherwise it would read the other team's mail, with that team's certificate."""
    init(project)
    make_web(project)
    assert json.loads(project.do("teamctl", "hosts", "--json"))["name"] == "h1"
    done = project.run("teamctl", "--team", "web", "hosts", "--json")
    assert (done.status, done.stdout) == (1, "")


def make_web(project: Project) -> None:
    """Create a named team without a running teamd."""
    project.do("teamctl", "create", "web")
    project.do("teamd", "--team", "web", "stop")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (("--name", "a b"), "'a b' cannot be a host's name; use up to 64 of A-Z a-z 0-9 _ - "),
        (("--name", "h1", "h2", "H2"), "there is a host h2 already; the team's hosts are: h1, h2"),
        (("--name", "h1", "H1"), "there is a host h1 already; the team's hosts are: h1"),
        (
            ("--listen", "4222"),
            "'4222' is not an address to listen on; give HOST:PORT, such as 0.0.0.0:4222",
        ),
        (("--listen", "h:99999"), "'h:99999' is not an address to listen on; "),
        (
            ("--address", "h:1"),
            "'h:1' is not a name or IP address of a machine; leave out the port",
        ),
    ],
)
def test_init_refuses_invalid_arguments_and_writes_nothing(
    project: Project, argv: tuple[str, ...], sentence: str
) -> None:
    assert refused(project, "init", *argv).startswith(sentence)
    assert list(project.folder.iterdir()) == []


def test_init_twice_is_refused(project: Project) -> None:
    init(project)
    assert refused(project, "init", "h2") == (
        "this host already has the broker; `teamctl hosts add NAME` adds a host, "
        "`teamctl hosts init --renew` makes a new certificate for the broker"
    )


def test_an_interrupted_init_can_be_repeated(project: Project) -> None:
    """The record is written last, so after an earlier kill there is no broker yet."""
    port = free_port()
    argv = ("hosts", "init", "--name", "h1", "--listen", f"127.0.0.1:{port}", "h2")
    project.do("teamctl", *argv)
    (Keys(project.paths).broker / "broker.json").unlink()
    project.do("teamctl", *argv)
    with serving(configuration(project), port):
        assert asyncio.run(find_trouble(own(project, "h1", port))) == []


def test_a_configuration_that_nats_server_rejects_does_not_replace_the_old_one(
    project: Project,
) -> None:
    init(project)
    broker = Keys(project.paths).broker
    before = {one.name: one.read_bytes() for one in broker.iterdir() if one.is_file()}
    program = project.root / "bin" / "nats-server"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'nats-server: not so' >&2\nexit 1\n")
    program.chmod(0o755)
    said = refused(project, "add", "h2")
    assert said.startswith(f"{program} does not accept {broker}/nats-server.tried: ")
    assert said.endswith(": nats-server: not so")
    assert {one.name: one.read_bytes() for one in broker.iterdir() if one.is_file()} == before
    assert not Path(token(project)).exists()


def test_renew_accepts_only_address_options(project: Project) -> None:
    done = project.run("teamctl", "hosts", "init", "--renew", "h2")
    assert done.status == 2
    assert "--renew can be combined only with --address and --drop-address" in done.stderr
    done = project.run("teamctl", "hosts", "init", "--drop-address", "h2")
    assert done.status == 2
    assert "--drop-address can be used only with --renew" in done.stderr


def test_a_missing_nats_server_is_reported_with_an_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TeamError) as caught:
        find_program(others=())
    assert str(caught.value).endswith("`apt-get install nats-server` installs it (others: nats.io)")


def test_a_missing_extra_is_reported_with_an_install_command(
    project: Project, tmp_path: Path
) -> None:
    """An unimportable module shadows the real one."""
    hidden = tmp_path / "hidden" / "cryptography"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError(name='cryptography')\n")
    for argv in (("init",), ("join", "x")):
        done = project.run(
            "python3", "-m", "teamctl", "hosts", *argv, env={"PYTHONPATH": str(hidden.parent)}
        )
        assert done.status == 1
        assert done.complaint == (
            "teamctl: [hosts] needs packages that are not installed; "
            f"`{install_command('hosts')}` installs them"
        )


def test_a_command_for_another_host_reports_a_missing_extra(
    project: Project, tmp_path: Path
) -> None:
    project.paths.create()
    project.ask_no_service('[hosts]\nname = "h1"\nallow = { spawn = ["h2"] }\n')
    hidden = tmp_path / "hidden" / "nats"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError(name='nats')\n")
    argv = ("spawn", "bob@h2", "coder", "Begin.")
    done = project.run("python3", "-m", "teamctl", *argv, env={"PYTHONPATH": str(hidden.parent)})
    assert done.status == 1
    assert done.complaint == (
        "teamctl: [hosts] needs packages that are not installed; "
        f"`{install_command('hosts')}` installs them"
    )


@pytest.mark.parametrize("command", ["add", "remove"])
def test_only_the_brokers_host_can_add_and_remove_hosts(project: Project, command: str) -> None:
    project.paths.create()
    assert refused(project, command, "h2") == (
        "this host does not have the team's broker; run this where `teamctl hosts init` was run, "
        "or run that here first"
    )


def test_add_and_remove_take_effect_on_a_running_broker(project: Project, second: Project) -> None:
    port = init(project)
    assert project.do("teamctl", "hosts", "add", "h2").splitlines()[0] == (
        "no broker runs here; it holds once one is started"
    )
    with serving(configuration(project), port):
        said = project.do("teamctl", "hosts", "add", "h3").splitlines()
        assert said[:2] == [
            "the broker has taken it",
            f"carry {token(project, 'h3')} to h3, by scp or so",
        ]
        assert refused(project, "add", "H3").startswith("there is a host h3 already; ")
        done = second.run("teamctl", "hosts", "join", token(project, "h3"))
        assert (done.status, done.stderr) == (0, "")
        assert project.do("teamctl", "hosts", "remove", "h3").splitlines() == [
            "h3 no longer belongs to the team",
            "the broker has taken it",
        ]
        assert not Path(token(project, "h3")).exists()
        assert "h3" not in configuration(project).read_text()
    assert refused(project, "remove", "h3") == "no host named 'h3'; the team's hosts are: h1, h2"
    assert refused(project, "remove", "h1") == (
        "h1 is this host, which has the broker; it cannot be removed"
    )
    left = {one.name for one in Keys(project.paths).broker.iterdir()}
    assert not {one for one in left if one.startswith("witness")}


@pytest.mark.slow
def test_remove_fails_if_the_broker_does_not_reload(project: Project) -> None:
    """The removed host would still be admitted, so the status is 1, with a remedy."""
    port = init(project, "h2")
    with serving(configuration(project), port) as server:
        wait_until(configuration(project).with_name("nats-server.pid").exists)
        server.send_signal(signal.SIGSTOP)
        done = project.run("teamctl", "hosts", "remove", "h2")
        server.send_signal(signal.SIGCONT)
    assert done.status == 1
    assert (
        "the broker is running but has not loaded its new configuration; restart it"
        in done.complaint
    )


def test_renew_issues_a_certificate_with_additional_addresses(project: Project) -> None:
    port = init(project)
    with serving(configuration(project), port):
        said = project.do("teamctl", "hosts", "init", "--renew", "--address", "127.0.0.9")
        assert said.splitlines() == [
            "the broker has a new certificate, for localhost, 127.0.0.9",
            "the broker has taken it",
        ]


def forget_jetstream(project: Project) -> None:
    """Give the broker the record and configuration of the version before."""
    broker = Broker(Keys(project.paths).broker)
    record = json.loads(broker.record.read_bytes())
    del record["own"]
    broker.record.write_text(json.dumps(record))
    text = broker.configuration.read_text()
    start = text.index("jetstream: {")
    text = text[:start] + text[text.index("tls: {") :].replace('"jetstream": "enabled",', "")
    broker.configuration.write_text(text)


def test_renewing_a_broker_without_jetstream_requires_a_restart(
    project: Project,
) -> None:
    """Not every version of nats-server enables JetStream by a reload."""
    port = init(project, "h2")
    forget_jetstream(project)
    told = "run `teamctl hosts init --renew`, then restart the broker"
    assert told in project.do("teamctl", "hosts")
    assert told in project.run("teamctl", "doctor").stdout
    started = project.run("teamd", "start")
    assert told in started.stderr
    before = configuration(project)
    with serving(before, port):
        said = project.do("teamctl", "hosts", "init", "--renew").splitlines()
        record = json.loads((before.parent / "broker.json").read_text())
        unit = f"teamd-broker-project-{record['id']}.service"
        restart = f"restart the broker: `systemctl --user restart {unit}`, or end nats-server"
        assert said[:2] == [
            "the broker has a new certificate, for localhost",
            "the broker has taken it",
        ]
        assert said[2:] == [f"{restart} and start it again with -c {before}"]
        assert record["own"] == {"project": "h1"}
    assert told not in project.do("teamctl", "hosts")
    with serving(before, port):
        again = json.loads(project.do("teamctl", "hosts", "init", "--renew", "--json"))
        assert (again["restart"], again["broker_runs"]) == (False, True)


def test_renew_can_drop_a_mistyped_address(project: Project) -> None:
    init(project, "--address", "h1", "--address", "h11")
    init_again = ("init", "--renew", "--drop-address")
    assert refused(project, *init_again, "h7") == "'h7' is not one of its addresses: h1, h11"
    said = project.do("teamctl", "hosts", *init_again, "h11")
    assert said.splitlines()[0] == "the broker has a new certificate, for h1"
    assert refused(project, *init_again, "h1") == (
        "the broker needs at least one address; name another with --address"
    )
    project.do("teamctl", "hosts", "add", "h3")
    assert "h11" not in Path(token(project, "h3")).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "is not a host token, or is damaged; `teamctl hosts add NAME` on the broker's host "),
        (b"[1]", "is not a host token, or is damaged; "),
        (
            b'{"teamd_hosts_token": 2}',
            "is from another version of teamd; install the same version on both",
        ),
        (b" " * 70_000, "is not a host token: it is too large"),
    ],
)
def test_join_refuses_an_invalid_token(project: Project, text: bytes, sentence: str) -> None:
    (project.root / "x.token").write_bytes(text)
    assert sentence in refused(project, "join", str(project.root / "x.token"))
    assert list(project.folder.iterdir()) == []


def test_join_refuses_a_missing_file(project: Project) -> None:
    assert refused(project, "join", "h2.token") == (
        "there is no file h2.token; `teamctl hosts add NAME` on the broker's host writes it"
    )


def test_join_refuses_expired_and_mismatched_certificates(project: Project, tmp_path: Path) -> None:
    town = Town.found(tmp_path, {"project": ["h1", "h2"]})
    whole = json.loads(town.broker.issue(town.record, "project", "h2").encode())
    old = town.issue("project", "h2", lifetime=PAST)
    assert old.cert is not None
    assert old.key is not None
    expired = whole | {"cert": old.cert.read_text(), "key": old.key.read_text()}
    (tmp_path / "old.token").write_text(json.dumps(expired))
    assert f"to {datetime.now(UTC):%Y}-" in refused(project, "join", str(tmp_path / "old.token"))
    (tmp_path / "mixed.token").write_text(json.dumps(whole | {"key": expired["key"]}))
    assert refused(project, "join", str(tmp_path / "mixed.token")) == (
        f"{tmp_path}/mixed.token holds a certificate and a key that do not belong together; "
        "`teamctl hosts add NAME` on the broker's host writes a new token"
    )
    assert list(project.folder.iterdir()) == []


def admitted(project: Project, port: int) -> list[str]:
    """Return why the broker refuses a machine with its own keys; empty if it accepts it."""
    keys = Keys(project.paths)
    servers = (f"tls://localhost:{port}",)
    settings = HostSettings(name="h", servers=servers, cert=keys.cert, key=keys.key, ca=keys.ca)
    return asyncio.run(find_trouble(settings))


@pytest.mark.slow
def test_an_interrupted_removal_is_completed_by_the_next_attempt(
    project: Project, second: Project
) -> None:
    """The record is written first: it lacks the host, which the running broker still admits."""
    with joined(project, second) as port:
        before = configuration(project).read_bytes()
        broker = Broker(Keys(project.paths).broker)
        record = broker.read()
        broker.record.write_bytes(record.without_host("project", "h2").encode())
        assert configuration(project).read_bytes() == before
        assert admitted(second, port) == []
        assert refused(project, "remove", "h2") == "no host named 'h2'; the team's hosts are: h1"
        assert "does not admit this host" in admitted(second, port)[0]


def test_a_manually_started_broker_counts_as_running(
    project: Project,
) -> None:
    """Its command line is not recognized, so a removed host would still be admitted."""
    port = init(project, "h2")
    folder = configuration(project).parent
    argv = [find_program(), "-c", configuration(project).name]
    with subprocess.Popen(argv, cwd=folder, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: listens(port))
            done = project.run("teamctl", "hosts", "remove", "h2")
        finally:
            server.kill()
    assert done.status == 1
    assert "the broker is running but has not loaded its new configuration" in done.complaint


@pytest.mark.slow
def test_a_host_that_joins_again_keeps_its_own_broker_address(
    project: Project, second: Project
) -> None:
    """For example the local end of a tunnel, or the address from before another was added."""
    with joined(project, second) as port:
        for argv in (
            ("init", "--renew", "--address", "127.0.0.9"),
            ("remove", "h2"),
            ("add", "h2"),
        ):
            project.do("teamctl", "hosts", *argv)
        assert admitted(second, port) != []
        done = second.run("teamctl", "hosts", "join", token(project))
        assert done.status == 0
        assert f"[hosts] servers stays tls://localhost:{port}; the token names " in done.stderr
        assert admitted(second, port) == []


def test_adding_a_host_twice_explains_how_to_get_another_token(project: Project) -> None:
    """The token was lost, or `add` was interrupted before it was written."""
    init(project, "h2")
    Path(token(project)).unlink()
    assert refused(project, "add", "h2") == (
        "there is a host h2 already; `teamctl hosts remove h2` and `hosts add h2` make another "
        "token for it"
    )


@pytest.mark.parametrize(
    "argv", [("--listen", "[:::::]:4222"), ("--listen", "10.0.0.999:4222"), ("--address", "a..b")]
)
def test_init_refuses_an_impossible_address(project: Project, argv: tuple[str, ...]) -> None:
    assert "is not a name or IP address of " in refused(project, "init", *argv)
    assert list(project.folder.iterdir()) == []


def test_join_prints_one_line_about_a_broker_that_refuses_it(
    project: Project, second: Project
) -> None:
    port = init(project, "h2")
    with serving(configuration(project), port):
        kept = second.root / "h2.token"
        kept.write_bytes(Path(token(project)).read_bytes())
        project.do("teamctl", "hosts", "remove", "h2")
        done = second.run("teamctl", "hosts", "join", str(kept))
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["warning"]
