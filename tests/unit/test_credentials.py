"""The sources of the key, and the sentence if none is found."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from pathlib import Path

import pytest

from teamd.model_server.credentials import (
    KeyCommandError,
    at_hand,
    find_key,
    known_secrets,
    plausible,
)

VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CREDENTIALS_DIRECTORY")


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove any key of the user who runs the tests."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as systemd creates it for `LoadCredential=`."""
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    return tmp_path


def find(key_command: str | None = None) -> str | None:
    return asyncio.run(find_key(key_command))


def python(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


def test_a_command_prints_the_key() -> None:
    assert find("echo ' sk-1 '") == "sk-1"


def test_a_command_has_the_person_s_secrets_but_not_the_keys_that_it_replaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as the token of a password manager."""
    monkeypatch.setenv("OP_SERVICE_ACCOUNT_TOKEN", "ops-1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-1")
    assert find("sh -c 'echo $OP_SERVICE_ACCOUNT_TOKEN$ANTHROPIC_API_KEY'") == "ops-1"


def test_a_command_takes_precedence_over_all_other_sources(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "ANTHROPIC_API_KEY").write_text("sk-systemd")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-environment")
    assert find("echo sk-1") == "sk-1"


def test_a_command_is_not_passed_to_a_shell() -> None:
    """`team.toml` comes with a folder that may belong to someone else."""
    assert find("echo sk-1; echo sk-2") == "sk-1; echo sk-2"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("false", "exited with 1; run it by hand to see why"),
        (python("import os; os.kill(os.getpid(), 9)"), "exited with -9"),
        ("true", "printed nothing; it must print the key"),
        ("echo", "printed nothing"),
        ("no-such-program --key", "No such file or directory"),
        ("echo 'sk-1", "No closing quotation"),
        ("", "failed: "),
        (" ", "failed: "),
        ("echo a\0b", "failed: "),
    ],
)
def test_a_command_that_prints_no_key_is_reported(command: str, told: str) -> None:
    with pytest.raises(KeyCommandError) as caught:
        find(command)
    assert told in str(caught.value)
    assert repr(command) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_output_of_a_failing_command_is_not_repeated() -> None:
    """It may contain the key or a part of it, and the sentence becomes mail."""
    with pytest.raises(KeyCommandError) as caught:
        find(python("print('sk-' + 'secret'); raise SystemExit('sk-' + 'secret')"))
    assert "sk-secret" not in str(caught.value)


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """`pass` may wait for a passphrase that is never entered."""
    fifo = tmp_path / "held"
    os.mkfifo(fifo)
    command = python(f"import time; held = open({str(fifo)!r}, 'w'); time.sleep(600)")

    async def scenario() -> None:
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        with pytest.raises(KeyCommandError, match=r"did not end within 0\.2 s"):
            await find_key(command, timeout_seconds=0.2)
        assert os.read(reader, 1) == b"", "no writer is left"
        os.close(reader)

    asyncio.run(scenario())


def test_a_systemd_credential_is_used_as_the_key(folder: Path) -> None:
    (folder / "ANTHROPIC_API_KEY").write_text("sk-systemd\n")
    assert find() == "sk-systemd"
    assert "sk-systemd" in known_secrets()
    assert at_hand()


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_without_a_key_in_systemd_s_folder_the_environment_is_used(
    folder: Path, content: str | None
) -> None:
    if content is not None:
        (folder / "ANTHROPIC_API_KEY").write_text(content)
    assert find() is None
    assert not at_hand()


def test_a_credential_that_is_not_text_is_reported(folder: Path) -> None:
    (folder / "ANTHROPIC_API_KEY").write_bytes(b"\xff\xfe")
    with pytest.raises(KeyCommandError, match="LoadCredential="):
        find()
    assert not at_hand()


@pytest.mark.parametrize("name", VARIABLES[:2])
@pytest.mark.parametrize(("value", "there"), [("sk-1", True), ("", False)])
def test_the_environment_is_read_by_the_sdk(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, there: bool
) -> None:
    monkeypatch.setenv(name, value)
    assert find() is None
    assert at_hand() is there


@pytest.mark.parametrize(
    ("key", "fits"),
    [
        ("sk-ant-1_2", True),
        ("a b", False),
        ("a\n", False),
        ("a\r", False),
        ("a\0", False),
        ("é", False),
    ],
)
def test_a_key_that_no_header_can_carry_is_detected(key: str, fits: bool) -> None:
    assert plausible(key) is fits
