"""A start over damaged files: the team works, and its person gets a report."""

from __future__ import annotations

import json

from tests.e2e.harness import Project


def test_a_start_over_damaged_files_works_and_reports_them(project: Project) -> None:
    """The disk has lost the beginning of the supervisor's own taken mail."""
    paths = project.paths
    project.start()
    project.do("teamctl", "spawn", "ann", "clerk", "Go.", "--wait")
    project.do("teamd", "stop")
    paths.taken("teamd").write_bytes(b"\0\n{}\n")
    paths.ledger.write_bytes(b"\0" * 100)
    paths.request("abcdef").write_text("{")
    checked = project.run("teamctl", "doctor")
    assert checked.status == 1
    assert checked.stdout.count(" is damaged") == 3
    assert "`teamd restart` sets it aside" in checked.stdout
    project.start()
    mail = project.do("teamctl", "inbox")
    for name, consequence in (
        ("teamd.taken.jsonl", "no one is waiting for the requests in it any longer"),
        ("ledger.jsonl", "usage was counted again from the conversations"),
        ("abcdef.json", "its teammate has to ask again"),
    ):
        assert f"{name} was damaged, and is kept as {name}.damaged-" in mail
        assert consequence in mail
    assert len(project.log("teamd", "put aside")) == 3
    project.do("teamctl", "send", "ann", "Are you there?", "--wait")
    project.wait_for("ann", "idle", turns=2)
    usage = json.loads(project.do("teamctl", "usage", "--json"))
    assert usage["total"]["calls"] == 2
    checked = project.run("teamctl", "doctor")
    assert checked.stdout.count("is a damaged file that was set aside") == 3
    assert "FAIL" not in checked.stdout
