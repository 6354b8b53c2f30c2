"""Errors that a limit of the machine causes: each names the limit and how to raise it."""

from __future__ import annotations

import errno
import os

import pytest

from teamd.command_line.run import TeamOptions, _explain
from teamd.errors import explain_limit
from teamd.supervisor.fork import explain_failed_start


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "`ulimit -u`"),
        (RuntimeError("can't start new thread"), "`ulimit -u`"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "`ulimit -n`"),
        (MemoryError(), "`ulimit -v`"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "`ulimit -v`"),
        (ImportError("x.so: failed to map segment from shared object"), "`ulimit -v`"),
    ],
)
def test_each_limit_is_named_with_its_remedy(
    error: Exception, limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _explain(error, "teamd", TeamOptions()) == 1
    said = capsys.readouterr().err
    assert said.startswith("teamd: ")
    assert said.count("\n") == 1
    assert f"; raise {limit}" in said
    assert str(explain_failed_start(error)).startswith("no teammate can begin here: ")
    assert f"; raise {limit}" in str(explain_failed_start(error))


@pytest.mark.parametrize(
    "error",
    [
        BlockingIOError(errno.EAGAIN, "write could not complete without blocking"),
        RuntimeError("other"),
        ImportError("No module named 'x'"),
    ],
)
def test_other_errors_are_not_taken_for_a_limit(error: Exception) -> None:
    assert explain_limit(error) is None


def test_a_full_disk_is_blamed_on_the_output_only_where_no_file_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/var/x")
    assert _explain(error, "teamctl", TeamOptions(done="it is sent")) == 1
    said = capsys.readouterr().err
    assert "/var/x" in said
    assert "output" not in said
