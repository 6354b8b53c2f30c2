"""The providers of models: each is a file and an entry."""

from __future__ import annotations

from pathlib import Path

from teamd.models import PROVIDERS, load_provider
from teamd.settings.schema import ModelSettings


def test_settings_know_which_providers_ask_a_server() -> None:
    chosen = (ModelSettings(), ModelSettings(script=Path("turns.json")))
    assert {one.provider for one in chosen} == PROVIDERS.keys()
    for one in chosen:
        assert load_provider(one.provider).is_server is one.asks_server
