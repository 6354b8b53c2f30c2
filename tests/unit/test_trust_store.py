"""The confirmed files: stored outside of the project, for one text in one place."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.command_line.run import TeamOptions
from teamd.errors import StoreError
from teamd.files.paths import STATE_VARIABLE, TeamPaths, state_folder
from teamd.settings.trust import Confirmed, TrustStore, hash_of

TEXT = b'[model]\nbase_url = "http://localhost:1"\n'


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    return {STATE_VARIABLE: str(tmp_path / "state")}


@pytest.fixture
def store(environment: Mapping[str, str]) -> TrustStore:
    return TrustStore(environment)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "team.toml").write_bytes(TEXT)
    return folder / "team.toml"


def trusts(store: TrustStore, path: Path, data: bytes = TEXT) -> bool:
    found = store.find(path)
    return found is not None and found.covers(path, data)


def entries(environment: Mapping[str, str]) -> list[Path]:
    return sorted(Path(environment[STATE_VARIABLE]).rglob("*.json"))


def test_only_one_text_per_place_is_trusted(store: TrustStore, file: Path) -> None:
    """An agent cannot restore an old file that was looser."""
    assert not trusts(store, file)
    store.confirm(file, TEXT)
    assert trusts(store, file)
    assert not trusts(store, file, TEXT + b"\n")
    store.confirm(file, b"")
    assert trusts(store, file, b"")
    assert not trusts(store, file, TEXT)


def test_the_same_text_in_another_place_is_not_trusted(store: TrustStore, file: Path) -> None:
    """Its relative paths name other files: a cloned repository could contain a link."""
    store.confirm(file, TEXT)
    copy, clone = file.with_name("copy.toml"), file.parent.with_name("clone")
    copy.write_bytes(TEXT)
    clone.mkdir()
    link = clone / "team.toml"
    link.symlink_to(file)
    assert hash_of(link, TEXT) != hash_of(file, TEXT)
    moved = file.parent.rename(file.parent.with_name("moved")) / file.name
    for other in (copy, link, moved):
        assert not trusts(store, other)


def test_a_link_with_a_new_target_is_not_trusted(store: TrustStore, file: Path) -> None:
    """Even if the new target has the same content at the moment."""
    link = file.with_name("link.toml")
    link.symlink_to(file)
    store.confirm(link, TEXT)
    assert trusts(store, link)
    other = file.with_name("other.toml")
    other.write_bytes(TEXT)
    link.unlink()
    link.symlink_to(other)
    assert not trusts(store, link)


def test_a_path_through_a_linked_folder_is_the_same_place(store: TrustStore, file: Path) -> None:
    alias = file.parent.with_name("alias")
    alias.symlink_to(file.parent)
    store.confirm(alias / "team.toml", TEXT)
    assert trusts(store, file)


def test_a_revoked_file_confirms_and_limits_nothing(store: TrustStore, file: Path) -> None:
    assert not store.forget(file)
    store.confirm(file, TEXT)
    assert store.forget(file)
    assert store.find(file) is None
    assert list(store.confirmed()) == []
    assert not store.forget(file)


def test_a_change_of_the_program_itself_keeps_a_file_as_trusted_as_it_was(
    store: TrustStore, file: Path
) -> None:
    """Both before and after the file is replaced, since a kill may come in between."""
    new = TEXT + b"[mail]\n"
    store.extend(file, TEXT, new)
    assert not trusts(store, file, new)
    store.confirm(file, TEXT)
    store.extend(file, TEXT, new)
    assert trusts(store, file, TEXT)
    assert trusts(store, file, new)
    newer = new + b"[tools]\n"
    store.extend(file, new, newer)
    assert trusts(store, file, newer)
    assert not trusts(store, file, TEXT)


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_other_users_cannot_read_the_store(
    umask: int, store: TrustStore, file: Path, environment: Mapping[str, str]
) -> None:
    """A header may hold a secret."""
    before = os.umask(umask)
    try:
        store.confirm(file, TEXT)
    finally:
        os.umask(before)
    (entry,) = entries(environment)
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    assert stat.S_IMODE(entry.parent.stat().st_mode) == 0o700


def test_many_may_confirm_at_the_same_time(store: TrustStore, file: Path) -> None:
    paths = [file.with_name(f"{number % 4}.toml") for number in range(16)]
    confirming = [threading.Thread(target=store.confirm, args=(path, TEXT)) for path in paths]
    for thread in confirming:
        thread.start()
    for thread in confirming:
        thread.join()
    assert sorted(one.place for one in store.confirmed()) == sorted({str(path) for path in paths})
    assert all(trusts(store, path) for path in paths)


@given(data=st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(repr))
def test_any_content_of_an_entry_is_read_or_refused(data: bytes | str) -> None:
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    with suppress(ValueError):
        assert Confirmed.decode(raw).encode()


@given(content=st.binary(), place=st.text(st.characters(exclude_categories=["Cs"])))
def test_an_entry_survives_encoding(content: bytes, place: str) -> None:
    entry = Confirmed(place=place, hashes=("a", "b"), content=content, time=1.5)
    assert Confirmed.decode(entry.encode()) == entry


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 1, "path": "x"}', 2])
def test_an_entry_that_is_damaged_or_newer_confirms_nothing(
    text: str | int, store: TrustStore, file: Path, environment: Mapping[str, str]
) -> None:
    store.confirm(file, TEXT)
    (entry,) = entries(environment)
    newer = json.dumps({**json.loads(entry.read_text()), "format": text})
    entry.write_text(text if isinstance(text, str) else newer)
    assert store.find(file) is None
    store.confirm(file, TEXT)
    assert trusts(store, file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_an_entry_of_another_user_confirms_nothing(
    store: TrustStore, file: Path, environment: Mapping[str, str]
) -> None:
    store.confirm(file, TEXT)
    (entry,) = entries(environment)
    os.chown(entry, 65534, 65534)
    assert store.find(file) is None
    os.chown(entry.parent, 65534, 65534)
    with pytest.raises(StoreError, match="belongs to user 65534, not to you"):
        store.confirm(file, TEXT)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_a_pipe_in_place_of_an_entry_does_not_block(
    make: Callable[[Path], None],
    store: TrustStore,
    file: Path,
    environment: Mapping[str, str],
) -> None:
    store.confirm(file, TEXT)
    (entry,) = entries(environment)
    entry.unlink()
    make(entry)
    assert store.find(file) is None


def test_the_state_folder_follows_the_xdg_specification() -> None:
    home = {"HOME": "/home/me"}
    assert state_folder(home) == Path("/home/me/.local/state/teamd")
    assert state_folder({**home, STATE_VARIABLE: "/var/me"}) == Path("/var/me/teamd")
    for ignored in ("", "state", "./state"):
        assert state_folder({**home, STATE_VARIABLE: ignored}) == state_folder(home)
    assert state_folder({}) is None


@pytest.mark.parametrize("home", [{}, {"HOME": ""}, {"HOME": "here"}])
def test_without_a_home_nothing_is_trusted_and_trusting_says_what_to_set(
    home: Mapping[str, str], file: Path
) -> None:
    store = TrustStore(home)
    assert store.find(file) is None
    assert list(store.confirmed()) == []
    assert not store.forget(file)
    with pytest.raises(StoreError) as caught:
        store.confirm(file, TEXT)
    assert str(caught.value) == (
        "there is no folder to record what you trust: HOME is not set; "
        "set HOME or XDG_STATE_HOME to a folder of yours"
    )


def test_a_read_only_home_is_reported(file: Path) -> None:
    store = TrustStore({"HOME": "/proc"})
    with pytest.raises(StoreError) as caught:
        store.confirm(file, TEXT)
    assert str(caught.value) == (
        "what you trust cannot be recorded in /proc/.local/state/teamd/trust: No such file or "
        "directory; set XDG_STATE_HOME to a folder that you may write to"
    )


def test_a_failed_write_leaves_the_previous_entry(
    store: TrustStore, file: Path, environment: Mapping[str, str]
) -> None:
    store.confirm(file, TEXT)
    (entry,) = entries(environment)
    kept = entry.read_bytes()
    entry.unlink()
    entry.mkdir()
    with pytest.raises(StoreError, match=r"cannot be recorded in .*trust: Is a directory"):
        store.confirm(file, TEXT)
    assert [one.name for one in entry.parent.iterdir()] == [entry.name]
    assert json.loads(kept)["path"] == str(file)


def test_tools_cannot_reach_the_store(tmp_path: Path) -> None:
    """Even if the workspace is the person's home."""
    assert state_folder() in TeamPaths(tmp_path / ".team").off_limits(tmp_path)


def test_an_unreadable_store_trusts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start must not fail with an internal error."""
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / ("a" * 300)))  # longer than any valid name
    assert TeamOptions().waiting(TeamPaths(tmp_path / ".team")) == ([], "")
