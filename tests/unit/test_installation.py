"""A missing extra names the command for the way that this program was installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from teamd.command_line.installation import install_command


def receipt(prefix: Path, requirement: str) -> str:
    """Return the command after uv has written its receipt with a requirement of teamd."""
    text = f'[tool]\nrequirements = [{{ name = "rich" }}, {{ name = "teamd"{requirement} }}]\n'
    (prefix / "uv-receipt.toml").write_text(text)
    return install_command("top", prefix)


def test_pipx_injects_the_packages_of_the_extra(tmp_path: Path) -> None:
    (tmp_path / "pipx_metadata.json").write_text("{}")
    assert install_command("top", tmp_path) == "pipx inject teamd textual"
    web = "pipx inject teamd sse-starlette starlette uvicorn"
    assert install_command("web", tmp_path) == web
    assert install_command("hosts", tmp_path) == "pipx inject teamd cryptography nats-py nkeys"


@pytest.mark.parametrize(
    ("requirement", "wanted"),
    [
        ("", "'teamd[all]'"),
        (', directory = "/home/me/my teamd"', "'teamd[all] @ file:///home/me/my%20teamd'"),
        (', editable = "/src"', "'teamd[all] @ file:///src'"),
        (', path = "/dist/teamd.whl"', "'teamd[all] @ file:///dist/teamd.whl'"),
        (', git = "https://host/teamd?rev=v1"', "'teamd[all] @ git+https://host/teamd@v1'"),
        (', git = "https://host/teamd"', "'teamd[all] @ git+https://host/teamd'"),
        (', url = "https://host/teamd.whl"', "'teamd[all] @ https://host/teamd.whl'"),
    ],
)
def test_uv_reinstalls_everything_from_the_same_place(
    tmp_path: Path, requirement: str, wanted: str
) -> None:
    assert receipt(tmp_path, requirement) == f"uv tool install --reinstall {wanted}"


@pytest.mark.parametrize("text", ["", "[", "tool = 1\n", '[tool]\nrequirements = ["teamd"]\n'])
def test_an_unknown_receipt_of_uv_still_gives_a_command(tmp_path: Path, text: str) -> None:
    (tmp_path / "uv-receipt.toml").write_text(text)
    assert install_command("web", tmp_path) == "uv tool install --reinstall 'teamd[all]'"


def test_another_environment_uses_the_pip_of_its_own_interpreter(tmp_path: Path) -> None:
    prefix = tmp_path / "my venv"
    command = f"'{prefix}/bin/python3' -m pip install 'teamd[top]'"
    assert install_command("top", prefix) == command
    assert install_command("top").startswith(f"{sys.prefix}/bin/python -m pip install ")


def test_uv_installs_into_an_environment_without_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    command = f"uv pip install --python {tmp_path}/bin/python3 'teamd[hosts]'"
    assert install_command("hosts", tmp_path) == command
