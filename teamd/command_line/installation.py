"""How this program was installed, and the command that adds the packages of an extra."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from contextlib import suppress
from importlib import import_module
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from teamd.errors import TeamError

_NAME: Final = re.compile(r"[\w.-]+")
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


def install_command(extra: str, prefix: Path | None = None) -> str:
    """Return the shell command that adds the packages of an extra to this installation.

    Args:
        extra: "top", "web" or "hosts".
        prefix: the environment; the running one if left out.
    """
    prefix = prefix or Path(sys.prefix)
    if (prefix / "pipx_metadata.json").is_file():
        # Not 'teamd[EXTRA]': pipx would forget the folder or file that it installed teamd from.
        return shlex.join(["pipx", "inject", "teamd", *_packages_of(extra)])
    receipt = prefix / "uv-receipt.toml"
    if receipt.is_file():
        return shlex.join(["uv", "tool", "install", "--reinstall", _uv_requirement(receipt)])
    python, wanted = shlex.quote(str(_python_of(prefix))), f"'teamd[{extra}]'"
    if find_spec("pip") is None:  # as in an environment that uv made
        return f"uv pip install --python {python} {wanted}"
    return f"{python} -m pip install {wanted}"


def _python_of(prefix: Path) -> Path:
    """Return the interpreter of an environment; Debian's own has no `python`."""
    python = prefix / "bin" / "python"
    return python if python.exists() else python.with_name("python3")


def _packages_of(extra: str) -> list[str]:
    """Return the names of the packages that an extra adds."""
    names = []
    for line in requires("teamd") or ():
        requirement, _, marker = line.partition(";")
        found, name = _EXTRA.search(marker), _NAME.match(requirement)
        if found and name and found[1] == extra:
            names.append(name[0])
    return names


def _uv_requirement(receipt: Path) -> str:
    """Return teamd with all extras, from the place that uv installed it from."""
    with suppress(OSError, ValueError, KeyError, TypeError):  # not as uv writes it today
        document: Any = tomllib.loads(receipt.read_text(encoding="utf-8"))
        known = document["tool"]["requirements"]
        one = next(one for one in known if one["name"] == "teamd")
        if place := one.get("directory") or one.get("path") or one.get("editable"):
            return f"teamd[all] @ {Path(place).as_uri()}"
        if git := one.get("git"):
            where, _, revision = git.partition("?rev=")
            return f"teamd[all] @ git+{where}{'@' * bool(revision)}{revision}"
        if url := one.get("url"):
            return f"teamd[all] @ {url}"
    return "teamd[all]"


_OF_HOSTS: Final = ("cryptography", "nats", "nkeys")


def load_for_hosts(module: str) -> Any:
    """Load a module that needs the extra `hosts`.

    Raises:
        TeamError: the extra is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        if not (error.name or "").startswith(_OF_HOSTS):
            raise
        raise TeamError(
            "[hosts] needs packages that are not installed; "
            f"`{install_command('hosts')}` installs them"
        ) from error
