"""The files that programs of version managers need; these put links and scripts on the PATH."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamd.sandbox.policy import needed_by_programs, toolchain_variables


def made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def there(folder: Path) -> set[str]:
    """Return the needed places that exist, relative to the home."""
    home = next(one for one in folder.parents if one.name == "home")
    return {str(place.relative_to(home)) for place in needed_by_programs(folder) if place.exists()}


def test_a_link_to_an_environment_includes_it_and_its_interpreter(tmp_path: Path) -> None:
    """As pipx and uv create them; the second link of the chain is a folder."""
    home = tmp_path / "home"
    tool, python = home / ".local/share/tools/black", home / ".local/share/uv/python"
    made(tool / "pyvenv.cfg")
    made(tool / "lib/python3.12/site-packages/black.py")
    made(tool / "bin/black")
    made(python / "cpython-3.12.4/lib/python3.12/os.py")
    made(python / "cpython-3.12.4/bin/python3.12")
    (python / "cpython-3.12").symlink_to("cpython-3.12.4")
    (tool / "bin/python").symlink_to(python / "cpython-3.12/bin/python3.12")
    programs = home / ".local/bin"
    programs.mkdir()
    (programs / "black").symlink_to("../share/tools/black/bin/black")
    (programs / "round").symlink_to("round")
    short = {name.removeprefix(".local/") for name in there(programs)}
    assert short == {
        "bin",
        "share/tools/black/bin",
        "share/tools/black/lib",
        "share/tools/black/pyvenv.cfg",
        "share/uv/python/cpython-3.12/bin",
        "share/uv/python/cpython-3.12/lib",
    }


def test_a_link_to_another_file_includes_nothing(tmp_path: Path) -> None:
    """Otherwise a link to a script would expose the project that contains the script."""
    home = tmp_path / "home"
    made(home / ".ssh/id")
    made(home / "project/bin/deploy")
    programs = home / "programs"
    programs.mkdir()
    (programs / "id").symlink_to("../.ssh/id")
    (programs / "deploy").symlink_to("../project/bin/deploy")
    (programs / "nothing").symlink_to("../nowhere/bin/nothing")
    assert there(programs) == {"programs"}


def test_an_added_link_is_found(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made(home / "env/pyvenv.cfg")
    made(home / "env/bin/tool")
    programs = home / "programs"
    programs.mkdir()
    assert there(programs) == {"programs"}
    (programs / "tool").symlink_to("../env/bin/tool")
    assert there(programs) == {"programs", "env/bin", "env/pyvenv.cfg"}


def test_shims_include_their_versions(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in ("shims/python", "versions/3.12/bin/python", "libexec/pyenv", "sources/secret"):
        made(home / ".pyenv" / name)
    assert there(home / ".pyenv/shims") == {".pyenv/shims", ".pyenv/versions", ".pyenv/libexec"}


def test_rustup_finds_its_toolchains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    made(home / ".cargo/bin/rustup")
    made(home / ".rustup/settings.toml")
    monkeypatch.delenv("RUSTUP_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    assert there(home / ".cargo/bin") == {".cargo/bin", ".rustup"}
    assert toolchain_variables([home / ".cargo/bin"], {}) == {"RUSTUP_HOME": str(home / ".rustup")}
    assert toolchain_variables([home], {}) == {}
    assert toolchain_variables([home / ".cargo/bin"], {"RUSTUP_HOME": "/opt/r"}) == {
        "RUSTUP_HOME": "/opt/r"
    }
