"""The common tool settings of two teammates."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamd.settings.schema import ToolSettings, common_tool_settings

DATA, DOCS = Path("/data"), Path("/docs")


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (ToolSettings(), ToolSettings(), ToolSettings()),
        (ToolSettings(network=True), ToolSettings(), ToolSettings()),
        (ToolSettings(network=True), ToolSettings(hosts=("a",)), ToolSettings(hosts=("a",))),
        (ToolSettings(network=True), ToolSettings(network=True), ToolSettings(network=True)),
        (
            ToolSettings(hosts=("a", "b")),
            ToolSettings(hosts=("b", "c")),
            ToolSettings(hosts=("b",)),
        ),
        (ToolSettings(read=(DATA, DOCS)), ToolSettings(read=(DOCS,)), ToolSettings(read=(DOCS,))),
        (
            ToolSettings(env=("PATH", "KEY")),
            ToolSettings(env=("PATH",)),
            ToolSettings(env=("PATH",)),
        ),
        (
            ToolSettings(protect=("a",)),
            ToolSettings(protect=("b",)),
            ToolSettings(protect=("a", "b")),
        ),
        (ToolSettings(sandbox="off"), ToolSettings(), ToolSettings()),
        (
            ToolSettings(sandbox="off"),
            ToolSettings(sandbox="bubblewrap"),
            ToolSettings(sandbox="bubblewrap"),
        ),
        (
            ToolSettings(sandbox="off"),
            ToolSettings(sandbox="external"),
            ToolSettings(sandbox="external"),
        ),
    ],
)
def test_the_common_settings_allow_no_more_than_each(
    one: ToolSettings, other: ToolSettings, both: ToolSettings
) -> None:
    assert common_tool_settings(one, other) == both
    turned = common_tool_settings(other, one)
    if {one.sandbox, other.sandbox} != {"off", "external"}:
        assert turned.sandbox == both.sandbox
    assert (turned.network, set(turned.hosts), set(turned.protect)) == (
        both.network, set(both.hosts), set(both.protect),
    )  # fmt: skip
