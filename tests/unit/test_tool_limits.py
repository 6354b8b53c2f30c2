"""The reach that two teammates have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamd.settings.tool_limits import Tools, common_reach

DATA, DOCS = Path("/data"), Path("/docs")


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Tools(), Tools(), Tools()),
        (Tools(network=True), Tools(), Tools()),
        (Tools(network=True), Tools(hosts=("a",)), Tools(hosts=("a",))),
        (Tools(network=True), Tools(network=True), Tools(network=True)),
        (Tools(hosts=("a", "b")), Tools(hosts=("b", "c")), Tools(hosts=("b",))),
        (Tools(read=(DATA, DOCS)), Tools(read=(DOCS,)), Tools(read=(DOCS,))),
        (Tools(env=("PATH", "KEY")), Tools(env=("PATH",)), Tools(env=("PATH",))),
        (Tools(protect=("a",)), Tools(protect=("b",)), Tools(protect=("a", "b"))),
        (Tools(sandbox="off"), Tools(), Tools()),
        (Tools(sandbox="off"), Tools(sandbox="bubblewrap"), Tools(sandbox="bubblewrap")),
        (Tools(sandbox="off"), Tools(sandbox="external"), Tools(sandbox="external")),
    ],
)
def test_nobody_reaches_more_by_the_other(one: Tools, other: Tools, both: Tools) -> None:
    assert common_reach(one, other) == both
    turned = common_reach(other, one)
    if {one.sandbox, other.sandbox} != {"off", "external"}:
        assert turned.sandbox == both.sandbox
    assert (turned.network, set(turned.hosts), set(turned.protect)) == (
        both.network, set(both.hosts), set(both.protect),
    )  # fmt: skip
